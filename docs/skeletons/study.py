"""Skeleton of a study, which computes its own rows: limits of local steps."""

from ml_collections import ConfigDict

from fcojax.experiments import Claim, Study, column, select
from fcojax.types import Count, Positive


def rows(config):
    """Yield rows, one at a time; the progress bar shows their ``part``."""
    for steps in config.num_steps:
        # Gradient steps on (w - 1)^2 and (w + 1)^2 / 2, then their average.
        decays = [
            (1 - 2 * config.client_lr) ** steps,
            (1 - config.client_lr) ** steps,
        ]
        weights = [1 - decay for decay in decays]
        limit = (weights[0] - weights[1]) / sum(weights)
        yield {
            "part": "limits",
            "num_steps": steps,
            "error": abs(limit - 1 / 3),
        }


def claims(config, rows, summary):
    """Return the claims, each with the number that decides it."""
    errors = column(select(rows, part="limits"), "error")
    text = "one local step ends at the minimiser"
    return [
        Claim(text, float(errors[0]), 1e-12, at_least=False, measure="distance")
    ]


EXPERIMENT = Study(
    title="My study",
    rows=rows,
    claims=claims,
    keys={Count: "num_steps", Positive: "client_lr"},
)


def get_config():
    """Return the config; set its keys with --config.KEY=VALUE."""
    return ConfigDict({"num_steps": (1, 2, 5, 20), "client_lr": 0.1})


def quick(config):
    """Shrink the study."""
    config.num_steps = (1, 2)
