"""Rounds over a population on disk, with only the clients of a block in memory.

The cohorts of the next block are known from the key, so while the device computes one block a
thread reads the examples of the next. Results are the same as with the population in memory.
"""

import concurrent.futures
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.arguments import validated
from fcojax.engine import stepper
from fcojax.engine.blocks import blocks, join_histories
from fcojax.engine.placement.chunk_size import usable_memory
from fcojax.engine.plan import Plan, as_plan
from fcojax.engine.randomness import draw_cohort
from fcojax.engine.state import Observe, State, is_sweep
from fcojax.memo import jit_per
from fcojax.problems import memory, stored
from fcojax.problems.clients import ClientData, Held, require_one_device
from fcojax.types import Array, Count, Key, Params, PyTree

# Cohorts are drawn for several blocks at once, up to these numbers of blocks and of members.
_MOST_BLOCKS, _MOST_PLACES = 16, 1 << 20


def on_disk(data: ClientData) -> bool:
    """Return whether the examples of a population are on disk, as ``open_clients`` leaves them."""
    leaves = jax.tree.leaves(data.examples)
    return any(memory.file_of(leaf) is not None for leaf in leaves if type(leaf) is np.ndarray)


class Stream:
    """A population on disk, and the rounds that read it.

    Its states differ in one respect from the states that ``fcojax.start`` makes: ``clients`` and
    ``residuals`` are numpy arrays on the host.

    Example:
      >>> import fcojax, tempfile
      >>> clients = [{"a": np.array([float(m)])} for m in range(100)]
      >>> folder = tempfile.mkdtemp() + "/population"
      >>> fcojax.save_clients(fcojax.from_clients(clients), folder)
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> plan = fcojax.Plan(fcojax.local_steps(1), fcojax.uniform_cohort(cohort_size=10))
      >>> hparams = fed_avg.hparams_type(client_lr=0.1)
      >>> stream = Stream(fcojax.open_clients(folder), plan, eval_every=20)
      >>> state = stream.start(fed_avg, hparams, jnp.array(0.0), jax.random.key(0))
      >>> state, history = stream.advance(fed_avg, hparams, state, num_rounds=100)
      >>> bool(abs(fcojax.read_model(fed_avg, hparams, state) - 49.5) < 10)
      True
    """

    @validated
    def __init__(
        self, data: ClientData, plan: Plan | Work, *, eval_every: Count, num_seeds: Count = 1
    ) -> None:
        """Create the buffers.

        Args:
          data: the population, with examples on disk or in memory.
          plan: how rounds are run: a ``Plan``, or a ``Work`` if everyone takes part.
          eval_every: rounds in a block, between two evaluations. The examples of three blocks are
            in memory: one block is computed, one is queued, one is read. If a block may hold the
            whole population, only one block is in memory.
          num_seeds: number of seeds of a sweep.
        """
        require_one_device(data)
        self.data, self.plan = data, as_plan(plan)
        self.eval_every = eval_every
        places = self.plan.cohort.size(data.num_clients)
        self._blocks_drawn = min(
            _MOST_BLOCKS, 1 + _MOST_PLACES // (places * self.eval_every * num_seeds)
        )
        self._sizes = np.diff(np.asarray(data.offsets)).astype(np.int64)
        self._weights = np.asarray(data.weights)
        self._all = Held(jnp.zeros(0, jnp.int32), data.sizes, data.weights)
        # The largest number of distinct clients in a block, and below the largest number of rows of
        # so many clients: all blocks have these shapes, so one program serves them.
        self.num_held = min(data.num_clients, places * self.eval_every * num_seeds)
        # The largest ones in O(M); a sort takes O(M log M).
        largest = -np.partition(-self._sizes, self.num_held - 1)[: self.num_held]
        # `Local.full` slices as many rows as the largest client has, whoever is in the block.
        self.num_rows = max(int(largest.sum()), data.max_size)
        # Buffers in use, queued and being read. One is enough for the whole population.
        num_buffers = 1 if self.num_held == data.num_clients else 3
        self._require_memory(num_buffers)
        # Used to draw cohorts: it has the number of clients and their sizes, but no examples.
        self._empty = self._with((), jnp.zeros(1, jnp.int32), data.weights[:0], self._all)
        self._cohorts: dict[tuple[bytes, int], np.ndarray] = {}
        # One thread: blocks are read in order, and a buffer has one writer.
        self._reader = concurrent.futures.ThreadPoolExecutor(1, "fcojax-stream")
        self._prefetched: tuple[Any, concurrent.futures.Future] | None = None
        self._buffers = itertools.cycle([self._buffer() for _ in range(num_buffers)])
        self._computing: PyTree = ()
        self._latest: tuple[np.ndarray, ClientData] | None = None

    def shapes(self) -> ClientData:
        """Return the shapes of one block in memory."""
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
        """Return the state before the first round, with the clients' states on the host.

        Args:
          algorithm: the algorithm of the run.
          hparams: its hyperparameters, or a grid of them.
          params: the start point, or a function ``(key) -> params``.
          key: PRNG key; for a sweep a vector with one key per seed.
        """
        empty = self._read(np.zeros(0, np.int32), self._buffer())
        state = stepper.start(algorithm, hparams, params, empty, key, self.plan)
        axis = 2 if is_sweep(key) else 0

        def for_everyone(leaf):
            # All clients start from the same state. One row is computed and repeated in host
            # memory, because the rows of all clients may not fit on the device.
            row = np.take(np.asarray(leaf), [0], axis)
            return np.repeat(row, self.data.num_clients, axis)

        clients, residuals = jax.tree.map(for_everyone, (state.clients, state.residuals))
        return state._replace(clients=clients, residuals=residuals)

    def advance(
        self,
        algorithm: Algorithm,
        hparams: PyTree,
        state: State,
        *,
        num_rounds: int,
        observe: Observe | None = None,
        context: PyTree = None,
        donate: bool = False,
    ) -> tuple[State, dict[str, Array]]:
        """Advance a state by a number of rounds, with an evaluation after each block.

        Args:
          algorithm: the algorithm of the run.
          hparams: its hyperparameters, or a grid of them.
          state: the state to continue from.
          num_rounds: number of rounds, a multiple of ``eval_every``.
          observe: ``(hparams, model, context) -> dict`` of arrays, or a ``StateObserver``.
          context: arrays that ``observe`` needs.
          donate: whether ``state`` may be overwritten; its clients' rows then change in place.

        Returns:
          The new state and the history, as ``fcojax.advance`` returns them.
        """
        given = state, self.data, self.plan, num_rounds, self.eval_every, observe
        program, hparams = stepper.continued(algorithm, hparams, *given)
        if not donate:  # all blocks overwrite their states, so that they are one program
            rows = jax.tree.map(np.array, (state.clients, state.residuals))
            state = jax.tree.map(jnp.array, state._replace(clients=(), residuals=()))
            state = state._replace(clients=rows[0], residuals=rows[1])
        # Read once: on later states they are pending device values, and reading would block.
        first, key = int(state.round), jnp.array(state.key)
        name = np.asarray(jax.random.key_data(key)).tobytes()
        one = program._replace(num_evaluations=1)

        def advance(_, state, begin, end):
            members, data = self._take(name, key, begin)
            part = self._of_members(state, data)
            part, history = stepper.advance_donating(one, hparams, data, part, context)
            state = _put_back(state, members, part)
            # One block is computed and one is queued; the buffer of the previous block is free.
            jax.block_until_ready(self._computing)
            self._computing = history
            return state, history

        ends = [first + (1 + n) * self.eval_every for n in range(program.num_evaluations)]
        found = list(blocks(advance, state, ends, first=first))
        return found[-1].state, join_histories([block.history for block in found], 2 * key.ndim)

    def _of_members(self, state: State, data: ClientData) -> State:
        """Return the state with rows for the clients of one block."""
        assert data.held is not None
        axis = 2 if is_sweep(state.key) else 0
        rows = (state.clients, state.residuals)
        if not jax.tree.leaves(rows):
            return state
        # Unused places name one client past the end; they read the last row, with weight zero.
        places = np.minimum(np.asarray(data.held.members), self.data.num_clients - 1)
        part = jax.tree.map(lambda leaf: np.take(leaf, places, axis), rows)
        return state._replace(clients=part[0], residuals=part[1])

    def _take(self, name: bytes, key: Key, first: int) -> tuple[np.ndarray, ClientData]:
        """Return the clients of the block from round ``first``, and start to read the next block.

        ``name`` identifies the key.
        """
        prefetched, self._prefetched = self._prefetched, None
        # Usually this is the block that was prefetched. For another key or an earlier round the
        # clients are read now, once the thread and the device no longer use the buffers.
        if prefetched is not None and prefetched[0] == (name, first):
            found = prefetched[1].result()
        else:
            if prefetched is not None:  # it is not the expected block
                concurrent.futures.wait([prefetched[1]])
            jax.block_until_ready(self._computing)
            found = self._held(self._members(name, key, first))
        # Drawn now, before the device is busy; the thread only reads.
        after = self._members(name, key, first + self.eval_every)
        future = self._reader.submit(self._held, after)
        self._prefetched = (name, first + self.eval_every), future
        return found

    def _held(self, members: np.ndarray) -> tuple[np.ndarray, ClientData]:
        """Return these clients; read them only if the last read was of other clients."""
        if self._latest is None or not np.array_equal(members, self._latest[0]):
            self._latest = members, self._read(members, next(self._buffers))
        return self._latest

    def _members(self, name: bytes, key: Key, first: int) -> np.ndarray:
        """Return the clients of a block in ascending order; all, if the buffer holds them."""
        if self.num_held == self.data.num_clients:
            return np.arange(self.num_held)
        if (name, first) not in self._cohorts:
            count = self._blocks_drawn
            drawn = _drawn(
                self.plan, count * self.eval_every, self._empty, jnp.atleast_1d(key), first
            )
            members, present = (np.split(np.asarray(leaf), count, axis=1) for leaf in drawn)
            self._cohorts = {
                # Ascending, as a round looks its members up by bisection.
                (name, first + index * self.eval_every): np.unique(members[index][present[index]])
                for index in range(count)
            }
        return self._cohorts[name, first]

    def _buffer(self) -> PyTree:
        """Return a buffer for the examples of any block."""
        return jax.tree.map(
            lambda leaf: memory.aligned((self.num_rows, *leaf.shape[1:]), leaf.dtype),
            self.data.examples,
        )

    def _read(self, members: np.ndarray, buffer: PyTree) -> ClientData:
        """Read the examples of these clients into a buffer."""
        sizes = self._sizes[members]
        starts = np.asarray(self.data.offsets)[members]

        def gathered(leaf, out):
            stored.read_rows(np.asarray(leaf), starts, sizes, out)
            # Clear what an earlier block left here: no result may depend on it.
            out[sizes.sum() :] = 0
            return out

        empty = self.num_held - members.size
        offsets = np.concatenate([[0], np.cumsum(sizes), np.full(empty, sizes.sum())])
        weights = np.concatenate([self._weights[members], np.zeros(empty, self._weights.dtype)])
        held = np.concatenate([members, np.full(empty, self.data.num_clients)]).astype(np.int32)
        return self._with(
            jax.tree.map(gathered, self.data.examples, buffer),
            offsets.astype(np.int32),
            weights,
            self._all._replace(members=held),
        )

    def _with(self, examples, offsets, weights, held) -> ClientData:
        known = self.data
        return ClientData(
            examples,
            offsets,
            weights,
            known.num_clients,
            known.min_size,
            known.max_size,
            known.size_bounds,
            held=held,
        )

    def _require_memory(self, num_buffers: int) -> None:
        # Checked before anything is allocated, where the message can name `eval_every`.
        needed = num_buffers * tree.num_bytes(self.shapes().examples)
        if needed > (usable := usable_memory()):
            raise ValueError(
                f"eval_every is {self.eval_every}, and the cohorts of such a block have up to "
                f"{self.num_held} clients, whose examples need {needed / 2**30:.1f} GiB where "
                f"{usable / 2**30:.1f} GiB are free; pass fewer rounds or a smaller cohort."
            )


def _put_back(state: State, members: np.ndarray, part: State) -> State:
    """Return the state after a block, with the rows of its members written back."""
    at = (slice(None),) * (2 if is_sweep(state.key) else 0)
    rows = (state.clients, state.residuals)

    def write(leaf, new):
        # In place: a copy of a million clients' rows after every block would cost more than the
        # block.
        leaf[(*at, members)] = np.asarray(new)[(*at, slice(members.size))]

    jax.tree.map(write, rows, (part.clients, part.residuals))
    return part._replace(clients=rows[0], residuals=rows[1])


@jit_per(num_static=2)
def _drawn(plan: Plan, block: int, data: ClientData, keys: Key, first: Any):
    """Return members and presence in every round of a block, for each key."""

    def one(key, index):
        drawn = draw_cohort(plan, data, key, index)
        return drawn.indices, drawn.present

    rounds = jnp.asarray(first, jnp.int32) + jnp.arange(block, dtype=jnp.int32)
    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(keys, rounds)
