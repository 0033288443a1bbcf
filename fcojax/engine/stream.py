"""Rounds over a population that stays on disk: only the clients of a block are in memory.

Who takes part in the next block is known from the key. So while the device works on one block, a
thread reads the examples of the next one. The numbers are those of the population in memory.
"""

import concurrent.futures
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.engine import axes, stepper
from fcojax.engine.check import check_rounds
from fcojax.engine.hparams import as_arrays
from fcojax.engine.luck import draw_cohort
from fcojax.engine.memory import room
from fcojax.engine.plan import Plan, as_plan
from fcojax.engine.state import Observe, State
from fcojax.problems import stored
from fcojax.problems.clients import ClientData, Held
from fcojax.types import Array, Key, Params, PyTree

# Members are drawn for several blocks at a time, but for no more places than this.
_MOST_BLOCKS, _MOST_PLACES = 16, 1 << 20


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
            memory three times, for one block is worked on, one waits and one is read; once where
            a block may be everyone.
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
        # A block at work, one that waits and one that is read; everyone is read once.
        num_rooms = 1 if self.num_held == data.num_clients else 3
        self._refuse_large_blocks(num_rooms)
        self._nobody = self._with((), jnp.zeros(1, jnp.int32), data.weights[:0], self._all)
        self._cohorts: dict[tuple[bytes, int], np.ndarray] = {}
        self._reader = concurrent.futures.ThreadPoolExecutor(1, "fcojax-stream")
        self._ahead: tuple[Any, concurrent.futures.Future] | None = None
        self._rooms = itertools.cycle([self._room() for _ in range(num_rooms)])
        self._at_work: PyTree = ()
        self._latest: tuple[np.ndarray, ClientData] | None = None

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
        # Read once: of a state to come they are known only when the device has done its work.
        first, key = int(state.round), jnp.array(state.key)
        name, looks = np.asarray(jax.random.key_data(key)).tobytes(), []
        for index in range(num_rounds // self.block):
            members, data = self._take(name, key, first + index * self.block)
            part = self._of_members(state, data)
            if index == 0:
                part, seen = stepper.advance(
                    algorithm, hparams, data, part, self.plan, self.block, eval_every=self.block,
                    observe=observe, context=context, donate=donate,
                )  # fmt: skip
                hparams = as_arrays(hparams)
            else:  # what the first block took as fit is fit
                part, seen = stepper.advance_donated(
                    algorithm, self.plan, observe, 1, self.block, hparams, data, part, context
                )
            state = _put_back(state, members, part)
            # One block is at work and one waits for it; the room of the one before is free.
            jax.block_until_ready(self._at_work)
            self._at_work = seen
            looks.append(seen)
        axis = 2 if axes.is_sweep(state.key) else 0

        # On the host, where a new number of looks is nothing to compile.
        def joined(*leaves):
            return jax.device_put(np.concatenate([np.asarray(leaf) for leaf in leaves], axis))

        return state, jax.tree.map(joined, *looks)

    def _of_members(self, state: State, data: ClientData) -> State:
        """The state with rows for the clients of a block alone."""
        assert data.held is not None
        axis = 2 if axes.is_sweep(state.key) else 0
        rows = (state.clients, state.residuals)
        if not jax.tree.leaves(rows):
            return state
        places = np.minimum(np.asarray(data.held.members), self.data.num_clients - 1)
        mine = jax.tree.map(lambda leaf: np.take(leaf, places, axis), rows)
        return state._replace(clients=mine[0], residuals=mine[1])

    def _take(self, name: bytes, key: Key, first: int) -> tuple[np.ndarray, ClientData]:
        """The clients of the block from round ``first``; the one after it is read meanwhile.

        ``name`` is what the key is made of.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == (name, first):
            found = ahead[1].result()
        else:
            if ahead is not None:  # it was read for nothing
                concurrent.futures.wait([ahead[1]])
            jax.block_until_ready(self._at_work)
            found = self._held(self._members(name, key, first))
        # Drawn before the device is busy; only the reading is left to the thread.
        after = self._members(name, key, first + self.block)
        future = self._reader.submit(self._held, after)
        self._ahead = (name, first + self.block), future
        return found

    def _held(self, members: np.ndarray) -> tuple[np.ndarray, ClientData]:
        """These clients, read unless they are those that were read last."""
        if self._latest is None or not np.array_equal(members, self._latest[0]):
            self._latest = members, self._read(members, next(self._rooms))
        return self._latest

    def _members(self, name: bytes, key: Key, first: int) -> np.ndarray:
        """Who takes part in a block, ascending; everyone where there is room for everyone."""
        if self.num_held == self.data.num_clients:
            return np.arange(self.num_held)
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
            lambda leaf: stored.aligned((self.num_rows, *leaf.shape[1:]), leaf.dtype),
            self.data.examples,
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
            offsets.astype(np.int32),
            weights,
            self._all._replace(members=held),
        )

    def _with(self, examples, offsets, weights, held) -> ClientData:
        known = self.data
        return ClientData(
            examples, offsets, weights, known.num_clients, known.min_size, known.max_size,
            known.size_bounds, held=held,
        )  # fmt: skip

    def _refuse_large_blocks(self, num_rooms: int) -> None:
        needed = num_rooms * tree.num_bytes(self.shapes().examples)
        if needed > room():
            raise ValueError(
                f"the cohorts of a block of {self.block} rounds have up to {self.num_held} "
                f"clients, whose examples need {needed / 2**30:.1f} GiB where "
                f"{room() / 2**30:.1f} GiB are free; pass fewer rounds a block or a smaller cohort."
            )


def _put_back(state: State, members: np.ndarray, part: State) -> State:
    """The state after a block, with the rows of its members written to their places."""
    at = (slice(None),) * (2 if axes.is_sweep(state.key) else 0)
    rows = (state.clients, state.residuals)

    def write(leaf, new):
        leaf[(*at, members)] = np.asarray(new)[(*at, slice(members.size))]

    jax.tree.map(write, rows, (part.clients, part.residuals))
    return part._replace(clients=rows[0], residuals=rows[1])


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
