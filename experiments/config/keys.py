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
)

# A key, its default or, if that is None, its type, and its meaning, which ``--help`` prints.
_SHARED = (
    ("eval_every", 10, "rounds between two evaluations, which are the rows; divides num_rounds"),
    ("eval_all_until", 0, "up to this round every round is evaluated"),
    ("seeds", (0, 1, 2), "one run for each and every point of the grid"),
    ("cohort_size", int, "clients in a round; None for all that are available"),
    (
        "participation",
        "uniform",
        "which clients take part: uniform, weighted:POWER, coin_flips:PROBABILITY or cyclic:GROUPS",
    ),
    ("dropout_probability", 0.0, "probability that an upload is lost"),
    (
        "client_schedule",
        "constant",
        "how client_lr changes over rounds: constant, exponential:ROUNDS,FACTOR, "
        "staircase:ROUNDS,FACTOR, inverse:ROUNDS, inverse_sqrt:ROUNDS or warm_up:ROUNDS; factors "
        "are multiplied, as in warm_up:10*inverse:100",
    ),
    ("server_schedule", "constant", "the same for server_lr"),
    (
        "correct",
        str,
        "weights p / q for clients that take part with probability q: known or estimated",
    ),
    (
        "clock",
        str,
        "speed of the clients, in seconds a step and a byte, so that rows have hours: "
        "constant:STEP,BYTE, log_normal:STEP,SPREAD,BYTE or by_size:STEP,BYTE",
    ),
    ("deadline", float, "seconds that the server waits for the uploads of a round; needs clock"),
    ("late", "drop", "at a deadline, drop late uploads or truncate the steps of slow clients"),
    (
        "codec",
        str,
        "compression of uploads, and after a comma error feedback, as in "
        "top_k:0.01,ef21 or qsgd:7; None for whole uploads",
    ),
    (
        "broadcast",
        str,
        "compression of the server's messages to all clients, as in top_k:0.1; None for whole "
        "messages to the cohort",
    ),
    ("clip_norm", float, "clip uploads to this norm"),
    (
        "noise_multiplier",
        0.0,
        "noise on the sum of a round's clipped uploads, in units of that "
        "norm; rows then have privacy_epsilon",
    ),
    (
        "privacy_budget",
        float,
        "an epsilon for all runs together, which stop after the last round within it",
    ),
    (
        "privacy_delta",
        float,
        "delta of the privacy loss; None for the number of clients to the power of -1.1",
    ),
    ("upload_norm", float, "leave out clients whose upload has a larger norm"),
    ("num_steps", int, "local steps of a client in a round"),
    ("num_epochs", float, "local passes over a client's data, as 0.5, instead of num_steps"),
    ("batch_size", int, "examples of a local step; None for all of them"),
    ("client_chunk_size", int, "clients computed side by side; None for a rule"),
    ("point_chunk_size", int, "points of the grid side by side; None for as many as fit in memory"),
    ("precision", str, "precision of products, as jax_default_matmul_precision; None for highest"),
    ("search", "grid", "grid runs all points to the end, halving fewer at each comparison"),
    ("certificate", False, "measure the KKT violation at every evaluation, with another gradient"),
    ("by_client", False, "measure how the loss is distributed over the clients"),
    ("extend", False, "widen the grid while the best point lies at its edge"),
    ("data_seed", 0, "seed of synthetic data"),
    ("criterion_goal", "min", "whether the smallest or the largest score is best: min or max"),
    ("criterion_within", 0.0, "scores within this distance of the best are tied with it"),
    (
        "criterion_reach",
        float,
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
# The allowed values of the keys, as in ``Sweep.keys``.
KEYS: dict[Any, str] = {
    Count: "num_rounds eval_every criterion_rounds cohort_size num_steps batch_size "
    "client_chunk_size point_chunk_size",
    CountOrZero: "eval_all_until data_seed",
    Positive: "clip_norm privacy_budget upload_norm deadline num_epochs",
    NonNegative: "noise_multiplier criterion_within",
    Fraction: "privacy_delta",
    Probability: "dropout_probability",
    Real: "criterion_reach",
    bool: "by_client certificate extend",
    str: "criterion participation codec broadcast precision client_schedule server_schedule clock",
    Literal["grid", "halving"]: "search",
    Literal["min", "max"]: "criterion_goal",
    Literal["known", "estimated"]: "correct",
    Literal["drop", "truncate"]: "late",
}
# Keys that may be None, also as in --config.batch_size=None.
OPTIONAL = {key for key, default, _ in _SHARED if isinstance(default, type)}
SHARED = {key: None if key in OPTIONAL else default for key, default, _ in _SHARED}
MEANINGS = {key: meaning for key, _, meaning in _SHARED} | _GIVEN


def sweep_config(**values: Any) -> ConfigDict:
    """Return a config with the shared keys and any others.

    ``algorithms``, ``num_rounds``, ``criterion``, ``criterion_rounds`` and the hyperparameters have
    no default and must be given. ``--help`` explains other keys by the comments after them.
    """
    config = ConfigDict()
    for key, default, _ in _SHARED:
        config[key] = config_dict.placeholder(default) if key in OPTIONAL else default
    config.update(values)
    return config
