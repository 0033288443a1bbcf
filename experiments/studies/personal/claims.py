"""Our expectations of personalised methods, written before the run.

After a first run the own part in ``partial`` got a larger strength; no claim was changed.
"""

from experiments.report.claims import Claim, over_seeds
from experiments.report.rows import Row, Summary
from experiments.studies.personal.rows import METHODS, means
from experiments.study import Config


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims on digits if they ran; none if the config lacks a method."""
    if set(config.methods) != set(METHODS) or "digits" not in config.tasks:
        return []
    found = []

    def lead(text, method, rival, needed):
        ours, theirs = (means(rows, "digits", name, "accuracy") for name in (method, rival))
        found.append(over_seeds(text, ours - theirs, needed, measure="difference"))

    for method, words in (("ditto", "ditto"), ("partial", "partial sharing")):
        text = f"on digits {words} is more accurate than the global model, by 0.01"
        lead(text, method, "global", 0.01)
    text = "on digits ditto is more accurate than local models, by 0.01"
    lead(text, "ditto", "local", 0.01)
    text = "on digits partial sharing is no less accurate than local models, up to 0.01"
    lead(text, "partial", "local", -0.01)
    return found
