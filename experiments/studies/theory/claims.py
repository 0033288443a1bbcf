"""The theorems, and the curse of primal averaging."""

from experiments.report.claims import Claim
from experiments.report.rows import column, select
from experiments.studies.theory.problem import SETTINGS


def claims(config, rows, summary):
    """The theorems, and the curse."""
    found = []
    for setting, (_, theorem) in SETTINGS.items():
        seen = select(rows, part="bound", setting=setting)
        gap, lemma, bound = (column(seen, name) for name in ("gap", "lemma", "theorem"))
        local = column(seen, "num_steps") > 1  # one step leaves no discrepancy to bound
        found += [
            Claim(f"{setting}: Lemma 4.4 is above the gap (ratio)", float((lemma / gap).min()), 1),
            Claim(f"{setting}: {theorem} is above it (ratio)", float((bound / gap).min()), 1),
            Claim(
                f"{setting}: and above the lemma if K > 1 (ratio)",
                float((bound / lemma)[local].min()),
                1,
            ),
        ]
    ends = list(summary["on the ball at the end"].values())
    (mid, mid_slow), (dual, dual_slow) = ends[:2], ends[-2:]
    return [
        *found,
        Claim("averaging models on the ball is stuck above the optimum (gap)", mid["gap"], 0.1),
        Claim("and far inside, while the optimum has norm 1 (norm)", mid["norm"], 0.8, False),
        Claim("averaging duals is not stuck (gap)", dual["gap"], 1e-3, False),
        Claim("and ends on the sphere (norm)", dual["norm"], 0.999),
        Claim(
            "with a fiftieth of the rate models are still further off than duals (ratio of gaps)",
            mid_slow["gap"] / dual_slow["gap"], 10,
        ),
    ]  # fmt: skip
