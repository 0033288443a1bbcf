"""A sweep block by block: placed on the devices once, then run from evaluation to evaluation.

This is for callers that write results and save states while a sweep runs, or resume a sweep; the
rules of ``blocks`` hold.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from fcojax import tree
from fcojax.algorithms.base import Algorithm
from fcojax.engine.blocks import (
    Block,
    blocks,
    halved,
    join_points,
    padded,
    take_points,
    take_seeds,
)
from fcojax.engine.hparams import num_points, take
from fcojax.engine.placement.chunk_size import device_memory, sized
from fcojax.engine.placement.mesh import client_mesh, decomposes_on_a_cpu, shard_clients, spread
from fcojax.engine.plan import Plan, Program
from fcojax.engine.state import Observe, State, on_mesh
from fcojax.engine.stepper import advance_donating, look, start
from fcojax.engine.stream import Stream, on_disk
from fcojax.engine.sweep import repeated, runs_at_once
from fcojax.problems.clients import ClientData
from fcojax.types import Key, Params, PyTree
from fcojax.xla.rules import rules

# From this many points on, a CPU runs a grid in two halves of one program. When half of the points
# have diverged, one half is left and nothing is compiled. Both halves read the same examples, so if
# all runs read more than this many numbers, a second program takes less time.
_POINTS_WORTH_HALVING, _NUMBERS_WORTH_COMPILING = 8, 1e11
# Clients on disk that take no more than this share of a device's memory are read once and kept.
KEPT = 0.125


class Placed(NamedTuple):
    """A sweep placed on the available devices, with every size chosen.

    Attributes:
      algorithm: the algorithm of all runs.
      grid: its hyperparameters on the host, with a leading axis of points.
      init: ``(key) -> params``, the start point.
      train: the clients before they were spread over devices.
      data: the clients on the devices.
      keys: one key for each seed, the last one repeated where devices share the seeds.
      num_seeds: number of seeds without repeats.
      plan: how rounds are run.
      observe: the function that is evaluated after each block.
      context: the arrays that ``observe`` needs.
      longest: the rounds of the longest block. One program runs blocks of any length up to it.
      size: points whose states fit into memory together, the most that ``sweep_blocks`` takes.
      group: points that one call of the program runs. A block is one call for each group.
      stream: reads clients that stay on disk; ``None`` where they are in memory.
    """

    algorithm: Algorithm
    grid: PyTree
    init: Callable[[Key], Params]
    train: ClientData
    data: ClientData
    keys: Key
    num_seeds: int
    plan: Plan
    observe: Observe
    context: PyTree
    longest: int
    size: int
    group: int
    stream: Stream | None = None

    def shapes(self, points: np.ndarray) -> State:
        """Return the shapes of the state of these points, as in a ``Block``."""
        return _shapes(self, take(self.grid, points), self.train, self.keys[: self.num_seeds])


def place(
    algorithm: Algorithm,
    grid: PyTree,
    init: Callable[[Key], Params],
    data: ClientData,
    keys: Key,
    plan: Plan,
    *,
    ends: Sequence[int],
    observe: Observe,
    context: Callable[[ClientData], PyTree] = lambda data: None,
) -> Placed:
    """Place a sweep on the devices, and choose how much of it runs side by side.

    Args:
      algorithm: the algorithm of all runs.
      grid: its hyperparameters, with a leading axis of points.
      init: ``(key) -> params``, the start point.
      data: the clients, on one device or on disk.
      keys: a vector of PRNG keys, one for each seed.
      plan: how rounds are run.
      ends: the rounds at which blocks end, up to the last round of the run.
      observe: ``(hparams, model, context) -> dict`` of arrays, or a ``StateObserver``, evaluated
        after each block.
      context: ``(data) -> context`` of ``observe``, from the placed clients.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> grid = fcojax.grid.product(fed_avg.hparams_type, client_lr=[0.25, 0.5, 1.0])
      >>> placed = place(
      ...     fed_avg, grid, lambda key: jnp.array(0.0), data, jax.random.key(0)[None],
      ...     fcojax.Plan(fcojax.local_steps(1)), ends=[2, 4],
      ...     observe=lambda hparams, w, context: {"w": w})
      >>> placed.longest
      2
    """
    grid = jax.device_get(grid)  # points are taken between blocks
    first, points, params = take(grid, 0), num_points(grid), _params(init)
    lengths, stream = np.diff([0, *ends]), None
    if on_disk(data) and jax.process_count() > 1:
        # Each process reads the clients of its own devices, and keeps them.
        there = shard_clients(data, client_mesh())
    elif on_disk(data) and tree.num_bytes(data.examples) > KEPT * device_memory():
        every = int(np.gcd.reduce(lengths))
        stream = Stream(data, plan, eval_every=every, num_seeds=keys.size)
        there = stream.shapes()
    else:
        data = data.to_device() if on_disk(data) else data
        sizes = {"num_points": points, "num_seeds": keys.size}
        there = spread(algorithm, first, params, data, plan, **sizes)
    rest = plan, observe, context(there), int(lengths.max()), points, points, stream
    placed = Placed(algorithm, grid, init, data, there, keys, keys.size, *rest)
    placed = _with_sizes(placed, plan, ends[-1])
    if there.mesh is not None and decomposes_on_a_cpu(_trace(placed)):
        placed = placed._replace(data=data, context=context(data))
        placed = _with_sizes(placed, plan, ends[-1])
    return placed if stream is None else placed._replace(data=data)


def sweep_blocks(
    placed: Placed,
    points: np.ndarray,
    ends: Sequence[int],
    *,
    state: State | None = None,
    stored: np.ndarray | None = None,
    is_over: Callable[[int, int], bool] = lambda point, rounds: False,
    wants_state: Callable[[], bool] = lambda: False,
) -> Iterator[Block]:
    """Run some points of a sweep, and yield block after block, the last one with its state.

    Without ``state`` the first block has no rounds: it evaluates the start point.

    Args:
      placed: the sweep.
      points: the points to run, as indices of the grid.
      ends: the rounds at which blocks end, counted from the start of the run, up to the last round
        of these points.
      state: the state to continue from, taken from a ``Block``, on the host.
      stored: the points that ``state`` holds, which include ``points``.
      is_over: ``(point, rounds)``, whether a point had diverged by this round; see ``blocks``.
      wants_state: whether to yield the block that was dispatched last with its state.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> grid = fcojax.grid.product(fed_avg.hparams_type, client_lr=[0.5, 1.0])
      >>> placed = place(
      ...     fed_avg, grid, lambda key: jnp.array(0.0), data, jax.random.key(0)[None],
      ...     fcojax.Plan(fcojax.local_steps(1)), ends=[1, 2],
      ...     observe=lambda hparams, w, context: {"w": w})
      >>> for block in sweep_blocks(placed, np.arange(2), [1, 2]):
      ...     print(block.rounds, block.history["w"].tolist())
      0 [[0.0], [0.0]]
      1 [[1.0], [2.0]]
      2 [[1.5], [2.0]]
    """
    if state is None:
        states = _start(placed, points)
        states, histories = _look(placed, points, states)
        yield Block(0, points, _joined(histories, points))
    else:
        assert stored is not None
        states = _put(placed, state, stored, points)

    def advance(points, states, first, last):
        return _advance_all(placed, points, states, last - first)

    def keep(points, states, alive):
        return _put(placed, jax.device_get(_collected(placed, points, states)), points, alive)

    given = {"points": points, "is_over": is_over, "keep": keep, "wants_state": wants_state}
    for block in blocks(advance, states, ends, first=int(states[0].round), **given):
        history = _joined(block.history, block.points)  # waits for it, while the next is computed
        if block.state is None:
            yield block._replace(history=history)
        else:
            state = _collected(placed, block.points, block.state)
            yield block._replace(history=history, state=state)


def _groups(placed: Placed, points: np.ndarray) -> list[np.ndarray]:
    """Split the points into one group per call; the last group is filled up with its last point."""
    size, shards = halved(placed.group, points.size), placed.data.num_sweep_shards
    if placed.group >= shards:  # with fewer points than devices, devices share the seeds
        size += -size % shards
    parts = [points[first : first + size] for first in range(0, points.size, size)]
    return [padded(part, size) for part in parts]


def _start(placed: Placed, points: np.ndarray) -> tuple[State, ...]:
    """Return the states of these points before the first round, one for each call."""
    grids = [take(placed.grid, group) for group in _groups(placed, points)]
    algorithm, init, keys, plan = placed.algorithm, placed.init, placed.keys, placed.plan
    if placed.stream is not None:
        return tuple(placed.stream.start(algorithm, grid, init, keys) for grid in grids)
    return tuple(start(algorithm, grid, init, placed.data, keys, plan) for grid in grids)


def _look(
    placed: Placed, points: np.ndarray, states: Sequence[State]
) -> tuple[tuple[State, ...], list[PyTree]]:
    """Evaluate the states by a block of zero rounds, which needs no other program."""
    if placed.stream is not None:
        (group,), (state,) = _groups(placed, points), states
        grid = take(placed.grid, group)
        seen = look(placed.algorithm, grid, state, placed.observe, placed.context)
        return (state,), [jax.tree.map(lambda leaf: leaf[:, :, None], seen)]
    advanced, histories = _advance_all(placed, points, states, 0)
    grid = take(placed.grid, _groups(placed, points)[0])
    measures = jax.eval_shape(
        lambda state: look(placed.algorithm, grid, state, placed.observe, placed.context),
        advanced[0],
    )
    return advanced, [{name: seen[name] for name in measures} for seen in histories]


def _advance_all(
    placed: Placed, points: np.ndarray, states: Sequence[State], num_rounds: int
) -> tuple[tuple[State, ...], list[PyTree]]:
    """Dispatch a block; return for each call its state, and its history [points, seeds, 1]."""
    grids = [take(placed.grid, group) for group in _groups(placed, points)]
    found = [
        _advance(placed, grid, state, num_rounds) for grid, state in zip(grids, states, strict=True)
    ]
    return tuple(state for state, _ in found), [history for _, history in found]


def _advance(placed: Placed, grid: PyTree, state: State, num_rounds: int) -> tuple[State, PyTree]:
    if placed.stream is not None:
        options = {"observe": placed.observe, "context": placed.context, "donate": True}
        return placed.stream.advance(
            placed.algorithm, grid, state, num_rounds=num_rounds, **options
        )
    rounds = np.int32(num_rounds)
    return advance_donating(_program(placed), grid, placed.data, state, placed.context, rounds)


def _program(placed: Placed) -> Program:
    """Return the program, which is compiled once for blocks of any length."""
    return Program(placed.algorithm, placed.plan, placed.observe, 1, placed.longest)


def _joined(histories: Sequence[PyTree], points: np.ndarray) -> dict[str, np.ndarray]:
    """Return the histories of all calls as one on the host, without repeated points."""
    seen = jax.device_get(_gathered(histories))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: points.size, :, 0], *seen)


def _collected(placed: Placed, points: np.ndarray, states: Sequence[State]) -> State:
    """Return the states of all calls as one, without padded points, clients and seeds."""

    def cut(state: State) -> State:
        clients, residuals = jax.tree.map(
            lambda leaf: leaf[:, :, : placed.data.num_clients], (state.clients, state.residuals)
        )
        if placed.stream is not None:  # the stream overwrites these arrays
            clients, residuals = jax.tree.map(np.array, (clients, residuals))
        return _with_seeds(placed, state._replace(clients=clients, residuals=residuals), False)

    whole = join_points(_gathered(tuple(map(cut, states))))
    calls = _groups(placed, points)
    if sum(call.size for call in calls) == points.size:
        return whole
    return take_points(whole, np.arange(points.size))


def _put(placed: Placed, state: State, stored: np.ndarray, points: np.ndarray) -> tuple[State, ...]:
    """Return some points of a collected state, one state for each call, as ``_start`` does."""
    data = placed.data
    missing = data.clients_per_shard * data.num_shards - data.num_clients

    def filled(leaf):
        return np.concatenate([leaf, np.repeat(leaf[:, :, -1:], missing, axis=2)], axis=2)

    def of(group: np.ndarray) -> State:
        some = take_points(state, np.argmax(stored == group[:, None], axis=1))
        if missing:
            clients, residuals = jax.tree.map(filled, (some.clients, some.residuals))
            some = some._replace(clients=clients, residuals=residuals)
        return some

    groups = tuple(map(of, _groups(placed, points)))
    if data.mesh is None:  # clients on disk keep their states on the host
        return groups
    put = jax.jit(lambda state: on_mesh(_with_seeds(placed, state, True), data))
    return tuple(map(put, groups))


def _with_seeds(placed: Placed, state: State, repeats: bool) -> State:
    """Return a state without repeats of the last seed, or with them."""
    if placed.keys.size == placed.num_seeds:
        return state
    size = placed.keys.size if repeats else placed.num_seeds
    return take_seeds(state, np.minimum(np.arange(size), placed.num_seeds - 1))


def _shapes(placed: Placed, grid: PyTree, data: ClientData, keys: Key) -> State:
    """Return the shapes of the states of a grid on these clients, for these seeds."""

    def begin(grid, data):
        return start(placed.algorithm, grid, placed.init, data, keys, placed.plan)

    return jax.eval_shape(begin, grid, data)


def _params(init: Callable[[Key], Params]) -> Params:
    """Return the shapes of the start point."""
    return jax.eval_shape(lambda: init(jax.random.key(0)))


def _trace(placed: Placed) -> jax.stages.Traced:
    """Trace the program on a mesh, for the arguments that the first points will have."""
    points = np.arange(min(placed.size, num_points(placed.grid)))
    grid = take(placed.grid, _groups(placed, points)[0])
    assert placed.data.mesh is not None
    everywhere = jax.sharding.NamedSharding(placed.data.mesh, jax.sharding.PartitionSpec())
    states = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere),
        _shapes(placed, grid, placed.data, placed.keys),
    )
    arguments = grid, placed.data, states, placed.context, np.int32(0)
    return advance_donating.trace(_program(placed), *arguments)


def _with_sizes(placed: Placed, plan: Plan, num_rounds: int) -> Placed:
    """Choose how many points and clients run side by side, unless the plan sets these numbers."""
    algorithm, grid, data = placed.algorithm, placed.grid, placed.data
    params, points = _params(placed.init), num_points(placed.grid)
    size, num_seeds = runs_at_once(algorithm, grid, params, data, plan, placed.num_seeds)
    keys, group, shards = repeated(placed.keys, num_seeds), size, data.num_sweep_shards
    chosen = plan.point_chunk_size is not None or placed.stream is not None
    short = num_rounds * _numbers_a_round(placed, plan) <= _NUMBERS_WORTH_COMPILING
    small = size < max(_POINTS_WORTH_HALVING, shards)
    if short and not (small or chosen or rules().few_kernels):
        half = -(-min(size, points) // 2)
        group = half + -half % shards
    plan = plan._replace(point_chunk_size=group)
    plan = sized(algorithm, take(grid, 0), params, data, plan, num_points=points)
    return placed._replace(keys=keys, plan=plan, size=size, group=group)


def _numbers_a_round(placed: Placed, plan: Plan) -> float:
    """Return the number of example entries that the local steps of all runs read."""
    data, work = placed.data, plan.work
    num_runs = num_points(placed.grid) * placed.num_seeds
    rows_of_step = min(work.batch_size or data.max_size, data.max_size)
    rows = plan.cohort.size(data.num_clients) * work.max_steps(data.max_size) * rows_of_step
    of_row = sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(data.examples))
    return float(num_runs) * rows * of_row


def _gathered(arrays: PyTree) -> PyTree:
    """Return the arrays with all their shards in this process."""
    leaves, form = jax.tree.flatten(arrays)
    far = {
        place: leaf
        for place, leaf in enumerate(leaves)
        if not getattr(leaf, "is_fully_addressable", True)
    }
    if far:
        everywhere = _replicated(next(iter(far.values())).sharding.mesh)
        for place, leaf in everywhere(far).items():
            leaves[place] = leaf.addressable_data(0)
    return jax.tree.unflatten(form, leaves)


@functools.cache
def _replicated(mesh: jax.sharding.Mesh) -> Callable[[PyTree], PyTree]:
    """Return a program that replicates arrays on a mesh, all in one exchange."""
    placement = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return jax.jit(lambda arrays: arrays, out_shardings=placement)
