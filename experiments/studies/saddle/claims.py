"""Claims of the source about Figures 4 and 5."""

from functools import partial

import numpy as np

from experiments.report.claims import Claim, over_seeds
from experiments.report.rows import Row, Summary, by_seed, select
from experiments.studies.saddle.methods import METHODS
from experiments.study import Config

# For each method and measure, the values at the last round, one per seed.
Ends = dict[str, dict[str, np.ndarray]]


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims on gaps, shares of nonzero entries and ranks at the last round."""
    del summary
    found, curves = [], select(rows, part="curve")
    for case in config.cases:
        for num_steps in config[case].num_steps:
            ends = {
                name: _ends(select(curves, case=case, num_steps=num_steps, method=name))
                for name in config[case].methods
            }
            if "fe_dual_ex" in ends:
                name = f"{case}, K = {num_steps}"
                found += (_vectors if case == "vectors" else _matrices)(config, name, ends)
    return found


def _ends(rows: list[Row]) -> dict[str, np.ndarray]:
    last = [max(own, key=lambda row: row["round"]) for own in by_seed(rows).values()]
    measures = ("gap", "density", "rank_x", "rank_y")
    return {name: np.array([row[name] for row in last]) for name in measures if name in last[0]}


def _vectors(config: Config, name: str, ends: Ends) -> list[Claim]:
    del config
    dual, below = ends["fe_dual_ex"], partial(over_seeds, at_least=False)
    found = [
        below(f"{name}: FeDualEx's gap ends below 1", dual["gap"], 1.0),
        below(
            f"{name}: FeDualEx's share of nonzeros is about 0.7 (excess)",
            abs(dual["density"] - 0.7),
            0.05,
        ),
    ]
    if primal := ends.get("fed_mip_client"):
        text = f"{name}: FedMiP with its client prox is dense, at 0.95 or more"
        found.append(over_seeds(text, primal["density"], 0.95))
        found.append(below(f"{name}: and its gap ends below 1", primal["gap"], 1.0))
    for key in ("fed_mip", "fed_dual_avg", "fed_mid"):
        if entry := ends.get(key):
            word, at_least = ("below", False) if key == "fed_mip" else ("above", True)
            text = f"{name}: {METHODS[key].text}'s gap ends {word} 1"
            found.append(over_seeds(text, entry["gap"], 1.0, at_least))
    return found


def _matrices(config: Config, name: str, ends: Ends) -> list[Claim]:
    dual, half = ends["fe_dual_ex"], config.matrices.num_columns // 2
    ranks = np.maximum(dual["rank_x"], dual["rank_y"])
    text = f"{name}: FeDualEx's ranks end at {half} (largest of both and of all seeds)"
    found = [Claim(text, float(ranks.max()), half, False, quick=False, seeds=len(ranks))]
    others = [entry["gap"] for key, entry in ends.items() if key != "fe_dual_ex"]
    if others:
        lead = np.min(others, axis=0) - dual["gap"]
        text = f"{name}: FeDualEx has the least gap (the next one's beyond it)"
        found.append(over_seeds(text, lead, 0.0))
    return found
