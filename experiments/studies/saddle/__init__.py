"""Composite saddle points: Bai and Bullins (ICLR 2024), section 6."""

from typing import Literal

import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary, by_seed, column, select
from experiments.studies.saddle.rows import METHODS, draw, study, summarise
from experiments.study import Config, Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive

STATEMENTS = """
Bai and Bullins (ICLR 2024), section 6, Figure 4
gap its fe_dual_ex | vectors: FeDualEx ends at a small gap | duality gap at the end | < 1
away its fe_dual_ex | vectors: about 0.7 of FeDualEx's entries are nonzero
    | distance of the share from 0.7 | < 0.05
density its fed_mip_client
    | vectors: averaging in the primal is dense (FedMiP) | share of nonzeros | > 0.95
fed_mip | vectors: FedMiP ends at a small gap | duality gap at the end | < 1
gap its fed_dual_avg | vectors: FedDualAvg ends at a large gap | duality gap at the end | > 1
gap its fed_mid | vectors: FedMiD ends at a large gap | duality gap at the end | > 1
Bai and Bullins (ICLR 2024), section 6, Figure 5
ranks | matrices: FeDualEx has low ranks | largest rank of both matrices, of all seeds | <= {half}
lead | matrices: FeDualEx has the least gap | the next one's gap beyond it | > 0
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims on gaps, shares of nonzero entries and ranks at the last round."""
    found, table = [], STATEMENTS.format(half=config.matrices.num_columns // 2)
    places = [(case, steps) for case in config.cases for steps in config[case].num_steps]
    for case, num_steps in places:
        ends = {}
        for name in config[case].methods:
            own = select(rows, part="curve", case=case, num_steps=num_steps, method=name)
            ends[name] = [max(c, key=lambda row: row["round"]) for c in by_seed(own).values()]
        gap, numbers = {name: column(last, "gap") for name, last in ends.items()}, {}
        if "fe_dual_ex" not in ends:
            continue
        if case == "vectors":
            density = {name: column(last, "density") for name, last in ends.items()}
            away = {name: abs(share - 0.7) for name, share in density.items()}
            numbers = {"gap": gap, "density": density, "away": away}
            both = [name for name in ("fed_mip_client", "fed_mip") if name in gap]
            numbers["fed_mip"] = {METHODS[name].text: gap[name] for name in both}
        else:
            ranks = [max(row["rank_x"], row["rank_y"]) for row in ends["fe_dual_ex"]]
            numbers["ranks"] = ranks, {"seeds": len(ranks)}
            others = [own for name, own in gap.items() if name != "fe_dual_ex"]
            numbers["lead"] = np.min(others, axis=0) - gap["fe_dual_ex"] if others else None
        found += judged(table, numbers, f"K = {num_steps}")
    return found


EXPERIMENT = Study(
    title="Bilinear saddle points: duality gap and structure",
    rows=study,
    summarise=summarise,
    claims=claims,
    figures=draw,
    keys={
        Literal["vectors", "matrices"]: "cases",
        Literal[*METHODS]: "*.methods",
        Count: "num_examples shape[2] num_evaluations *.num_clients *.num_steps *.num_rounds "
        "*.tuning_share",
        CountOrZero: "seeds data_seed *.num_columns",
        Positive: "bound *.client_lr *.server_lr",
        NonNegative: "strength noise_scale",
    },
    requires={
        f"as many {case}.num_rounds as {case}.num_steps": lambda own, case=case: (
            len(own[case].num_rounds) == len(own[case].num_steps)
        )
        for case in ("vectors", "matrices")
    },
)
