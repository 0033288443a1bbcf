"""Claims: feasibility, and the order of the algorithms in the paper's other experiments."""

from experiments.report.claims import Claim
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, select
from experiments.studies.emnist.rows import finite
from experiments.study import Config


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return our expectations; the paper publishes no results of this experiment.

    In its other experiments FedDualAvg is at least as good as FedMiD, each at its best rates.
    """
    result = []
    for name in config.algorithms:
        excess = [row["violation"] for row in select(rows, part="point", algorithm=name)]
        text = f"{style(name)[0]}: largest excess over the radius, share of it"
        worst = max((value for value in excess if finite(value)), default=float("nan"))
        result.append(Claim(text, worst, 1e-5, at_least=False, source=False))
    if not {"fed_dual_avg", "fed_mid"} <= set(config.algorithms):
        return result
    scores = {(*_setting(line), line["algorithm"]): line for line in summary["best"]}
    for setting in dict.fromkeys(_setting(line) for line in summary["best"]):
        dual, primal = (scores[(*setting, style(name)[0])] for name in ("fed_dual_avg", "fed_mid"))
        model, constraint, radius = setting
        ratio = dual["score"] / primal["score"] if finite(dual["score"]) else float("nan")
        text = f"{model}, {constraint} ball of {radius:g}: FedDualAvg's training loss over FedMiD's"
        seeds = len(config.seeds)
        result.append(Claim(text, ratio, 1.0, False, source=False, quick=False, seeds=seeds))
    return result


def _setting(line: Row) -> tuple:
    return line["model"], line["constraint"], line["radius"]
