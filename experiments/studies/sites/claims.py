"""Claims of the source on supports and gaps, and checks that make them meaningful."""

from experiments.report.claims import Claim, over_seeds
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.sites.rows import cells, differences, gaps_at_the_end
from experiments.study import Config

# The source's differences in F1, least and largest of nine cells, and its two gaps.
_LEAST, _LARGEST, _OURS, _THEIRS = 0.243, 0.467, 2.7e-5, 1.695


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return claims on the differences in F1, on the gaps of one cell, and on the optimum."""
    found, means = [], []
    for design, num_steps in cells(config):
        lead = differences(config, rows, design, num_steps)
        means.append(float(lead.mean()))
        text = f"{design}, E = {num_steps}: FedDualAvg's F1 is higher (difference)"
        found.append(over_seeds(text, lead, 0.0))
    found += [
        Claim("the least of the differences is as large as published", min(means), _LEAST),
        Claim("the largest is no larger than published", max(means), _LARGEST, False),
    ]
    if "independent" in config.designs and 1 in config.num_steps:
        cell = config, rows, "independent", 1
        ours, theirs = (gaps_at_the_end(*cell, name) for name in ("fed_dual_avg", "averaged_cd"))
        where = f"independent, E = 1, R = {max(config.num_rounds)}"
        found += [
            over_seeds(
                f"{where}: FedDualAvg's gap is at most ten times the published {_OURS:g}",
                ours, 10 * _OURS, False,
            ),
            over_seeds(
                f"{where}: that of averaged CD is at least a tenth of the published {_THEIRS:g}",
                theirs, _THEIRS / 10,
            ),
            over_seeds(
                f"{where}: averaged CD's gap is a thousand times FedDualAvg's (difference)",
                theirs - 1000 * ours, 0.0,
            ),
        ]  # fmt: skip
    for design, num_steps in cells(config):
        text = f"{design}, E = {num_steps}: averaged CD has more nonzeros (difference)"
        lead = -differences(config, rows, design, num_steps, "nonzeros")
        found.append(over_seeds(text, lead, 0.0, source=False))
        text = f"{design}, E = {num_steps}: with entries above {config.cut:g} too, F1 is higher"
        lead = differences(config, rows, design, num_steps, "f1_above_cut")
        found.append(over_seeds(text, lead, 0.0, source=False))
    worst = float(column(select(rows, part="pooled"), "duality_gap").max())
    found.append(
        Claim("pooled optima are certified (largest duality gap)", worst, 1e-6, False, source=False)
    )
    return [claim._replace(quick=claim.text.startswith("pooled")) for claim in found]
