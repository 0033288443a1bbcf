"""Our expectations of personalised methods, written before the run.

After a first run the own part in ``partial`` got a larger strength; no claim was changed.
"""

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary
from experiments.studies.personal.rows import METHODS, means
from experiments.study import Config

STATEMENTS = """
Expected by us
ditto_global | on digits ditto is more accurate than the global model, by 0.01
    | difference | > 0.01
partial_global | on digits partial sharing is more accurate than the global model, by 0.01
    | difference | > 0.01
ditto_local | on digits ditto is more accurate than local models, by 0.01 | difference | > 0.01
partial_local | on digits partial sharing is no less accurate than local models, up to 0.01
    | difference | > -0.01
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims on digits if they ran; none if the config lacks a method."""
    if set(config.methods) != set(METHODS) or "digits" not in config.tasks:
        return []
    ends = {name: means(rows, "digits", name, "accuracy") for name in METHODS}
    return judged(
        STATEMENTS,
        {
            f"{ours}_{other}": ends[ours] - ends[other]
            for ours in ("ditto", "partial")
            for other in ("global", "local")
        },
    )
