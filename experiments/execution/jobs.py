"""The jobs of a sweep: an algorithm and its grid, checked, and then made ready for the devices."""

import functools
import pathlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from experiments.config import algorithms
from experiments.config.settings import Settings
from experiments.report.rows import points_of
from experiments.study import Sweep
from fcojax import tree
from fcojax.algorithms import Algorithm
from fcojax.algorithms.fed_dual_avg import FedDualAvgHparams
from fcojax.engine.compaction import padded, take_points
from fcojax.engine.grid import num_points, take
from fcojax.engine.optimality import VIOLATION, kkt_violation
from fcojax.engine.placement.chunk_size import device_memory, sized
from fcojax.engine.placement.mesh import client_mesh, decomposes_on_a_cpu, shard_clients, spread
from fcojax.engine.plan import Plan, as_plan
from fcojax.engine.program import Program
from fcojax.engine.state import State, on_mesh
from fcojax.engine.stepper import advance_compiled, advance_donating, look, read_model, start
from fcojax.engine.stream import Stream, on_disk
from fcojax.engine.sweep import points_at_once
from fcojax.engine.tuning import fastest_chunk_size
from fcojax.engine.validation import require_run
from fcojax.problems import ClientData, Problem, population_loss
from fcojax.reference import optimum
from fcojax.transforms import Penalty
from fcojax.types import Key, PyTree

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
      keys: one key for each seed.
      observe: what is measured after each block.
      data: the clients, spread over the devices.
      plan: the job's plan with every size chosen.
      names: for each point of the grid the values that identify it in rows.
      size: points that run side by side.
      context: the training clients of the sweep and its validation clients, for ``observe``;
        a sample of training clients that stay on disk.
      longest: the rounds of the longest block.
      stream: reads clients that stay on disk; ``None`` where they are in memory.
    """

    job: Job
    problem: Problem
    keys: Key
    observe: Callable
    data: ClientData
    plan: Plan
    names: list[tuple[float, ...]]
    size: int
    context: PyTree
    longest: int
    stream: Stream | None = None

    def places(self, points: np.ndarray) -> np.ndarray:
        """Return the points, the last of them repeated until all devices have equally many."""
        return padded(points, points.size + -points.size % self.data.num_sweep_shards)

    def hparams(self, points: np.ndarray) -> PyTree:
        """Return the grid at ``places(points)``."""
        return take(self.job.grid, self.places(points))

    def start(self, points: np.ndarray) -> State:
        """Return the states of these points before the first round."""
        algorithm, grid = self.job.algorithm, self.hparams(points)
        if self.stream is not None:
            return self.stream.start(algorithm, grid, self.problem.init, self.keys)
        return start(algorithm, grid, self.problem.init, self.data, self.keys, self.job.plan)

    def shapes(self, grid: PyTree, data: ClientData) -> State:
        """Return the shapes of the states of a grid on these clients."""

        def begin(grid, data):
            algorithm, plan = self.job.algorithm, self.job.plan
            return start(algorithm, grid, self.problem.init, data, self.keys, plan)

        return jax.eval_shape(begin, grid, data)

    def look(self, points: np.ndarray, states: State, donate: bool) -> tuple[State, PyTree]:
        """Return the states of these points, and what is measured, with axes [points, seeds].

        Without rounds it is the program that runs them, because another takes long to compile.
        """
        grid = self.hparams(points)
        if self.stream is not None:
            return states, look(self.job.algorithm, grid, states, self.observe, self.context)
        states, seen = self.advance(points, states, 0, donate)
        params, first = _params(self.problem), take(self.job.grid, 0)
        measures = jax.eval_shape(self.observe, first, params, self.context)
        return states, {name: seen[name][:, :, 0] for name in measures}

    def advance(
        self, points: np.ndarray, states: State, num_rounds: int, donate: bool
    ) -> tuple[State, PyTree]:
        """Run a block of rounds, evaluated at its end; ``donate`` overwrites ``states``."""
        algorithm, grid = self.job.algorithm, self.hparams(points)
        if self.stream is not None:
            return self.stream.advance(
                algorithm, grid, states, num_rounds=num_rounds, observe=self.observe,
                context=self.context, donate=donate,
            )  # fmt: skip
        compiled = advance_donating if donate else advance_compiled
        return compiled(self.program, grid, self.data, states, self.context, np.int32(num_rounds))

    @property
    def program(self) -> Program:
        """What is compiled, once for blocks of any length."""
        return Program(self.job.algorithm, self.plan, self.observe, 1, self.longest)

    def model(self, point: int, states: State) -> PyTree:
        """Return the model of one point, whose state this is."""
        return read_model(self.job.algorithm, self.hparams(np.array([point])), states)

    def without_padding(self, states: State) -> State:
        """Return the states without the clients that fill up a mesh."""
        clients, residuals = jax.tree.map(
            lambda leaf: leaf[:, :, : self.data.num_clients], (states.clients, states.residuals)
        )
        return states._replace(clients=clients, residuals=residuals)

    def at_places(self, states: State, places: np.ndarray) -> State:
        """Place some of the states on the host, with rows for all clients, as ``start`` does."""
        data, states = self.data, take_points(states, places)
        missing = data.clients_per_shard * data.num_shards - data.num_clients

        def filled(leaf):
            return np.concatenate([leaf, np.repeat(leaf[:, :, -1:], missing, axis=2)], axis=2)

        if missing:
            clients, residuals = jax.tree.map(filled, (states.clients, states.residuals))
            states = states._replace(clients=clients, residuals=residuals)
        if data.mesh is None:  # clients on disk keep their states on the host
            return states
        return jax.jit(lambda states: on_mesh(states, data, ("sweep", None)))(states)


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
        if plan.uplink is None:
            plan = plan._replace(uplink=sweep.uplink(config))
        if label in sweep.plans:
            train, own = sweep.plans[label](config, problem)
            own = as_plan(own)
            names = ("work", "cohort", "uplink", "downlink")
            plan = plan._replace(**{name: getattr(own, name) for name in names})
        algorithm = algorithms.build(label, factory, problem.loss, geometry)
        grid = jax.device_get(settings.grids[label])  # points are taken between blocks
        require_run(algorithm, plan, take(grid, 0), train, jax.random.key(0))
        linked = plan.uplink is not None or plan.downlink is not None
        if linked and not on_disk(train):  # they depend on what is uploaded
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
        data = spread(job.algorithm, first, params, job.train, job.plan, num_points=points)
    names = [tuple(point.values()) for point in points_of(job.grid)]
    context = _context(job, problem, data)
    prepared = PreparedJob(
        job, problem, keys, observe, data, job.plan, names, points, context, settings.eval_every
    )
    prepared = _with_sizes(prepared, job.plan)
    if data.mesh is not None and decomposes_on_a_cpu(_trace(prepared)):
        context = _context(job, problem, job.train)
        prepared = _with_sizes(prepared._replace(data=job.train, context=context), job.plan)
    if settings.time_chunks and job.plan.client_chunk_size is None and stream is None:
        chunk = fastest_chunk_size(
            job.algorithm, first, problem.init(keys[0]), prepared.data, job.plan,
            num_points=min(prepared.size, points), num_seeds=keys.size, remember=remember,
        )  # fmt: skip
        prepared = _with_sizes(prepared, job.plan._replace(client_chunk_size=chunk))
    if stream is not None:
        prepared = prepared._replace(data=job.train, stream=stream)
    return prepared


def _trace(prepared: PreparedJob) -> jax.stages.Traced:
    """Trace the program of a job on a mesh, for the arguments that its first part will have."""
    grid = prepared.hparams(np.arange(min(prepared.size, len(prepared.names))))
    assert prepared.data.mesh is not None
    everywhere = jax.sharding.NamedSharding(prepared.data.mesh, jax.sharding.PartitionSpec())
    states = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere),
        prepared.shapes(grid, prepared.data),
    )
    arguments = grid, prepared.data, states, prepared.context, np.int32(0)
    return advance_donating.trace(prepared.program, *arguments)


def _with_sizes(prepared: PreparedJob, plan: Plan) -> PreparedJob:
    """Choose how many points and clients run side by side, unless the plan says so."""
    _, algorithm, grid, *_ = prepared.job
    data, keys = prepared.data, prepared.keys
    params = _params(prepared.problem)
    size = points_at_once(algorithm, grid, params, data, plan, keys.size)
    chosen = plan._replace(point_chunk_size=size)
    plan = sized(algorithm, take(grid, 0), params, data, chosen, num_points=num_points(grid))
    return prepared._replace(plan=plan, size=size)


def _context(job: Job, problem: Problem, data: ClientData) -> PyTree:
    train = problem.train
    if on_disk(train) and jax.process_count() == 1:
        places = np.linspace(0, train.num_clients - 1, min(train.num_clients, _SAMPLED))
        return train.select(np.unique(places.round().astype(np.int64))), problem.validation
    return (data if job.train is train else train), problem.validation


def _params(problem: Problem) -> PyTree:
    """Return the shapes of the start point."""
    return jax.eval_shape(lambda: problem.init(jax.random.key(0)))


def observer(
    problem: Problem, penalty: Penalty, default_scale: float, certificate: bool = False
) -> Callable:
    """Return what is measured after each block, on the training and the validation clients.

    Args:
      problem: loss and measures.
      penalty: psi.
      default_scale: the strength in the objective of algorithms without a penalty.
      certificate: whether to measure the KKT violation as well, which takes a gradient.
    """

    def observe(hparams, params, context: tuple[ClientData, ClientData | None]):
        train, validation = context
        scale = getattr(hparams, "penalty_scale", default_scale)
        loss = population_loss(problem.loss, params, train)
        seen = {"objective": loss + penalty.value(params, scale), "loss": loss}
        if validation is not None:
            seen["validation_loss"] = population_loss(problem.loss, params, validation)
        if certificate:
            seen[VIOLATION] = kkt_violation(problem.loss, penalty, scale, params, train)
        return seen | problem.measures(params)

    return observe


def solve_optima(
    problem: Problem, penalty: Penalty, scales: tuple[float, ...]
) -> Iterator[tuple[float, dict[str, float]]]:
    """Yield for each strength of the penalty what is measured at the optimum."""
    observe = jax.jit(observer(problem, penalty, scales[0]))
    for scale in scales:
        found = optimum(problem, penalty, scale, tolerance=1e-7)
        params = jax.tree.map(jnp.asarray, found.params)
        hparams = FedDualAvgHparams(penalty_scale=scale)
        seen = observe(hparams, params, (problem.train, problem.validation))
        measures = {name: float(value) for name, value in seen.items() if jnp.ndim(value) == 0}
        yield scale, measures | {"objective": float(found.objective)}


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


def columns(problem: Problem, sweep: Sweep) -> list[str]:
    """Return the measures by which points can be ranked."""
    measures = jax.eval_shape(lambda key: problem.measures(problem.init(key)), jax.random.key(0))
    found = ["objective", "loss", *measures]
    if sweep.solve_optimum:
        found.append("suboptimality")
    if problem.validation is not None:
        found.append("validation_loss")
    return list(dict.fromkeys(found))
