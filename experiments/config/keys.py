"""The config keys that all sweeps share: defaults, allowed values, meanings."""

from typing import Any, Literal, NamedTuple, get_args

from ml_collections import ConfigDict, config_dict

from fcojax.types import Count, CountOrZero, Fraction, NonNegative, Positive, Real, Seed


class SweepKeys(NamedTuple):
    """The keys of a sweep. Hyperparameters, and keys of its own, are beside them.

    Attributes:
      algorithms: names in fcojax.algorithms, or MODULE:FACTORY.
      num_rounds: rounds of communication.
      criterion: the measure that ranks points of the grid.
      criterion_rounds: number of last rounds over which the criterion is averaged.
      eval_every: rounds between two evaluations, which are the rows; divides num_rounds.
      eval_all_until: up to this round every round is evaluated.
      seeds: one run for each and every point of the grid.
      cohort_size: clients in a round; None for all that are available.
      participation: which clients take part: uniform, weighted:POWER, coin_flips:PROBABILITY or
        cyclic:GROUPS.
      client_schedule: how client_lr changes over rounds: constant, exponential:ROUNDS,FACTOR,
        staircase:ROUNDS,FACTOR, inverse:ROUNDS, inverse_sqrt:ROUNDS or warm_up:ROUNDS; factors are
        multiplied, as in warm_up:10*inverse:100.
      server_schedule: the same for server_lr.
      client_optimiser: steps of optax in the place of the clients' gradient steps, times client_lr:
        adagrad, adam, lamb or yogi, each with :EPS, or lars or sgd, each with :MOMENTUM.
      server_optimiser: the same for the server's step and server_lr.
      clock: speed of the clients, in seconds a step and a byte, so that rows have hours:
        constant:STEP,BYTE, log_normal:STEP,SPREAD,BYTE or by_size:STEP,BYTE.
      deadline: seconds after which uploads of a round are left out; needs clock.
      codec: compression of uploads, and after a comma error feedback, as in top_k:0.01,ef21 or
        qsgd:7.
      broadcast: compression of the server's messages to all clients, as in top_k:0.1; None for
        whole messages to the cohort.
      clip_norm: clip uploads to this norm.
      noise_multiplier: noise on the sum of a round's clipped uploads, in units of that norm; rows
        then have privacy_epsilon.
      privacy_budget: an epsilon for all runs together, which stop after the last round within it.
      privacy_delta: delta of the privacy loss; None for the number of clients to the power of -1.1.
      upload_norm: leave out clients whose upload has a larger norm.
      num_steps: local steps of a client in a round.
      num_epochs: local passes over a client's data, as 0.5, if num_steps is None.
      batch_size: examples of a local step; None for all of them.
      client_chunk_size: clients computed side by side; None for a rule.
      point_chunk_size: points of the grid side by side; None for as many as fit in memory.
      search: grid runs all points to the end, halving fewer at each comparison.
      extend: whether to widen the grid while the best point lies at its edge.
      data_seed: seed of synthetic data.
      data_by_seed: whether each seed has synthetic data of its own, of data_seed plus the seed, so
        that intervals over the seeds contain the draw of the data.
      criterion_goal: whether the smallest or the largest score is best.
      criterion_within: scores within this distance of the best are tied with it.
      criterion_reach: of tied points the first that reaches this score is best; None for the
        lowest objective.
    """

    algorithms: Any
    num_rounds: Count
    criterion: str
    criterion_rounds: Count
    eval_every: Count = 10
    eval_all_until: CountOrZero = 0
    seeds: tuple[Seed, ...] = (0, 1, 2)
    cohort_size: Count | None = None
    participation: str = "uniform"
    client_schedule: str = "constant"
    server_schedule: str = "constant"
    client_optimiser: str | None = None
    server_optimiser: str | None = None
    clock: str | None = None
    deadline: Positive | None = None
    codec: str | None = None
    broadcast: str | None = None
    clip_norm: Positive | None = None
    noise_multiplier: NonNegative = 0.0
    privacy_budget: Positive | None = None
    privacy_delta: Fraction | None = None
    upload_norm: Positive | None = None
    num_steps: Count | None = None
    num_epochs: Positive | None = None
    batch_size: Count | None = None
    client_chunk_size: Count | None = None
    point_chunk_size: Count | None = None
    search: Literal["grid", "halving"] = "grid"
    extend: bool = False
    data_seed: CountOrZero = 0
    data_by_seed: bool = False
    criterion_goal: Literal["min", "max"] = "min"
    criterion_within: NonNegative = 0.0
    criterion_reach: Real | None = None


# Keys that may be None, also as in --config.batch_size=None.
OPTIONAL = {key for key, default in SweepKeys._field_defaults.items() if default is None}
# What a value of each key may be, if it is not None, or an entry of its list.
ALLOWED = {
    key: get_args(kind)[0] if key in {*OPTIONAL, "seeds"} else kind
    for key, kind in SweepKeys.__annotations__.items()
}


def sweep_config(**values: Any) -> ConfigDict:
    """Return a config with the shared keys and any others.

    ``algorithms``, ``num_rounds``, ``criterion``, ``criterion_rounds`` and the hyperparameters have
    no default and must be given.
    """
    config = ConfigDict()
    for key, default in SweepKeys._field_defaults.items():
        kind = getattr(ALLOWED[key], "__origin__", ALLOWED[key])
        kind = float if kind is Any else kind
        config[key] = config_dict.placeholder(kind) if key in OPTIONAL else default
    config.update(values)
    return config
