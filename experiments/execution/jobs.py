"""The jobs of a sweep: an algorithm and its grid, checked, and then made ready for the devices."""

import functools
import math
import pathlib
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from experiments.config import algorithms
from experiments.config.settings import Settings
from experiments.report.rows import points_of
from experiments.study import Sweep
from fcojax import Plan, State, Stream, look, read_model, start, tree, uploads
from fcojax.algorithms import Algorithm
from fcojax.devices import client_mesh, fastest_chunk_size, shard_clients, sized, spread
from fcojax.extend import (
    Program,
    advance_compiled,
    advance_donating,
    as_plan,
    decomposes_on_a_cpu,
    device_memory,
    halved,
    num_points,
    on_disk,
    on_mesh,
    padded,
    repeated,
    require_run,
    rules,
    runs_at_once,
    take,
    take_points,
    take_seeds,
)
from fcojax.problems import ClientData, Problem
from fcojax.transforms import Penalty
from fcojax.types import Key, PyTree

# From this many points on, a CPU runs a grid in two halves of one program. When half of the points
# have diverged, one half is left and nothing is compiled. Both halves read the same examples, so if
# all runs read more than this many numbers, a second program takes less time.
_POINTS_WORTH_HALVING, _NUMBERS_WORTH_COMPILING = 8, 1e11
# Clients on disk that take no more than this share of a device's memory are read once and kept.
KEPT = 0.125
# Clients on disk are evaluated on a sample of at most this many after each block.
_SAMPLED = 1000


class Job(NamedTuple):
    """One algorithm of a sweep.

    Attributes:
      label: its name in rows and figures.
      algorithm: the algorithm.
      grid: its hyperparameters, with a leading axis of points.
      train: the clients it trains on.
      plan: who takes part in a round, and how much each works.
    """

    label: str
    algorithm: Algorithm
    grid: PyTree
    train: ClientData
    plan: Plan


class PreparedJob(NamedTuple):
    """A job on the devices that there are.

    Attributes:
      job: what is run.
      problem: on what.
      keys: one key for each seed, the last one repeated where devices share the seeds.
      num_seeds: number of seeds without repeats.
      observe: what is measured after each block.
      data: the clients, spread over the devices.
      plan: the job's plan with every size chosen.
      names: for each point of the grid the values that identify it in rows.
      size: points of a part of the grid, whose states are in memory together.
      group: points that one call of the program runs; a block of a part is one call per group.
      context: the training clients of the sweep and its validation clients, for ``observe``;
        a sample of training clients that stay on disk.
      longest: the rounds of the longest block.
      stream: reads clients that stay on disk; ``None`` where they are in memory.
    """

    job: Job
    problem: Problem
    keys: Key
    num_seeds: int
    observe: Callable
    data: ClientData
    plan: Plan
    names: list[tuple[float, ...]]
    size: int
    group: int
    context: PyTree
    longest: int
    stream: Stream | None = None

    def groups(self, points: np.ndarray) -> list[np.ndarray]:
        """Return the points by call; the last one is repeated until all calls have equally many."""
        size = halved(self.group, points.size)
        if not self.shares_seeds:
            size += -size % self.data.num_sweep_shards
        parts = [points[first : first + size] for first in range(0, points.size, size)]
        return [padded(part, size) for part in parts]

    @property
    def shares_seeds(self) -> bool:
        """Whether devices share the seeds, as there are fewer points than devices."""
        return self.group < self.data.num_sweep_shards

    def places(self, points: np.ndarray) -> np.ndarray:
        """Return the points of all calls, of which the last ones may be the same."""
        return np.concatenate(self.groups(points))

    def start(self, points: np.ndarray) -> tuple[State, ...]:
        """Return the states of these points before the first round, one for each call."""
        return tuple(self._start(take(self.job.grid, group)) for group in self.groups(points))

    def _start(self, grid: PyTree) -> State:
        algorithm = self.job.algorithm
        if self.stream is not None:
            return self.stream.start(algorithm, grid, self.problem.init, self.keys)
        return start(algorithm, grid, self.problem.init, self.data, self.keys, self.job.plan)

    def shapes(self, grid: PyTree, data: ClientData, keys: Key) -> State:
        """Return the shapes of the states of a grid on these clients, for these seeds."""

        def begin(grid, data):
            algorithm, plan = self.job.algorithm, self.job.plan
            return start(algorithm, grid, self.problem.init, data, keys, plan)

        return jax.eval_shape(begin, grid, data)

    def look(
        self, points: np.ndarray, states: Sequence[State], donate: bool
    ) -> tuple[tuple[State, ...], list[PyTree]]:
        """Return the states of these points, and what is measured, by call as ``advance`` does.

        It runs zero rounds, which reuses the compiled program.
        """
        if self.stream is not None:
            (group,), (state,) = self.groups(points), states
            grid = take(self.job.grid, group)
            seen = look(self.job.algorithm, grid, state, self.observe, self.context)
            return (state,), [jax.tree.map(lambda leaf: leaf[:, :, None], seen)]
        advanced, histories = self.advance(points, states, 0, donate)
        params, first = _params(self.problem), take(self.job.grid, 0)
        measures = jax.eval_shape(self.observe, first, params, self.context)
        return advanced, [{name: seen[name] for name in measures} for seen in histories]

    def advance(
        self, points: np.ndarray, states: Sequence[State], num_rounds: int, donate: bool
    ) -> tuple[tuple[State, ...], list[PyTree]]:
        """Run a block of rounds, evaluated at its end; ``donate`` overwrites ``states``.

        Returns:
          The states, and for each call its history with axes [points, seeds, 1].
        """
        grids = [take(self.job.grid, group) for group in self.groups(points)]
        found = [
            self._advance(grid, state, num_rounds, donate)
            for grid, state in zip(grids, states, strict=True)
        ]
        return tuple(state for state, _ in found), [history for _, history in found]

    def _advance(
        self, grid: PyTree, state: State, num_rounds: int, donate: bool
    ) -> tuple[State, PyTree]:
        if self.stream is not None:
            return self.stream.advance(
                self.job.algorithm,
                grid,
                state,
                num_rounds=num_rounds,
                observe=self.observe,
                context=self.context,
                donate=donate,
            )
        compiled = advance_donating if donate else advance_compiled
        return compiled(self.program, grid, self.data, state, self.context, np.int32(num_rounds))

    @property
    def program(self) -> Program:
        """What is compiled, once for blocks of any length."""
        return Program(self.job.algorithm, self.plan, self.observe, 1, self.longest)

    def model(self, point: int, states: Sequence[State]) -> PyTree:
        """Return the model of one point, whose states these are."""
        (group,), (state,) = self.groups(np.array([point])), states
        return read_model(self.job.algorithm, take(self.job.grid, group), state)

    def without_padding(self, states: Sequence[State]) -> tuple[State, ...]:
        """Return the states without the clients and the seeds that fill up a mesh."""

        def cut(state: State) -> State:
            clients, residuals = jax.tree.map(
                lambda leaf: leaf[:, :, : self.data.num_clients], (state.clients, state.residuals)
            )
            state = state._replace(clients=clients, residuals=residuals)
            return self._with_seeds(state, self.num_seeds)

        return tuple(map(cut, states))

    def placed(self, states: State, stored: np.ndarray, points: np.ndarray) -> tuple[State, ...]:
        """Place states on the host, without padding, as ``start`` does.

        Args:
          states: the states.
          stored: the points that they are of.
          points: the points to place, which are among them.
        """
        data = self.data
        missing = data.clients_per_shard * data.num_shards - data.num_clients

        def filled(leaf):
            return np.concatenate([leaf, np.repeat(leaf[:, :, -1:], missing, axis=2)], axis=2)

        def of(group: np.ndarray) -> State:
            some = take_points(states, np.argmax(stored == group[:, None], axis=1))
            if missing:
                clients, residuals = jax.tree.map(filled, (some.clients, some.residuals))
                some = some._replace(clients=clients, residuals=residuals)
            return some

        groups = tuple(map(of, self.groups(points)))
        if data.mesh is None:  # clients on disk keep their states on the host
            return groups
        place = jax.jit(lambda state: on_mesh(self._with_seeds(state, self.keys.size), data))
        return tuple(map(place, groups))

    def _with_seeds(self, state: State, size: int) -> State:
        """Return a state with ``size`` seeds: without repeats, or with the last one repeated."""
        if self.keys.size == self.num_seeds:
            return state
        return take_seeds(state, np.minimum(np.arange(size), self.num_seeds - 1))


def build(
    sweep: Sweep, config: ConfigDict, settings: Settings, problem: Problem, penalty: Penalty
) -> list[Job]:
    """Build and check all jobs of a sweep; raise ``ValueError`` with one sentence."""
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
        if not on_disk(train):  # codec and aggregator depend on what is uploaded
            key = jax.random.key(0)
            begin = functools.partial(start, algorithm, key=key, plan=plan)
            jax.eval_shape(begin, take(grid, 0), _params(problem), train)
        jobs.append(Job(label, algorithm, grid, train, plan))
    return jobs


def prepare(
    job: Job, problem: Problem, settings: Settings, observe: Callable, remember: pathlib.Path
) -> PreparedJob:
    """Place a job on the devices, and choose how much of it runs side by side.

    Args:
      job: what to run.
      problem: on what.
      settings: of the sweep.
      observe: what is measured after each block.
      remember: the file in which timed chunk sizes are kept.
    """
    keys, first = keys_of(settings.seeds), take(job.grid, 0)
    if job.plan.aggregator.noisy:  # two releases with the same noise would tell their difference
        keys = jax.vmap(jax.random.fold_in, (0, None))(keys, zlib.crc32(job.label.encode()))
    points, stream = num_points(job.grid), None
    params = _params(problem)
    if on_disk(job.train) and jax.process_count() > 1:
        # Each process reads the clients of its own devices, and keeps them.
        data = shard_clients(job.train, client_mesh())
    elif on_disk(job.train) and tree.num_bytes(job.train.examples) > KEPT * device_memory():
        every = 1 if settings.eval_all_until else settings.eval_every
        num_seeds = len(settings.seeds)
        stream = Stream(job.train, job.plan, eval_every=every, num_seeds=num_seeds)
        data = stream.shapes()
    else:
        if on_disk(job.train):
            job = job._replace(train=job.train.to_device())
        data = spread(
            job.algorithm,
            first,
            params,
            job.train,
            job.plan,
            num_points=points,
            num_seeds=keys.size,
        )
    names = [tuple(point.values()) for point in points_of(job.grid)]
    context = _context(job, problem, data)
    prepared = PreparedJob(
        job,
        problem,
        keys,
        keys.size,
        observe,
        data,
        job.plan,
        names,
        points,
        points,
        context,
        settings.eval_every,
        stream,
    )
    prepared = _with_sizes(prepared, job.plan, settings)
    timed = settings.time_chunks and job.plan.client_chunk_size is None and stream is None
    # Chunks that are timed have more clients side by side than this program.
    if data.mesh is not None and decomposes_on_a_cpu(_trace(prepared), fewest=1 if timed else 2):
        context = _context(job, problem, job.train)
        prepared = prepared._replace(data=job.train, context=context)
        prepared = _with_sizes(prepared, job.plan, settings)
    if timed:
        chunk = fastest_chunk_size(
            job.algorithm,
            first,
            problem.init(keys[0]),
            prepared.data,
            job.plan,
            num_points=min(prepared.group, points),
            num_seeds=keys.size,
            remember=remember,
        )
        plan = job.plan._replace(client_chunk_size=chunk)
        prepared = _with_sizes(prepared, plan, settings)
    if stream is not None:
        prepared = prepared._replace(data=job.train)
    return prepared


def _trace(prepared: PreparedJob) -> jax.stages.Traced:
    """Trace the program of a job on a mesh, for the arguments that its first part will have."""
    (points, *_) = prepared.groups(np.arange(min(prepared.size, len(prepared.names))))
    grid = take(prepared.job.grid, points)
    assert prepared.data.mesh is not None
    everywhere = jax.sharding.NamedSharding(prepared.data.mesh, jax.sharding.PartitionSpec())
    states = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere),
        prepared.shapes(grid, prepared.data, prepared.keys),
    )
    arguments = grid, prepared.data, states, prepared.context, np.int32(0)
    return advance_donating.trace(prepared.program, *arguments)


def _with_sizes(prepared: PreparedJob, plan: Plan, settings: Settings) -> PreparedJob:
    """Choose how many points and clients run side by side, unless the plan says so."""
    _, algorithm, grid, *_ = prepared.job
    data = prepared.data
    params = _params(prepared.problem)
    size, num_seeds = runs_at_once(algorithm, grid, params, data, plan, prepared.num_seeds)
    keys, group, shards = repeated(prepared.keys, num_seeds), size, data.num_sweep_shards
    chosen = plan.point_chunk_size is not None or prepared.stream is not None
    short = _numbers_read(prepared, plan, settings) <= _NUMBERS_WORTH_COMPILING
    small = size < max(_POINTS_WORTH_HALVING, shards)
    if short and not (small or chosen or rules().few_kernels):
        half = -(-min(size, num_points(grid)) // 2)
        group = half + -half % shards
    plan = plan._replace(point_chunk_size=group)
    plan = sized(algorithm, take(grid, 0), params, data, plan, num_points=num_points(grid))
    return prepared._replace(keys=keys, plan=plan, size=size, group=group)


def _numbers_read(prepared: PreparedJob, plan: Plan, settings: Settings) -> float:
    """Return how many numbers of the clients' examples the local steps of all runs read."""
    data, work = prepared.data, plan.work
    num_runs = num_points(prepared.job.grid) * len(settings.seeds)
    rows_of_step = min(work.batch_size or data.max_size, data.max_size)
    rows = plan.cohort.size(data.num_clients) * work.max_steps(data.max_size) * rows_of_step
    of_row = sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(data.examples))
    return float(settings.num_rounds) * num_runs * rows * of_row


def _context(job: Job, problem: Problem, data: ClientData) -> PyTree:
    train = problem.train
    if on_disk(train) and jax.process_count() == 1:
        places = np.linspace(0, train.num_clients - 1, min(train.num_clients, _SAMPLED))
        return train.select(np.unique(places.round().astype(np.int64))), problem.validation
    return (data if job.train is train else train), problem.validation


def _params(problem: Problem) -> PyTree:
    """Return the shapes of the start point."""
    return jax.eval_shape(lambda: problem.init(jax.random.key(0)))


def keys_of(seeds: tuple[int, ...]) -> Key:
    """Return one key for each seed."""
    return jax.vmap(jax.random.key)(jnp.asarray(seeds))


def described(problem: Problem, config: ConfigDict, seeds: tuple[int, ...]) -> str:
    """Describe the data in one sentence, for captions."""
    train = problem.train
    drawn = f"drawn from seed {config.get('data_seed', 0)}"
    if config.get("data_dir"):
        drawn = f"read from {config.data_dir}"
    sizes = f"{train.num_clients:,} clients with {int(train.offsets[-1]):,} examples, {drawn}"
    return f"Data: {sizes}; runs with seeds {', '.join(map(str, seeds))}."
