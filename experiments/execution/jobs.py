"""The jobs of a sweep: each has an algorithm and its grid; all are checked before any runs."""

import functools
import zlib
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from experiments.config.settings import OPTIMISERS, RATES, Settings
from experiments.study import Sweep, naming
from fcojax import Plan, clock, start, uploads
from fcojax.algorithms import Algorithm
from fcojax.extend import as_plan, on_disk, payload_bytes, require_run, take
from fcojax.problems import ClientData, Problem
from fcojax.transforms import Penalty
from fcojax.types import PyTree


class Job(NamedTuple):
    """One algorithm of a sweep.

    Attributes:
      label: its name in rows and figures.
      algorithm: built with the loss and the geometry of the sweep.
      grid: its hyperparameters, with a leading axis of points.
      train: its training clients.
      plan: who takes part in a round, and how much each works.
    """

    label: str
    algorithm: Algorithm
    grid: PyTree
    train: ClientData
    plan: Plan


def build(
    sweep: Sweep, config: ConfigDict, settings: Settings, problem: Problem, penalty: Penalty
) -> list[Job]:
    """Build and check all jobs of a sweep; raise ``ValueError`` for the first mistake."""
    mirror, manifold = sweep.mirror(config, penalty), sweep.manifold(config)
    geometry = {"penalty": penalty, "mirror": mirror, "manifold": manifold}
    jobs = []
    for label, factory in settings.algorithms.items():
        train, plan = problem.train, sweep.plan(config, settings.plan)
        if label in sweep.plans:
            train, own = sweep.plans[label](config, problem)
            own = as_plan(own)
            parts = ("work", "cohort", "uploads", "aggregator", "broadcast")
            plan = plan._replace(**{part: getattr(own, part) for part in parts})
        # A factory whose Hparams were set without takes() is called with only the loss.
        names = getattr(factory, "geometry", ())
        algorithm = factory(problem.loss, *(geometry[name] for name in names))
        if not isinstance(algorithm, Algorithm):
            raise ValueError(f"{label} returned a {type(algorithm).__name__}, not an Algorithm.")
        grid = jax.device_get(settings.grids[label])  # points are taken between blocks
        if settings.keys.deadline is not None:
            with naming("deadline", settings.keys.deadline):
                plan = _in_time(settings, algorithm, plan, take(grid, 0), problem, train)
        hparams = take(settings.scheduled(grid), 0)
        require_run(algorithm, plan, hparams, train, jax.random.key(0))
        if not on_disk(train):  # transforms depend on the uploads
            key = jax.random.key(0)
            begin = functools.partial(start, algorithm, key=key, plan=plan)
            params = jax.eval_shape(problem.init, key)
            jax.eval_shape(begin, hparams, params, train)
        jobs.append(Job(label, algorithm, grid, train, plan))
    return jobs


def _in_time(
    settings: Settings, algorithm: Algorithm, plan: Plan, hparams: PyTree, problem: Problem, data
) -> Plan:
    """Return a plan in which late uploads do not count."""
    assert settings.clock is not None and settings.keys.deadline is not None

    @jax.jit
    def sizes(hparams):
        return payload_bytes(algorithm, plan, hparams, problem.init(jax.random.key(0)), data)

    # If the strength of a compressor is swept, its first value decides for all points.
    down, up = map(float, sizes(hparams))
    steps = clock.num_steps(plan.work, data)
    times = settings.clock(data).client_seconds(data.num_clients, steps, down, up)
    # In front: it draws nothing, and losses draw by their place counted from the end of the chain.
    late = clock.deadline(times, settings.keys.deadline)
    return plan._replace(uploads=uploads.chain(late, plan.uploads))


def keys_of(job: Job, settings: Settings) -> jax.Array:
    """Return the key of each seed."""
    keys = jax.vmap(jax.random.key)(jnp.asarray(settings.keys.seeds))
    # The difference of two releases with equal noise would have no noise.
    if job.plan.uploads.noisy:
        keys = jax.vmap(jax.random.fold_in, (0, None))(keys, zlib.crc32(job.label.encode()))
    return keys


def hours_of(job: Job, settings: Settings) -> Callable[..., np.ndarray] | None:
    """Return ``(place of a seed, first, last, measures) -> hours`` of all points of a block.

    The block has the rounds from ``first`` to ``last``; ``None`` without a clock.
    """
    if settings.clock is None:
        return None
    laws, keys = settings.clock(job.train), keys_of(job, settings)

    def hours(place: int, first: int, last: int, seen: dict[str, np.ndarray]) -> np.ndarray:
        names = ("participants", "bytes_down", "bytes_up")
        block = {name: seen[name][:, place, None] for name in names} | {"round": [last]}
        return clock.seconds(laws, job.plan, job.train, keys[place], block, first)[..., 0] / 3600

    return hours


def described(problem: Problem, config: ConfigDict, seeds: tuple[int, ...]) -> str:
    """Describe the data in one sentence, for captions."""
    train = problem.train
    drawn = f"drawn from seed {config.get('data_seed', 0)}"
    if config.get("data_by_seed"):
        drawn += " plus the run's, anew for each"
    if file := config.get("data_dir") or config.get("data"):
        drawn = f"read from {file}"
    sizes = f"{train.num_clients:,} clients with {int(train.offsets[-1]):,} examples, {drawn}"
    rates = (f" {field} over rounds: {config[key]}." for key, field in RATES.items())
    changing = "".join(rate for rate in rates if not rate.endswith(": constant."))
    steps = "".join(f" {key}: {config[key]}." for key in OPTIMISERS if config[key] is not None)
    return f"Data: {sizes}; runs with seeds {', '.join(map(str, seeds))}.{changing}{steps}"
