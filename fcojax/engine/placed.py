"""A sweep block by block: placed on the devices once, then run from evaluation to evaluation.

This is for callers that write results and save states while a sweep runs, or resume a sweep; the
rules of ``blocks`` hold.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.algorithms.base import Algorithm
from fcojax.engine.blocks import Block, blocks, padded
from fcojax.engine.compaction import halved, map_runs, take_points
from fcojax.engine.hparams import num_points, take
from fcojax.engine.placement.chunk_size import device_memory, runs_at_once, sized
from fcojax.engine.placement.mesh import decomposes_on_a_cpu, device_mesh, shard_clients, spread
from fcojax.engine.plan import Plan, Program
from fcojax.engine.round import sizes_of
from fcojax.engine.run import advance_traced, look_compiled, start_traced
from fcojax.engine.state import Memory, Observe, State, on_mesh
from fcojax.engine.stepper import start
from fcojax.engine.stream import Stream, on_disk
from fcojax.engine.tally import RoundContext, one_update
from fcojax.memo import jit_per
from fcojax.problems.client_data import ClientData
from fcojax.types import Array, Key, Params, PyTree
from fcojax.uploads.contract import split
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
      program: the program of a block, of any length up to its ``rounds_per_evaluation``.
      grid: the hyperparameters on the host, with a leading axis of points.
      init: ``(key) -> params``, the start point.
      train: the clients before they were spread over devices.
      data: the clients on the devices.
      keys: one key for each seed, the last one repeated where devices share the seeds.
      num_seeds: number of seeds without repeats.
      context: the arrays that the program's ``observe`` needs.
      size: points whose states fit into memory together, the most that ``sweep_blocks`` takes.
      group: points that one call of the program runs. A block is one call for each group.
      stream: reads clients that stay on disk; ``None`` where they are in memory.
    """

    program: Program
    grid: PyTree
    init: Callable[[Key], Params]
    train: ClientData
    data: ClientData
    keys: Key
    num_seeds: int
    context: PyTree
    size: int
    group: int
    stream: Stream | None = None

    def shapes(self, points: np.ndarray) -> State:
        """Return the shapes of the state of these points, as in a ``Block``."""
        return self._shapes(points, self.train, self.keys[: self.num_seeds])

    def _shapes(self, points: np.ndarray, data: ClientData, keys: Key) -> State:
        algorithm, plan, *_ = self.program
        begin = lambda grid, data: start(algorithm, grid, self.init, data, keys, plan)  # noqa: E731
        return jax.eval_shape(begin, take(self.grid, points), data)

    def traced(self) -> Any:
        """Return the trace of the program of the first points' blocks; not for clients on disk.

        Compiled from here, it is in JAX's caches when its first block is called.
        """
        group = _groups(self, np.arange(min(self.size, num_points(self.grid))))[0]
        states = self._shapes(group, self.data, self.keys)  # only shapes are read
        if mesh := self.data.mesh:  # the mesh is part of the type by which JAX finds a trace again
            everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
            states = jax.tree.map(lambda leaf: leaf.update(sharding=everywhere), states)
        given = take(self.grid, group), self.data, states, self.context, np.int32(0)
        return _block.trace(self.program, self.init, *given)


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

    The arguments are those of ``sweep``, with the start point as a function ``(key) -> params``,
    the rounds at which blocks end, up to the last round of the run, and the context of ``observe``
    as a function of the placed clients.
    """
    grid = jax.device_get(grid)  # points are taken between blocks
    points, params = num_points(grid), jax.eval_shape(init, jax.random.key(0))
    lengths, stream = np.diff([0, *ends]), None
    if on_disk(data) and jax.process_count() > 1:
        # Each process reads the clients of its own devices, and keeps them.
        there = shard_clients(data, device_mesh(clients=len(jax.devices())))
    elif on_disk(data) and tree.num_bytes(data.examples) > KEPT * device_memory():
        every = int(np.gcd.reduce(lengths))
        stream = Stream(data, plan, eval_every=every, num_seeds=keys.size)
        there = stream.nobody()
    else:
        data = data.to_device() if on_disk(data) else data
        numbers = {"num_points": points, "num_seeds": keys.size}
        there = spread(algorithm, take(grid, 0), params, data, plan, **numbers)

    def placed_on(there: ClientData) -> Placed:
        size, all_keys = runs_at_once(algorithm, grid, params, there, plan, keys)
        group, shards = size, there.num_sweep_shards
        chosen = plan.point_chunk_size is not None or stream is not None
        # The number of example entries that the local steps of all runs read.
        steps = float(plan.cohort.size(data.num_clients)) * plan.work.max_steps(data.max_size)
        rows = steps * min(plan.work.batch_size or data.max_size, data.max_size) * ends[-1]
        of_row = sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(data.examples))
        numbers = points * keys.size * rows * of_row
        small = size < max(_POINTS_WORTH_HALVING, shards)
        worthwhile = numbers <= _NUMBERS_WORTH_COMPILING and not small
        if worthwhile and not (chosen or rules().few_kernels):
            half = -(-min(size, points) // 2)
            group = half + -half % shards
        chunked = plan._replace(point_chunk_size=group)
        chunked = sized(algorithm, take(grid, 0), params, there, chunked, num_points=points)
        program = Program(algorithm, chunked, observe, 1, int(lengths.max()))
        given = program, grid, init, data, there, all_keys, keys.size, context(there)
        return Placed(*given, size, group, stream)

    placed = placed_on(there)
    if there.mesh is not None and decomposes_on_a_cpu(placed.traced()):
        placed = placed_on(data)
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

    Without ``state`` the first block has no rounds: it evaluates the start point. Otherwise the
    points, indices of the grid, continue from the ``state`` of a ``Block``, on the host, which
    holds the points ``stored``. The other arguments are those of ``blocks``.
    """

    def advance(points, states, first, last):
        grids = [take(placed.grid, group) for group in _groups(placed, points)]
        each = zip(grids, states, strict=True)
        found = [_advance(placed, grid, state, last - first) for grid, state in each]
        return [state for state, _ in found], [history for _, history in found]

    def keep(points, states, alive):
        collected = jax.device_get(_collected(placed, points, states))
        return _put(placed, collected, points, _groups(placed, alive))

    if state is None:
        states, histories = _begun(placed, points)
        yield Block(0, points, _joined(histories, points))
    else:
        assert stored is not None
        states = _put(placed, state, stored, _groups(placed, points))

    given = {"points": points, "is_over": is_over, "keep": keep, "wants_state": wants_state}
    for block in blocks(advance, states, ends, first=int(states[0].round), **given):
        history = _joined(block.history, block.points)  # waits for it, while the next is computed
        if block.state is not None:
            block = block._replace(state=_collected(placed, block.points, block.state))
        yield block._replace(history=history)


def _groups(placed: Placed, points: np.ndarray) -> list[np.ndarray]:
    """Split the points into one group per call; the last group is filled up with its last point."""
    size, shards = halved(placed.group, points.size), placed.data.num_sweep_shards
    if placed.group >= shards:  # with fewer points than devices, devices share the seeds
        size += -size % shards
    return [padded(points[first : first + size], size) for first in range(0, points.size, size)]


def _begun(placed: Placed, points: np.ndarray) -> tuple[list[State], list[PyTree]]:
    """Return the states of these points before the first round, and their measures."""
    algorithm, plan, observe = placed.program[:3]
    states, histories = [], []
    for group in _groups(placed, points):
        grid = take(placed.grid, group)
        if placed.stream is not None:
            state = placed.stream.start(algorithm, grid, placed.init, placed.keys)
            seen = look_compiled(algorithm, observe, grid, state, placed.context)
            seen = jax.tree.map(lambda leaf: leaf[:, :, None], seen)
        else:
            shapes = placed._shapes(group, placed.data, placed.keys)._replace(key=())
            zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
            keys = jnp.copy(placed.keys)  # each group donates its own
            (state,) = _put(placed, zeros._replace(key=keys), group, [group])
            names = look_compiled.eval_shape(algorithm, observe, grid, state, placed.context)
            state, seen = _advance(placed, grid, state, 0)
            seen = {name: seen[name] for name in names}
        states.append(state)
        histories.append(seen)
    return states, histories


def _advance(placed: Placed, grid: PyTree, state: State, num_rounds: int) -> tuple[State, PyTree]:
    """Dispatch a block of a group; return its state, and its history [points, seeds, 1]."""
    algorithm, _, observe, *_ = placed.program
    context, rounds = placed.context, np.int32(num_rounds)
    if placed.stream is None:
        return _block(placed.program, placed.init, grid, placed.data, state, context, rounds)
    options = {"num_rounds": num_rounds, "observe": observe, "context": context, "donate": True}
    return placed.stream.advance(algorithm, grid, state, **options)


@jit_per(num_static=2, donate_argnums=2)
def _block(program: Program, init, hparams, data, state, context, num_rounds) -> tuple:
    """Advance a state; with no rounds replace it by the state before the first, in one program."""

    def begun(_, state):
        given = program.algorithm, program.plan, init, hparams, None, data, state.key
        return start_traced(*given)

    # A loop, because XLA keeps its carry in place; states may be large.
    begins = jnp.where(num_rounds == 0, 1, 0)
    state = jax.lax.fori_loop(0, begins, begun, state)
    return advance_traced(program, hparams, data, state, context, num_rounds)


def _joined(histories: Sequence[PyTree], points: np.ndarray) -> dict[str, np.ndarray]:
    """Return the histories of all groups as one on the host, without repeated points."""
    seen = jax.device_get(_gathered(histories))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: points.size, :, 0], *seen)


def _collected(placed: Placed, points: np.ndarray, states: Sequence[State]) -> State:
    """Return the states of all groups as one, without padded points, clients and seeds."""

    def cut(state: State) -> State:
        rows = take((state.clients, state.residuals), np.s_[:, :, : placed.data.num_clients])
        if placed.stream is not None:  # the stream overwrites these arrays
            rows = jax.tree.map(np.array, rows)
        state = state._replace(clients=rows[0], residuals=rows[1])
        return _with_seeds(placed, state, placed.num_seeds)

    whole, *others = _gathered([cut(state) for state in states])
    if others:
        # On the host, where a new number of points compiles nothing.
        whole = map_runs(lambda *leaves: np.concatenate(jax.device_get(leaves)), whole, *others)
    if sum(group.size for group in _groups(placed, points)) == points.size:
        return whole
    return take_points(whole, np.arange(points.size))


def _put(
    placed: Placed, state: State, stored: np.ndarray, groups: Sequence[np.ndarray]
) -> list[State]:
    """Return some points of a collected state, one state for each group."""
    data, states = placed.data, []
    rows = np.arange(data.clients_per_shard * data.num_shards)
    put = jax.jit(lambda state: on_mesh(_with_seeds(placed, state, placed.keys.size), data))
    for group in groups:
        some = take_points(state, np.argmax(stored == group[:, None], axis=1))
        if rows.size > data.num_clients:  # the last client's row fills up a mesh
            at = np.s_[:, :, np.minimum(rows, data.num_clients - 1)]
            some = some._replace(clients=take(some.clients, at), residuals=take(some.residuals, at))
        # Clients on disk keep their states on the host.
        states.append(some if data.mesh is None else put(some))
    return states


def _with_seeds(placed: Placed, state: State, size: int) -> State:
    """Return a state of so many seeds: without repeats of the last one, or with them."""
    if placed.keys.size == placed.num_seeds:
        return state
    seeds = np.minimum(np.arange(size), placed.num_seeds - 1)
    # Keys have an axis of seeds alone; all other parts have points before seeds.
    return map_runs(lambda leaf: leaf[:, seeds], state)._replace(key=state.key[seeds])


def _gathered(arrays: PyTree) -> PyTree:
    """Return the arrays with all their shards in this process, by one exchange."""
    leaves = jax.tree.leaves(arrays)
    far = [leaf for leaf in leaves if not getattr(leaf, "is_fully_addressable", True)]
    if not far:
        return arrays
    everywhere = jax.sharding.NamedSharding(far[0].sharding.mesh, jax.sharding.PartitionSpec())
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), _replicated(everywhere, arrays))


@jit_per(num_static=1)
def _replicated(placement: jax.sharding.Sharding, arrays: PyTree) -> PyTree:
    return jax.lax.with_sharding_constraint(arrays, placement)


def payload_bytes(
    algorithm: Algorithm, plan: Plan, hparams: PyTree, params: Params, data: ClientData
) -> tuple[Array, Array]:
    """Return the bytes of a message and of an encoded upload in the first round."""
    key, zero = jax.random.key(0), jnp.zeros((), jnp.int32)
    server, client = algorithm.init(hparams, params)
    message = algorithm.broadcast(hparams, server)
    result = one_update(algorithm, plan, hparams, server, client, data)
    context = RoundContext(algorithm, plan, hparams, data, key, zero, key)
    if plan.broadcast is not None:
        context = context._replace(memory=Memory(broadcast=plan.broadcast.first(message)))
    down, up = sizes_of(context, message, split(result.upload)[2])
    return jnp.asarray(down), jnp.asarray(up)
