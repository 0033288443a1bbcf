"""Our expectations of rules and attacks."""

import numpy as np

from experiments.report.claims import Claim, over_seeds
from experiments.report.rows import Row, Summary, select
from experiments.studies.robust.rows import ATTACKS, METHODS
from experiments.study import Config

_WITHSTAND = ("median", "trimmed_mean", "geometric_median")
_SMALL, _FIFTH, _MOST = 0.006, 0.2, 0.4


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return claims on distances; none if the config lacks what they need."""
    wanted = {"mean", *_WITHSTAND, *ATTACKS, _SMALL, _FIFTH, _MOST}
    if not wanted <= {*config.rules, *config.attacks, *config.shares} or config.trimmed != 0.3:
        return []
    found = []
    for method in config.methods:
        text = METHODS[method].text

        def distance(rule: str, attack: str, share: float, method: str = method) -> np.ndarray:
            given = {"method": method, "rule": rule, "attack": attack, "share": share}
            return np.array([row["distance"] for row in select(rows, **given)])

        def expected(words: str, *given, part: str = "", text: str = text) -> Claim:
            return over_seeds(words, *given, measure="relative distance", case=text, part=part)

        found += [
            expected(
                "the mean is lost to 0.6 per cent of the weight that sends -1,000 times",
                distance("mean", "thousandfold", _SMALL),
                1.0,
            ),
            expected(
                "and to 40 per cent that send minus twice the mean",
                distance("mean", "inner_product", _MOST),
                1.0,
            ),
            expected(
                "the trimmed mean of 30 per cent is lost to 40 that send -1,000 times",
                distance("trimmed_mean", "thousandfold", _MOST),
                1.0,
            ),
        ]
        for attack, most in (("thousandfold", 0.3), ("little_is_enough", 0.5)):
            for rule in _WITHSTAND:
                words = f"rules withstand {attack.replace('_', ' ')} with a fifth of the weight"
                ends = distance(rule, attack, _FIFTH)
                found.append(expected(words, ends, most, False, part=rule.replace("_", " ")))
    return found
