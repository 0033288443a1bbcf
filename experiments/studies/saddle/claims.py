"""What the source says about Figures 4 and 5."""

from collections import defaultdict

import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary, by_seed, column, select
from experiments.studies.saddle.methods import METHODS
from experiments.study import Config

STATEMENTS = """
Bai and Bullins (ICLR 2024), section 6, Figure 4
fe_dual_ex | vectors: FeDualEx ends at a small gap | duality gap at the end | < 1
nonzeros | vectors: about 0.7 of FeDualEx's entries are nonzero
    | distance of the share from 0.7 | < 0.05
dense | vectors: averaging in the primal is dense (FedMiP) | share of nonzeros | > 0.95
fed_mip | vectors: FedMiP ends at a small gap | duality gap at the end | < 1
fed_dual_avg | vectors: FedDualAvg ends at a large gap | duality gap at the end | > 1
fed_mid | vectors: FedMiD ends at a large gap | duality gap at the end | > 1
Bai and Bullins (ICLR 2024), section 6, Figure 5
ranks | matrices: FeDualEx has low ranks | largest rank of both matrices, of all seeds | <= {half}
lead | matrices: FeDualEx has the least gap | the next one's gap beyond it | > 0
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims on gaps, shares of nonzero entries and ranks at the last round."""
    numbers: dict[str, dict] = defaultdict(dict)
    for problem in config.cases:
        for num_steps in config[problem].num_steps:
            own = select(rows, part="curve", case=problem, num_steps=num_steps)
            ends, case = {}, (f"K = {num_steps}", "")
            for name in config[problem].methods:
                seeds = by_seed(select(own, method=name)).values()
                ends[name] = [max(curve, key=lambda row: row["round"]) for curve in seeds]
            gaps = {name: column(last, "gap") for name, last in ends.items()}
            if "fe_dual_ex" not in ends:
                continue
            ours = ends.pop("fe_dual_ex")
            if problem == "matrices":
                ranks = [max(row["rank_x"], row["rank_y"]) for row in ours]
                numbers["ranks"][case] = ranks, {"seeds": len(ranks)}
                others = [gaps[name] for name in ends]
                numbers["lead"][case] = np.min(others, axis=0) - gaps["fe_dual_ex"]
                continue
            numbers["nonzeros"][case] = abs(column(ours, "density") - 0.7)
            if "fed_mip_client" in ends:
                numbers["dense"][case] = column(ends["fed_mip_client"], "density")
            for name in ("fe_dual_ex", "fed_dual_avg", "fed_mid"):
                numbers[name][case] = gaps.get(name)
            for name in ("fed_mip_client", "fed_mip"):
                numbers["fed_mip"][case[0], METHODS[name].text] = gaps.get(name)
    return judged(STATEMENTS.format(half=config.matrices.num_columns // 2), numbers)
