"""Claims of the source about Figures 4 and 5."""

from functools import partial

import numpy as np

from experiments.report.claims import Claim, over_seeds
from experiments.report.rows import Row, Summary, by_seed, select
from experiments.studies.saddle.methods import METHODS
from experiments.study import Config

_PAPER = "Bai and Bullins (ICLR 2024), section 6, Figure {}"
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
                own = (_vectors if case == "vectors" else _matrices)(config, ends)
                source = _PAPER.format("4" if case == "vectors" else "5")
                name = f"K = {num_steps}"
                found += [claim._replace(source=source, case=name) for claim in own]
    return found


def _ends(rows: list[Row]) -> dict[str, np.ndarray]:
    last = [max(own, key=lambda row: row["round"]) for own in by_seed(rows).values()]
    measures = ("gap", "density", "rank_x", "rank_y")
    return {name: np.array([row[name] for row in last]) for name in measures if name in last[0]}


def _vectors(config: Config, ends: Ends) -> list[Claim]:
    del config
    dual, below = ends["fe_dual_ex"], partial(over_seeds, at_least=False)
    gap = "duality gap at the end"
    found = [
        below("vectors: FeDualEx ends at a small gap", dual["gap"], 1.0, measure=gap),
        below(
            "vectors: about 0.7 of FeDualEx's entries are nonzero",
            abs(dual["density"] - 0.7),
            0.05,
            measure="distance of the share from 0.7",
        ),
    ]
    if primal := ends.get("fed_mip_client"):
        text = "vectors: averaging in the primal is dense (FedMiP)"
        share = "share of nonzeros"
        found.append(over_seeds(text, primal["density"], 0.95, measure=share))
    for key in ("fed_mip_client", "fed_mip"):
        if entry := ends.get(key):
            text, name = "vectors: FedMiP ends at a small gap", METHODS[key].text
            found.append(below(text, entry["gap"], 1.0, measure=gap, part=name))
    for key in ("fed_dual_avg", "fed_mid"):
        if entry := ends.get(key):
            text = f"vectors: {METHODS[key].text.removesuffix(' as printed')} ends at a large gap"
            found.append(over_seeds(text, entry["gap"], 1.0, measure=gap))
    return found


def _matrices(config: Config, ends: Ends) -> list[Claim]:
    dual, half = ends["fe_dual_ex"], config.matrices.num_columns // 2
    ranks = np.maximum(dual["rank_x"], dual["rank_y"])
    text, largest = "matrices: FeDualEx has low ranks", float(ranks.max())
    what = "largest rank of both matrices, of all seeds"
    found = [Claim(text, largest, half, False, measure=what, quick=False, seeds=len(ranks))]
    others = [entry["gap"] for key, entry in ends.items() if key != "fe_dual_ex"]
    if others:
        lead = np.min(others, axis=0) - dual["gap"]
        text = "matrices: FeDualEx has the least gap"
        found.append(over_seeds(text, lead, 0.0, measure="the next one's gap beyond it"))
    return found
