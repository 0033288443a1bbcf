"""An entry of an experiment made ready to run: on which devices, and how much side by side."""

import pathlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.entries import Entry
from experiments.recorder import points_of
from experiments.settings import Settings
from fcojax import tree
from fcojax.algorithms.fed_avg import PenalisedRates
from fcojax.engine.grid import num_points, take
from fcojax.engine.memory import device_memory
from fcojax.engine.plan import Plan
from fcojax.engine.reference import optimum
from fcojax.engine.sharding import client_mesh, decomposes_on_a_cpu, shard_clients, spread
from fcojax.engine.state import State
from fcojax.engine.stepper import advance_donated, start
from fcojax.engine.stream import Stream, on_disk
from fcojax.engine.sweep import pad, points_at_once, shapes_of
from fcojax.engine.tuning import fastest_chunk_size
from fcojax.problems import ClientData, Problem, population_loss
from fcojax.transforms import Penalty
from fcojax.types import Key, PyTree

# Clients on disk that take no more than this share of a device's memory are read once and kept.
KEPT = 0.125
# Of clients that are on disk so many are looked at after a block, wherever they are kept.
LOOKED_AT = 1000


class Line(NamedTuple):
    """An entry of an experiment, made ready to run.

    Attributes:
      entry: what it is.
      data: its clients, spread over the devices.
      plan: how they work, with every size chosen.
      names: of each point of the grid, the values that rows call it by.
      size: points that run side by side.
      context: what is looked at: all training clients, whoever this line trains, and the others;
        of training clients that are left on disk a sample.
      stream: what reads clients that stay on disk, ``None`` where they are in memory.
    """

    entry: Entry
    data: ClientData
    plan: Plan
    names: list[tuple[float, ...]]
    size: int
    context: PyTree
    stream: Stream | None = None

    def start(
        self, grid: PyTree, problem: Problem, keys: Key, data: ClientData | None = None
    ) -> State:
        """The states of these points before the first round, by default on the line's devices."""
        if data is None and self.stream is not None:
            return self.stream.start(self.entry.algorithm, grid, problem.init, keys)
        data, entry = data or self.data, self.entry
        return start(entry.algorithm, grid, problem.init, data, keys, entry.plan)


def ready(
    entry: Entry,
    problem: Problem,
    settings: Settings,
    keys: Key,
    observe: Callable,
    remember: pathlib.Path,
) -> Line:
    """The line on the devices there are, in parts that fit into their memory.

    ``remember`` is the file that timed chunk sizes are kept in.
    """
    first, points = take(entry.grid, 0), num_points(entry.grid)
    params = jax.eval_shape(problem.init, keys[0])
    names = [tuple(point.values()) for point in points_of(entry.grid)]
    stream = None
    if on_disk(entry.train) and jax.process_count() > 1:
        # Each process reads the clients of its own devices, and keeps them.
        data = shard_clients(entry.train, client_mesh())
    elif on_disk(entry.train) and tree.num_bytes(entry.train.examples) > KEPT * device_memory():
        stream = Stream(entry.train, entry.plan, settings.eval_every, len(settings.seeds))
        data = stream.shapes()
    else:
        if on_disk(entry.train):
            entry = entry._replace(train=entry.train.to_device())
        data = spread(entry.algorithm, first, params, entry.train, entry.plan, num_points=points)
    line = Line(entry, data, entry.plan, names, points, _context(entry, problem, data))

    def begun(grid):
        def start(grid, data):
            return line.start(grid, problem, keys, data)

        return jax.eval_shape(start, grid, line.data)

    def trace(size):
        grid = pad(entry.grid, size)
        states = begun(grid)
        shapes = shapes_of((grid, line.data, states, line.context))
        return advance_donated.trace(
            entry.algorithm, entry.plan, observe, 1, settings.eval_every, *shapes
        )

    if data.mesh is not None and decomposes_on_a_cpu(trace(2 * data.num_sweep_shards)):
        line = line._replace(data=entry.train, context=_context(entry, problem, entry.train))

    size = entry.plan.point_chunk_size
    if size is None:
        one = begun(pad(entry.grid, 1))
        size = points_at_once(
            lambda size: trace(size).lower(), points, tree.num_bytes(one), line.data
        )
    plan = entry.plan
    if settings.time_chunks and plan.client_chunk_size is None and stream is None:
        chunk = fastest_chunk_size(
            entry.algorithm, first, problem.init(keys[0]), line.data, plan,
            num_points=min(size, points), num_seeds=len(settings.seeds), remember=remember,
        )  # fmt: skip
        plan = plan._replace(client_chunk_size=chunk)
    if stream is not None:
        line = line._replace(data=entry.train, stream=stream)
    return line._replace(plan=plan, size=size)


def _context(entry: Entry, problem: Problem, data: ClientData) -> PyTree:
    if on_disk(problem.train) and jax.process_count() == 1:
        return sample_of(problem.train), problem.validation
    return (data if entry.train is problem.train else problem.train), problem.validation


def sample_of(train: ClientData) -> ClientData:
    """At most so many of the clients, evenly spaced, in memory."""
    places = np.linspace(0, train.num_clients - 1, min(train.num_clients, LOOKED_AT))
    return train.select(np.unique(places.round().astype(np.int64)))


def observer(problem: Problem, penalty: Penalty, default_scale: float):
    """What is looked at after every block, given the training and the validation clients.

    Algorithms without a penalty are judged with ``default_scale``.
    """

    def observe(hparams, params, context: tuple[ClientData, ClientData | None]):
        train, validation = context
        scale = getattr(hparams, "penalty_scale", default_scale)
        loss = population_loss(problem.loss, params, train)
        seen = {"objective": loss + penalty.value(params, scale), "loss": loss}
        if validation is not None:
            seen["validation_loss"] = population_loss(problem.loss, params, validation)
        return seen | problem.measures(params)

    return observe


def solve_optima(
    problem: Problem, penalty: Penalty, scales: tuple[float, ...]
) -> Iterator[tuple[float, dict[str, float]]]:
    """For each strength of the penalty all that is measured at the optimum, one after the other."""
    observe = jax.jit(observer(problem, penalty, scales[0]))
    for scale in scales:
        found = optimum(problem, penalty, scale, tolerance=1e-7)
        params = jax.tree.map(jnp.asarray, found.params)
        hparams = PenalisedRates(penalty_scale=scale)
        seen = observe(hparams, params, (problem.train, problem.validation))
        measures = {name: float(value) for name, value in seen.items() if jnp.ndim(value) == 0}
        yield scale, measures | {"objective": float(found.objective)}


def keys_of(seeds: tuple[int, ...]) -> Key:
    """One key for each seed."""
    return jax.vmap(jax.random.key)(jnp.asarray(seeds))
