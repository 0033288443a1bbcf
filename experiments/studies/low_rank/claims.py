"""What the paper says about Figure 4."""

from experiments.report.claims import Claim
from experiments.report.summary import curves


def claims(config, rows, summary):
    """What the paper says about Figure 4; the rank also at the rates it reports for the LASSO."""
    entries = summary["algorithms"]
    result = []
    if "fed_dual_avg" in entries:
        best = entries["fed_dual_avg"]["best"]
        points = {
            "the rates of least error": best,
            "rates 0.01 and 1": best | {"client_lr": 0.01, "server_lr": 1.0},
        }
        for where, point in points.items():
            result.append(
                Claim(
                    f"FedDualAvg at {where}: round at which its rank is first "
                    f"{config.true_rank}, latest of the seeds",
                    _first_round(rows, point, config.true_rank),
                    100,
                    at_least=False,
                )
            )
    if {"fed_dual_avg", "fed_dual_avg_osp"} <= entries.keys():
        ratio = entries["fed_dual_avg_osp"]["score"] / entries["fed_dual_avg"]["score"]
        result.append(
            Claim(
                "FedDualAvg-OSP's Frobenius error over FedDualAvg's, each at its best rates",
                ratio,
                1.5,
            )
        )
    return result


def _first_round(rows, point, true_rank):
    """The first round at which FedDualAvg has the true rank, for its slowest seed."""
    shown = [row for row in rows if row["algorithm"] == "fed_dual_avg"]
    seeds = curves(shown, list(point)).get(tuple(point.values()), {})
    firsts = [
        next((row["round"] for row in curve if row["rank"] == true_rank), float("inf"))
        for curve in seeds.values()
    ]
    return max(firsts, default=float("inf"))
