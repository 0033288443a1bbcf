"""Check a config and turn it into settings."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

import fcojax
from experiments.codecs import CLOCKS, SAMPLERS, chosen, codec, compressor, factors, optimised
from experiments.config.algorithms import find
from experiments.config.keys import ALLOWED, OPTIONAL, SweepKeys
from experiments.report.rows import points_of
from experiments.report.summary import Criterion
from experiments.study import Config, Sweep, check, check_values, naming
from fcojax import Plan, privacy, uploads
from fcojax.algorithms.base import Factory
from fcojax.clock import Clock
from fcojax.grid import product
from fcojax.problems import ClientData
from fcojax.types import PyTree, Real

# The columns of every row.
_COLUMNS = ("algorithm", "seed", "round", "status", "participants", "dropped")
# The keys of a criterion, in the order of its fields.
_CRITERION = ["criterion", *(f"criterion_{name}" for name in ("goal", "rounds", "within", "reach"))]
# For each key of a schedule, the hyperparameter that it changes.
RATES = {"client_schedule": "client_lr", "server_schedule": "server_lr"}
OPTIMISERS = "client_optimiser", "server_optimiser"


class Settings(NamedTuple):
    """A checked config, as objects of the library.

    Attributes:
      keys: the values of the shared keys; a privacy budget may reduce the rounds.
      algorithms: the factories by label.
      grids: the hyperparameters by label, with a leading axis of points.
      plan: who takes part in a round, the local work, and what happens to uploads.
      penalty_scales: all strengths of the penalty.
      schedules: for each rate that changes over rounds, ``round -> factor``.
      clock: ``clients -> Clock``; ``None`` without times.
    """

    keys: SweepKeys
    algorithms: dict[str, Factory]
    grids: dict[str, PyTree]
    plan: Plan
    penalty_scales: tuple[float, ...]
    schedules: Mapping[str, Callable] = {}
    clock: Callable[[ClientData], Clock] | None = None

    @property
    def criterion(self) -> Criterion:
        """What ranks the points."""
        return Criterion(*(getattr(self.keys, name) for name in _CRITERION))

    def scheduled(self, grid: PyTree) -> PyTree:
        """Return a grid with each scheduled rate that it has as one value for each round."""
        changed, rounds = {}, np.arange(self.keys.num_rounds, dtype=np.float32)
        for field in self.schedules.keys() & set(grid._fields):
            factor = jax.vmap(self.schedules[field])(rounds)
            rates = np.multiply.outer(np.asarray(getattr(grid, field)), np.asarray(factor))
            changed[field] = fcojax.schedule(rates)
        return grid._replace(**changed)

    def ends(self, goal: int) -> list[int]:
        """Return the rounds up to ``goal`` after which there is an evaluation."""
        found, at, every = [], 0, self.keys.eval_every
        while at < goal:
            early = at < self.keys.eval_all_until
            at = at + 1 if early else (at // every + 1) * every
            found.append(min(at, goal))  # a budget may end between two evaluations
        return found


def resolve(config: Config, sweep: Sweep) -> Settings:
    """Check the keys of a sweep; raise ``ValueError`` for the first mistake."""
    algorithms = find(config.algorithms, sweep)
    for key, allowed in ALLOWED.items():
        if allowed is not Any and (config.get(key) is not None or key not in OPTIONAL):
            check_values(key, config.get(key), allowed, single=key != "seeds")
    if given := {key: config[key] for key in OPTIMISERS if config[key] is not None}:
        algorithms = {at: optimised(at, one, **given) for at, one in algorithms.items()}
    seeds = config.seeds if isinstance(config.seeds, tuple) else (config.seeds,)
    keys = SweepKeys._make(config[key] for key in SweepKeys._fields)._replace(seeds=seeds)
    if keys.num_rounds % keys.eval_every:
        raise ValueError(
            f"eval_every is {keys.eval_every}, which does not divide num_rounds = "
            f"{keys.num_rounds}; pass a divisor."
        )
    if keys.criterion_rounds > keys.num_rounds:  # the start would count as a round
        raise ValueError(
            f"criterion_rounds is {keys.criterion_rounds}, more than num_rounds = "
            f"{keys.num_rounds}; pass at most that."
        )
    if keys.deadline is not None and keys.clock is None:
        raise ValueError("deadline needs clock.")
    if keys.data_by_seed and (file := config.get("data_dir") or config.get("data")):
        raise ValueError(f"data_by_seed draws synthetic data, but they are read from {file}.")
    if keys.data_by_seed and keys.search != "grid":
        raise ValueError(
            f"search is {keys.search!r}, which compares points before all draws of data_by_seed "
            "have run; pass grid."
        )
    check(sweep, config)  # before the strengths, which may come from the problem
    _numbers("seeds", seeds)
    strengths = _numbers("penalty_scale", sweep.strengths(config))
    scales = {"penalty_scale": strengths}
    grids = {at: _grid(at, one.Hparams, config, scales) for at, one in algorithms.items()}
    plan, schedules = _plan(keys), {}
    for key, field in RATES.items():
        if config[key] == "constant":
            continue
        schedules[field] = factors(key, config[key])
        if field not in hyperparameters(config, sweep):
            raise ValueError(f"{key} is {config[key]!r}, but no algorithm of the run has {field}.")
    clock = None if keys.clock is None else chosen("clock", keys.clock, CLOCKS, None)
    return Settings(keys, algorithms, grids, plan, strengths, schedules, clock)


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


def _plan(keys: SweepKeys) -> Plan:
    """Return the plan of the config's keys; what else a plan can be is ``Sweep.plan``."""
    steps, epochs, size = keys.num_steps, keys.num_epochs, keys.batch_size
    if steps is not None and epochs is None:
        work = fcojax.local_steps(steps, size)
    elif epochs is not None and steps is None:
        work = fcojax.local_epochs(epochs, size)
    else:
        raise ValueError(
            f"num_steps is {steps} and num_epochs is {epochs}; set one of them, the other to None."
        )
    if keys.participation.startswith("coin_flips") and keys.cohort_size is not None:
        raise ValueError(
            f"cohort_size is {keys.cohort_size}, but {keys.participation} has no size; set "
            "cohort_size to None."
        )
    with naming("participation", keys.participation):
        sampler = chosen("participation", keys.participation, SAMPLERS, None)(keys.cohort_size)
    with naming("broadcast", text := keys.broadcast):
        sent = None if text is None else uploads.ef21p(compressor(text, "broadcast"))
    plan = Plan(work, sampler, uploads=_uploads(keys), broadcast=sent)
    chunks = "client_chunk_size", "point_chunk_size"
    return plan._replace(**{name: getattr(keys, name) for name in chunks})


def _uploads(keys: SweepKeys) -> uploads.UploadTransform:
    """Return the transforms of uploads: compression, clip and noise, bound."""
    budget = "clip_norm", "noise_multiplier", "privacy_delta"
    for key, needed in {"noise_multiplier": ("clip_norm",), "privacy_budget": budget}.items():
        for other in needed:
            if getattr(keys, key) and not getattr(keys, other):
                raise ValueError(f"{key} needs {other}.")
    found = []
    with naming("codec", keys.codec):
        if keys.codec is not None:
            found.append(codec(keys.codec))
    if keys.clip_norm is not None:
        found.append(privacy.gaussian(keys.clip_norm, keys.noise_multiplier))
    if keys.upload_norm is not None:
        found.append(fcojax.norm_bound(keys.upload_norm))
    return uploads.chain(*found)


def _numbers(key: str, value: Any) -> tuple[float, ...]:
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not values:
        raise ValueError(f"{key} is empty; pass at least one number.")
    check_values(key, values, Real)
    if len(set(values)) < len(values):
        raise ValueError(f"{key} is {values}; pass distinct numbers.")
    return values
