"""The jobs of a sweep: an algorithm and its grid, checked, and then placed on the devices."""

import functools
import zlib
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from experiments.config import algorithms
from experiments.config.settings import Settings
from experiments.study import Sweep
from fcojax import Plan, start, uploads
from fcojax.algorithms import Algorithm
from fcojax.extend import Placed, as_plan, on_disk, place, require_run, take
from fcojax.problems import ClientData, Problem
from fcojax.transforms import Penalty
from fcojax.types import Key, PyTree

# Clients on disk are evaluated on a sample of at most this many after each block.
_SAMPLED = 1000


class Job(NamedTuple):
    """One algorithm of a sweep.

    Attributes:
      label: its name in rows and figures.
      algorithm: the algorithm.
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
    geometry = {
        "penalty": penalty,
        "mirror": sweep.mirror(config, penalty),
        "manifold": sweep.manifold(config),
    }
    jobs = []
    for label, factory in settings.algorithms.items():
        train, plan = problem.train, settings.plan
        plan = sweep.plan(config, plan)
        if label in sweep.plans:
            train, own = sweep.plans[label](config, problem)
            own = as_plan(own)
            names = ("work", "cohort", "codec", "aggregator")
            plan = plan._replace(**{name: getattr(own, name) for name in names})
        algorithm = algorithms.build(label, factory, problem.loss, geometry)
        if settings.broadcast is not None:
            algorithm = uploads.compressed_broadcast(algorithm, settings.broadcast)
        grid = jax.device_get(settings.grids[label])  # points are taken between blocks
        require_run(algorithm, plan, take(grid, 0), train, jax.random.key(0))
        if not on_disk(train):  # codec and aggregator depend on the uploads
            key = jax.random.key(0)
            begin = functools.partial(start, algorithm, key=key, plan=plan)
            params = jax.eval_shape(lambda: problem.init(jax.random.key(0)))
            jax.eval_shape(begin, take(grid, 0), params, train)
        jobs.append(Job(label, algorithm, grid, train, plan))
    return jobs


def placed(job: Job, problem: Problem, settings: Settings, observe: Callable) -> Placed:
    """Place a job on the devices.

    Args:
      job: the job.
      problem: the problem.
      settings: the settings of the sweep.
      observe: the measures after each block, on the clients and the validation clients.
    """
    keys = keys_of(settings.seeds)
    # The difference of two releases with the same noise would have no noise.
    if job.plan.aggregator.noisy:
        keys = jax.vmap(jax.random.fold_in, (0, None))(keys, zlib.crc32(job.label.encode()))
    train, validation = problem.train, problem.validation

    def context(data: ClientData) -> PyTree:
        if on_disk(train) and jax.process_count() == 1:
            places = np.linspace(0, train.num_clients - 1, min(train.num_clients, _SAMPLED))
            return train.select(np.unique(places.round().astype(np.int64))), validation
        return (data if job.train is train else train), validation

    return place(
        job.algorithm,
        job.grid,
        problem.init,
        job.train,
        keys,
        job.plan,
        ends=settings.ends(settings.num_rounds),
        observe=observe,
        context=context,
    )


def keys_of(seeds: tuple[int, ...]) -> Key:
    """Return one key for each seed."""
    return jax.vmap(jax.random.key)(jnp.asarray(seeds))


def described(problem: Problem, config: ConfigDict, seeds: tuple[int, ...]) -> str:
    """Describe the data in one sentence, for captions."""
    train = problem.train
    drawn = f"drawn from seed {config.get('data_seed', 0)}"
    if file := config.get("data_dir") or config.get("data"):
        drawn = f"read from {file}"
    sizes = f"{train.num_clients:,} clients with {int(train.offsets[-1]):,} examples, {drawn}"
    return f"Data: {sizes}; runs with seeds {', '.join(map(str, seeds))}."
