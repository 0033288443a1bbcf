"""The config keys that all sweeps share, with their defaults and meanings."""

from typing import Any, Literal

from ml_collections import ConfigDict, config_dict

from fcojax.types import (
    Count,
    CountOrZero,
    Fraction,
    NonNegative,
    Positive,
    Probability,
    Real,
    Seed,
)

# A key, its default or, if it is None by default, the type of its value, what it may be, and its
# meaning, which ``--help`` prints.
_SHARED = (
    (
        "eval_every",
        10,
        Count,
        "rounds between two evaluations, which are the rows; divides num_rounds",
    ),
    ("eval_all_until", 0, CountOrZero, "up to this round every round is evaluated"),
    ("seeds", (0, 1, 2), Seed, "one run for each and every point of the grid"),
    ("cohort_size", int, Count, "clients in a round; None for all that are available"),
    (
        "participation",
        "uniform",
        str,
        "which clients take part: uniform, weighted:POWER, "
        "coin_flips:PROBABILITY, cyclic:GROUPS or markov:LEAVE,JOIN",
    ),
    ("dropout_probability", 0.0, Probability, "probability that an upload is lost"),
    (
        "codec",
        str,
        str,
        "compression of uploads, and after a comma error feedback, as in "
        "top_k:0.01,ef21 or qsgd:7; None for whole uploads",
    ),
    (
        "broadcast",
        str,
        str,
        "compression of the server's messages to all clients, as in top_k:0.1; None for whole "
        "messages to the cohort",
    ),
    ("clip_norm", float, Positive, "clip uploads to this norm"),
    (
        "noise_multiplier",
        0.0,
        NonNegative,
        "noise on the sum of a round's clipped uploads, in units of that "
        "norm; rows then have privacy_epsilon",
    ),
    (
        "privacy_budget",
        float,
        Positive,
        "an epsilon for all runs together, which stop after the last round within it",
    ),
    (
        "privacy_delta",
        float,
        Fraction,
        "delta of the privacy loss; None for the number of clients to the power of -1.1",
    ),
    ("upload_norm", float, Positive, "leave out clients whose upload has a larger norm"),
    ("upload_quantile", float, Fraction, "let that bound follow this quantile of the uploads"),
    ("num_steps", int, Count, "local steps of a client in a round"),
    ("num_epochs", int, Count, "local passes over a client's data, instead of num_steps"),
    ("batch_size", int, Count, "examples of a local step; None for all of them"),
    ("client_chunk_size", int, Count, "clients computed side by side; None for a rule"),
    (
        "point_chunk_size",
        int,
        Count,
        "points of the grid side by side; None for as many as fit in memory",
    ),
    (
        "precision",
        str,
        str,
        "precision of products, as jax_default_matmul_precision; None for highest",
    ),
    (
        "search",
        "grid",
        Literal["grid", "halving"],
        "grid runs all points to the end, halving fewer at each comparison",
    ),
    (
        "certificate",
        False,
        bool,
        "measure the KKT violation at every evaluation, with another gradient",
    ),
    ("extend", False, bool, "widen the grid while the best point lies at its edge"),
    ("data_seed", 0, CountOrZero, "seed of synthetic data"),
    (
        "criterion_goal",
        "min",
        Literal["min", "max"],
        "whether the smallest or the largest score is best: min or max",
    ),
    (
        "criterion_within",
        0.0,
        NonNegative,
        "scores within this distance of the best are tied with it",
    ),
    (
        "criterion_reach",
        float,
        Real,
        "of tied points the first that reaches this score is best; None for the lowest objective",
    ),
)
# Keys that every config must give, and the hyperparameters of most algorithms.
_GIVEN = {
    "algorithms": "the algorithms: names in fcojax.algorithms, or MODULE:FACTORY",
    "num_rounds": "rounds of communication",
    "criterion": "the measure that ranks points of the grid",
    "criterion_rounds": "number of last rounds over which the criterion is averaged",
    "client_lr": "step size of clients; several values are a grid, as of all hyperparameters",
    "server_lr": "step size of the server",
    "penalty_scale": "strength of the penalty",
    "own_grids": "grids that only one algorithm has, by its label",
}
# Keys that may be None, also as in --config.batch_size=None.
OPTIONAL = {key for key, default, *_ in _SHARED if isinstance(default, type)}
SHARED = {key: None if key in OPTIONAL else default for key, default, *_ in _SHARED}
MEANINGS = {key: meaning for key, _, _, meaning in _SHARED} | _GIVEN
ALLOWED = {key: annotation for key, _, annotation, _ in _SHARED} | {
    "num_rounds": Count,
    "criterion": str,
    "criterion_rounds": Count,
}


def sweep_config(**values: Any) -> ConfigDict:
    """Return a config with the shared keys and any others.

    ``algorithms``, ``num_rounds``, ``criterion``, ``criterion_rounds`` and the hyperparameters have
    no default and must be given. ``--help`` explains other keys by the comments after them.
    """
    config = ConfigDict()
    for key, default, *_ in _SHARED:
        config[key] = config_dict.placeholder(default) if key in OPTIONAL else default
    config.update(values)
    return config
