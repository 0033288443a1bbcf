"""Check a config and turn it into settings."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

import fcojax
from experiments.codecs import codec, compressor
from experiments.config.algorithms import find
from experiments.config.keys import KEYS, OPTIONAL
from experiments.config.schedules import RATES, Forms, chosen, factors, scheduled
from experiments.report.rows import points_of
from experiments.report.summary import Criterion
from experiments.study import Config, Sweep, check, check_values, naming
from fcojax import Plan, Sampler, privacy, uploads
from fcojax.algorithms import Work
from fcojax.algorithms.base import Factory
from fcojax.clock import Clock, by_size, log_normal
from fcojax.extend import checked_value
from fcojax.grid import product
from fcojax.problems import ClientData
from fcojax.types import NonNegative, PyTree, Seed

# The columns of every row.
_COLUMNS = ("algorithm", "seed", "round", "status", "participants", "dropped")
# For each kind of participation: its form in a config, the types of its numbers, and its sampler.
_LAWS: Forms = {
    "uniform": (
        "uniform",
        (),
        lambda n: fcojax.uniform_cohort(cohort_size=n) if n else fcojax.everyone(),
    ),
    "weighted": (
        "weighted:POWER",
        (float,),
        lambda n, power: fcojax.weighted_cohort(cohort_size=n, power=power),
    ),
    "coin_flips": ("coin_flips:PROBABILITY", (float,), lambda n, p: fcojax.coin_flips(p)),
    "cyclic": (
        "cyclic:GROUPS",
        (int,),
        lambda n, groups: fcojax.cyclic(num_groups=groups, cohort_size=n),
    ),
}


def _not_negative(text: str) -> float:
    return checked_value("the number", float(text), NonNegative)


# The same for laws of speed, ``(clients, seconds of a step, ..., seconds of a byte) -> Clock``.
_SPEEDS: Forms = {
    "constant": (
        "constant:STEP,BYTE",
        (_not_negative,) * 2,
        lambda data, step, byte: Clock(step, byte, byte),
    ),
    "log_normal": (
        "log_normal:STEP,SPREAD,BYTE",
        (_not_negative,) * 3,
        lambda data, step, spread, byte: Clock(
            log_normal(data.num_clients, median=step, spread=spread), byte, byte
        ),
    ),
    "by_size": (
        "by_size:STEP,BYTE",
        (_not_negative,) * 2,
        lambda data, step, byte: Clock(by_size(data, step), byte, byte),
    ),
}


class Settings(NamedTuple):
    """A checked config, as objects of the library.

    Attributes:
      algorithms: the factories by label.
      grids: the hyperparameters by label, with a leading axis of points.
      num_rounds: the number of rounds.
      eval_every: rounds between two evaluations.
      eval_all_until: the round up to which every round is evaluated.
      seeds: one run per seed and point.
      plan: the sampler, the local work and the chunk sizes.
      criterion: ranks the points.
      penalty_scales: all strengths of the penalty.
      search: ``grid`` runs all points to the end, ``halving`` fewer at each comparison.
      extend: whether a grid is widened while the best point lies at its edge.
      certificate: whether rows have the KKT violation.
      by_client: whether rows have quantiles of the clients' losses.
      delta: delta of the privacy loss; ``None`` for a default by the number of clients.
      budget: an epsilon for all runs together; ``None`` for no limit.
      broadcast: compression of the server's messages; ``None`` for whole messages.
      schedules: for each rate that changes over rounds, ``round -> factor``.
      clock: ``clients -> Clock``; ``None`` without times.
      deadline: seconds that the server waits; ``None`` without a deadline.
      late: ``drop`` or ``truncate``.
    """

    algorithms: dict[str, Factory]
    grids: dict[str, PyTree]
    num_rounds: int
    eval_every: int
    eval_all_until: int
    seeds: tuple[int, ...]
    plan: Plan
    criterion: Criterion
    penalty_scales: tuple[float, ...]
    search: str
    extend: bool = False
    certificate: bool = False
    by_client: bool = False
    delta: float | None = None
    budget: float | None = None
    broadcast: uploads.Compressor | None = None
    schedules: Mapping[str, Callable] = {}
    clock: Callable[[ClientData], Clock] | None = None
    deadline: float | None = None
    late: str = "drop"

    def scheduled(self, grid: PyTree) -> PyTree:
        """Return a grid whose rates change over the rounds of the run."""
        return scheduled(grid, self.schedules, self.num_rounds)

    def ends(self, goal: int) -> list[int]:
        """Return the rounds up to ``goal`` after which there is an evaluation."""
        found, at = [], 0
        while at < goal:
            early = at < self.eval_all_until
            at = at + 1 if early else (at // self.eval_every + 1) * self.eval_every
            found.append(min(at, goal))  # a budget may end between two evaluations
        return found


def participation(law: str, cohort_size: int | None = None) -> Sampler:
    """Return the sampler that ``participation`` names.

    Args:
      law: the value in the config, such as ``cyclic:4``.
      cohort_size: clients in a round; ``None`` for all that are available. Coin flips have none.
    """
    build, numbers = chosen("participation", law, _LAWS)
    with naming("participation", law):
        return build(cohort_size, *numbers)


def resolve(config: Config, sweep: Sweep) -> Settings:
    """Check the keys of a sweep; raise ``ValueError`` for the first mistake."""
    algorithms = find(config.algorithms, sweep)
    for annotation, names in KEYS.items():
        for key in names.split():
            if config.get(key) is not None or key not in OPTIONAL:
                check_values(key, config.get(key), annotation, single=True)
    check_values("seeds", config.seeds, Seed)
    num_rounds, eval_every, last = config.num_rounds, config.eval_every, config.criterion_rounds
    if num_rounds % eval_every:
        raise ValueError(
            f"eval_every is {eval_every}, which does not divide num_rounds = {num_rounds}; "
            "pass a divisor."
        )
    if last > num_rounds:  # the start would count as a round
        raise ValueError(
            f"criterion_rounds is {last}, more than num_rounds = {num_rounds}; pass at most that."
        )
    if config.deadline is not None and config.clock is None:
        raise ValueError("deadline needs clock.")
    check(sweep, config)  # before the strengths, which may come from the problem
    seeds, strengths = (
        _numbers(key, value)
        for key, value in (("seeds", config.seeds), ("penalty_scale", sweep.strengths(config)))
    )
    return Settings(
        algorithms=algorithms,
        grids={
            label: _grid(label, one.Hparams, config, {"penalty_scale": strengths})
            for label, one in algorithms.items()
        },
        num_rounds=num_rounds,
        eval_every=eval_every,
        eval_all_until=config.eval_all_until,
        seeds=tuple(int(seed) for seed in seeds),
        plan=Plan(
            _work(config),
            participation(str(config.participation), config.cohort_size),
            uploads=_uploads(config),
            client_chunk_size=config.client_chunk_size,
            point_chunk_size=config.point_chunk_size,
        ),
        criterion=Criterion(
            config.criterion,
            config.criterion_goal,
            last,
            config.criterion_within,
            config.criterion_reach,
        ),
        penalty_scales=strengths,
        search=config.search,
        extend=config.extend,
        certificate=config.certificate,
        by_client=config.by_client,
        delta=config.privacy_delta,
        budget=config.privacy_budget,
        broadcast=_broadcast(config),
        schedules=_schedules(config, algorithms),
        clock=_clock(config.clock),
        deadline=config.deadline,
        late=config.late,
    )


def set_precision(config: Config) -> None:
    """Set the precision of products, for the whole process, if the config has one."""
    precision = config.get("precision")
    if precision is None:
        return
    try:
        jax.config.update("jax_default_matmul_precision", precision)
    except ValueError:
        raise ValueError(
            f"precision is {precision!r}; pass highest, high, default, or another value that "
            "jax_default_matmul_precision accepts."
        ) from None


def hyperparameters(config: Config, sweep: Sweep) -> set[str]:
    """Return the hyperparameters of all algorithms that a config names."""
    factories = find(config.algorithms, sweep).values()
    return {field for factory in factories for field in factory.Hparams._fields}


def _grid(label: str, hparams: Any, config: Config, chosen: dict[str, Any]) -> PyTree:
    own, values = chosen | (config.to_dict().get("own_grids") or {}).get(label, {}), {}
    for field in hparams._fields:
        if field in _COLUMNS:
            raise ValueError(
                f"{label} has a hyperparameter {field}, but rows have a column of that name; "
                "rename it."
            )
        if field in own or field in config:
            values[field] = _numbers(field, own.get(field, config.get(field)))
        elif field not in hparams._field_defaults:
            raise ValueError(
                f"{label} needs {field}, which has no default and is not in the config; pass "
                f"--config.{field}=VALUE."
            )
    grid = product(hparams, **values)
    points = points_of(grid)
    twice = next((point for place, point in enumerate(points) if point in points[:place]), None)
    if twice is not None:
        raise ValueError(f"{label} has the point {twice} twice, to seven digits; pass it once.")
    return grid


def refuse_numbers_beyond_range(config: Config) -> None:
    """Refuse negative counts, and integers of more than 32 bits."""
    most = 2**31 - 1
    for key, value in config.items():
        for entry in value if isinstance(value, tuple | list) else (value,):
            if isinstance(entry, bool) or not isinstance(entry, int):
                continue
            if not -most - 1 <= entry <= most:
                raise ValueError(f"{key} is {entry}; whole numbers may be at most {most}.")
            if entry < 0 and (key.startswith("num_") or key == "data_seed"):
                raise ValueError(f"{key} is {entry}; pass a number that is not negative.")


def _work(config: Config) -> Work:
    # Most configs set num_steps, so num_epochs overrides it.
    if config.num_epochs is not None:
        return fcojax.local_epochs(config.num_epochs, config.batch_size)
    if config.num_steps is None:
        raise ValueError("neither num_steps nor num_epochs is set; set one of them.")
    return fcojax.local_steps(config.num_steps, config.batch_size)


def _schedules(config: Config, algorithms: dict[str, Factory]) -> dict[str, Callable]:
    """Return ``round -> factor`` for each rate that changes over rounds."""
    found = {}
    for key, field in RATES.items():
        if config[key] == "constant":
            continue
        found[field] = factors(key, config[key])
        if not any(field in one.Hparams._fields for one in algorithms.values()):
            raise ValueError(f"{key} is {config[key]!r}, but no algorithm of the run has {field}.")
    return found


def _broadcast(config: Config) -> uploads.Compressor | None:
    text = config.broadcast
    with naming("broadcast", text):
        return None if text is None else compressor(text, "broadcast")


def _clock(law: str | None) -> Callable[[ClientData], Clock] | None:
    """Return the clock that ``clock`` names, as a function of the clients."""
    if law is None:
        return None
    build, numbers = chosen("clock", law, _SPEEDS)
    return lambda data: build(data, *numbers)


def _uploads(config: Config) -> uploads.UploadTransform:
    """Return the transforms of uploads: compression, clip and noise, bound, weights, losses."""
    text, clip, bound = config.codec, config.clip_norm, config.upload_norm
    noise = config.noise_multiplier
    epsilon, delta = config.privacy_budget, config.privacy_delta
    for key, value, needed, other in (
        ("noise_multiplier", noise or None, "clip_norm", clip),
        ("privacy_budget", epsilon, "clip_norm", clip),
        ("privacy_budget", epsilon, "noise_multiplier", noise or None),
        ("privacy_budget", epsilon, "privacy_delta", delta),
    ):
        if value is not None and other is None:
            raise ValueError(f"{key} needs {needed}.")
    found = []
    with naming("codec", text):
        if text is not None:
            found.append(codec(text))
    if clip is not None:
        found.append(privacy.gaussian(clip, noise))
    if bound is not None:
        found.append(fcojax.norm_bound(bound))
    if config.correct is not None:
        found.append(uploads.inverse_probability(config.correct))
    if config.dropout_probability:
        found.append(fcojax.dropout(config.dropout_probability))
    return uploads.chain(*found)


def _numbers(key: str, value: Any) -> tuple[float, ...]:
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not values:
        raise ValueError(f"{key} is empty; pass at least one number.")
    for entry in values:
        if isinstance(entry, bool) or not isinstance(entry, int | float):
            raise ValueError(f"{key} contains {entry!r}; pass numbers, as in --config.{key}=0.1,1.")
        if not math.isfinite(entry):
            raise ValueError(f"{key} contains {entry}; pass finite numbers.")
    if len(set(values)) < len(values):
        raise ValueError(f"{key} is {values}; pass distinct numbers.")
    return values
