"""Rounds over a population that stays on disk: only the clients of a block are in memory.

Who takes part in the next block is known from the key. So while the device works on one block, a
thread reads the examples of the next one. The numbers are those of the population in memory.
"""

import concurrent.futures
import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.engine import axes, stepper
from fcojax.engine.check import check_rounds
from fcojax.engine.luck import draw_cohort
from fcojax.engine.memory import room
from fcojax.engine.plan import Plan, as_plan
from fcojax.engine.state import Observe, State
from fcojax.problems import stored
from fcojax.problems.clients import ClientData, Held
from fcojax.types import Array, Key, Params, PyTree

# Members are drawn for several blocks at a time, but for no more places than this.
_MOST_BLOCKS, _MOST_PLACES = 16, 1 << 20
_ALIGNMENT = 64  # bytes


def on_disk(data: ClientData) -> bool:
    """Whether the examples of a population are left on disk, as ``open_clients`` leaves them."""
    leaves = jax.tree.leaves(data.examples)
    return any(stored.file_of(leaf) is not None for leaf in leaves if type(leaf) is np.ndarray)


class Stream:
    """A population on disk, and the rounds that read it.

    Its states differ from those of ``fcojax.start`` in one thing: ``clients`` and ``residuals`` are
    arrays of numpy, on the host, however many clients there are.

    Example:
      >>> import fcojax, tempfile
      >>> clients = [{"a": np.array([float(m)])} for m in range(100)]
      >>> folder = tempfile.mkdtemp() + "/population"
      >>> fcojax.from_clients(clients).save(folder)
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> plan = fcojax.Plan(fcojax.local_steps(1), fcojax.uniform_cohort(10))
      >>> hparams = fed_avg.hparams_type(client_lr=0.1)
      >>> stream = Stream(fcojax.open_clients(folder), plan, block=20)
      >>> state = stream.start(fed_avg, hparams, jnp.array(0.0), jax.random.key(0))
      >>> state, history = stream.advance(fed_avg, hparams, state, 100)
      >>> bool(abs(fcojax.read_model(fed_avg, hparams, state) - 49.5) < 10)
      True
    """

    def __init__(self, data: ClientData, plan: Plan | Work, block: int, num_seeds: int = 1):
        """Reads ``block`` rounds at a time.

        Args:
          data: the population, with examples on disk or in memory.
          plan: how rounds are driven.
          block: rounds between two looks, ``eval_every`` of ``advance``; their cohorts are in
            memory three times, for one block is worked on, one waits and one is read.
          num_seeds: of a sweep.
        """
        if data.mesh is not None:
            raise ValueError("the population is on a mesh; stream the original.")
        self.data, self.plan = data, as_plan(plan)
        self.block, _ = check_rounds(block, 1)
        places = self.plan.cohort.size(data.num_clients)
        self._blocks_drawn = min(
            _MOST_BLOCKS, 1 + _MOST_PLACES // (places * self.block * num_seeds)
        )
        self._sizes = np.diff(np.asarray(data.offsets)).astype(np.int64)
        self._weights = np.asarray(data.weights)
        self._all = Held(jnp.zeros(0, jnp.int32), data.sizes, data.weights)
        self.num_held = min(data.num_clients, places * self.block * num_seeds)
        largest = -np.partition(-self._sizes, self.num_held - 1)[: self.num_held]
        self.num_rows = max(int(largest.sum()), data.max_size)
        self._refuse_large_blocks()
        self._nobody = self._with((), jnp.zeros(1, jnp.int32), data.weights[:0], self._all)
        self._cohorts: dict[tuple[bytes, int], np.ndarray] = {}
        self._reader = concurrent.futures.ThreadPoolExecutor(1, "fcojax-stream")
        self._ahead: tuple[Any, concurrent.futures.Future] | None = None
        # A block at work, one that waits and one that is read; room for each is made once.
        self._rooms = itertools.cycle([self._room() for _ in range(3)])
        self._at_work: PyTree = ()

    def shapes(self) -> ClientData:
        """What is in memory at a time, as shapes."""
        number = jax.ShapeDtypeStruct((self.num_held,), jnp.int32)
        examples = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((self.num_rows, *leaf.shape[1:]), leaf.dtype),
            self.data.examples,
        )
        offsets = jax.ShapeDtypeStruct((self.num_held + 1,), jnp.int32)
        weights = jax.ShapeDtypeStruct((self.num_held,), self.data.weights.dtype)
        held = self._all._replace(members=number)
        return self._with(examples, offsets, weights, held)

    def start(self, algorithm: Algorithm, hparams: PyTree, params: Params, key: Key) -> State:
        """``fcojax.start``, with the clients' states on the host."""
        nobody = self._read(np.zeros(0, np.int32), self._room())
        state = stepper.start(algorithm, hparams, params, nobody, key, self.plan)
        axis = 2 if axes.is_sweep(key) else 0

        def for_all(leaf):
            row = np.take(np.asarray(leaf), [0], axis)
            return np.repeat(row, self.data.num_clients, axis)

        clients, residuals = jax.tree.map(for_all, (state.clients, state.residuals))
        return state._replace(clients=clients, residuals=residuals)

    def advance(
        self,
        algorithm: Algorithm,
        hparams: PyTree,
        state: State,
        num_rounds: int,
        *,
        observe: Observe | None = None,
        context: PyTree = None,
        donate: bool = False,
    ) -> tuple[State, dict[str, Array]]:
        """``fcojax.advance`` with ``eval_every=block``; with ``donate`` rows change in place."""
        num_rounds, _ = check_rounds(num_rounds, self.block)
        if not donate:
            rows = jax.tree.map(np.array, (state.clients, state.residuals))
            state = state._replace(clients=rows[0], residuals=rows[1])
        looks, first = [], int(state.round)
        for index in range(num_rounds // self.block):
            data = self._take(state.key, first + index * self.block)
            spent = donate or index > 0  # whose state it is
            state, seen = self._one_block(algorithm, hparams, state, data, observe, context, spent)
            # One block is at work and one waits for it; the room of the one before is free.
            jax.block_until_ready(self._at_work)
            self._at_work = seen
            looks.append(seen)
        axis = 2 if axes.is_sweep(state.key) else 0
        history = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis), *looks)
        return state, history

    def _one_block(self, algorithm, hparams, state: State, taken, observe, context, spent):
        (members, data), axis = taken, 2 if axes.is_sweep(state.key) else 0
        assert data.held is not None
        places = np.minimum(np.asarray(data.held.members), self.data.num_clients - 1)
        rows = (state.clients, state.residuals)
        mine = jax.tree.map(lambda leaf: np.take(leaf, places, axis), rows)
        part = state._replace(clients=mine[0], residuals=mine[1])
        after, seen = stepper.advance(
            algorithm, hparams, data, part, self.plan, self.block, eval_every=self.block,
            observe=observe, context=context, donate=spent,
        )  # fmt: skip

        def put_back(leaf, new):
            at = (slice(None),) * axis
            leaf[(*at, members)] = np.asarray(new)[(*at, slice(members.size))]

        jax.tree.map(put_back, rows, (after.clients, after.residuals))
        return after._replace(clients=rows[0], residuals=rows[1]), seen

    def _take(self, key: Key, first: int) -> tuple[np.ndarray, ClientData]:
        """The clients of the block from round ``first``; the one after it is read meanwhile."""
        wanted = (np.asarray(jax.random.key_data(key)).tobytes(), first)
        if self._ahead is not None and self._ahead[0] == wanted:
            found = self._ahead[1].result()
        else:
            if self._ahead is not None:  # it was read for nothing
                concurrent.futures.wait([self._ahead[1]])
            jax.block_until_ready(self._at_work)
            members = self._members(key, first)
            found = members, self._read(members, next(self._rooms))
        # Drawn before the device is busy; only the reading is left to the thread.
        after, room = self._members(key, first + self.block), next(self._rooms)
        future = self._reader.submit(lambda: (after, self._read(after, room)))
        self._ahead = (wanted[0], first + self.block), future
        return found

    def _members(self, key: Key, first: int) -> np.ndarray:
        """Who takes part in a block, ascending."""
        name = np.asarray(jax.random.key_data(key)).tobytes()
        if (name, first) not in self._cohorts:
            count = self._blocks_drawn
            drawn = _drawn(self.plan, count * self.block, self._nobody, jnp.atleast_1d(key), first)
            members, present = (np.split(np.asarray(leaf), count, axis=1) for leaf in drawn)
            self._cohorts = {
                (name, first + index * self.block): np.unique(members[index][present[index]])
                for index in range(count)
            }
        return self._cohorts[name, first]

    def _room(self) -> PyTree:
        """As much room as the examples of any block need."""
        return jax.tree.map(
            lambda leaf: _aligned((self.num_rows, *leaf.shape[1:]), leaf.dtype), self.data.examples
        )

    def _read(self, members: np.ndarray, room: PyTree) -> ClientData:
        """These clients, with their examples in that room."""
        sizes = self._sizes[members]
        starts = np.asarray(self.data.offsets)[members]

        def gathered(leaf, out):
            stored.read_rows(np.asarray(leaf), starts, sizes, out)
            out[sizes.sum() :] = 0
            return out

        empty = self.num_held - members.size
        offsets = np.concatenate([[0], np.cumsum(sizes), np.full(empty, sizes.sum())])
        weights = np.concatenate([self._weights[members], np.zeros(empty, self._weights.dtype)])
        held = np.concatenate([members, np.full(empty, self.data.num_clients)]).astype(np.int32)
        return self._with(
            jax.tree.map(gathered, self.data.examples, room),
            jnp.asarray(offsets, jnp.int32),
            jnp.asarray(weights),
            self._all._replace(members=jnp.asarray(held)),
        )

    def _with(self, examples, offsets, weights, held) -> ClientData:
        known = self.data
        return ClientData(
            examples, offsets, weights, known.num_clients, known.min_size, known.max_size,
            known.size_bounds, held=held,
        )  # fmt: skip

    def _refuse_large_blocks(self) -> None:
        row = sum(
            leaf.dtype.itemsize * int(np.prod(leaf.shape[1:], dtype=np.int64))
            for leaf in jax.tree.leaves(self.data.examples)
        )
        if 3 * self.num_rows * row > room():
            raise ValueError(
                f"the cohorts of a block of {self.block} rounds have up to {self.num_held} clients "
                f"with {self.num_rows * row / 2**30:.1f} GiB of examples, of which three must fit "
                f"into {room() / 2**30:.1f} GiB; pass fewer rounds a block or a smaller cohort."
            )


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An empty array that XLA takes as it lies, where it copies one that starts elsewhere."""
    num_bytes = dtype.itemsize * math.prod(shape)
    room = np.empty(num_bytes + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + num_bytes].view(dtype).reshape(shape)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _drawn(plan: Plan, block: int, data: ClientData, keys: Key, first: Any):
    """Members and presence in every round of a block, for each key."""

    def one(key, index):
        cohort = draw_cohort(plan, data, key, index)
        members = cohort.members
        if members is None:
            members = jnp.arange(data.num_clients, dtype=jnp.int32)
        return members, cohort.weights > 0

    rounds = jnp.asarray(first, jnp.int32) + jnp.arange(block, dtype=jnp.int32)
    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(keys, rounds)
