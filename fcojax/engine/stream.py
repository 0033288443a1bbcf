"""Rounds over a population on disk, with only the clients of a block in memory.

The cohorts of the next block are known from the key, so while the device computes one block a
thread reads the examples of the next. Results are the same as with the population in memory.
"""

import concurrent.futures
import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.arguments import validated
from fcojax.engine import run, stepper
from fcojax.engine.blocks import blocks, join_histories
from fcojax.engine.members import draw_cohort
from fcojax.engine.placement.chunk_size import usable_memory
from fcojax.engine.plan import Plan, as_plan
from fcojax.engine.state import Observe, State
from fcojax.memo import jit_per
from fcojax.problems import memory, stored
from fcojax.problems.client_data import ClientData
from fcojax.problems.clients import Held, require_one_device
from fcojax.types import Array, Count, Key, Params, PyTree

# Cohorts are drawn for several blocks at once, up to these numbers of blocks and of members.
_MOST_BLOCKS, _MOST_PLACES = 16, 1 << 20


def on_disk(data: ClientData) -> bool:
    """Return whether the examples of a population are on disk, as ``open_clients`` leaves them."""
    leaves = jax.tree.leaves(data.examples)
    return any(memory.file_of(leaf) is not None for leaf in leaves if type(leaf) is np.ndarray)


class Stream:
    """A population, on disk or in memory, and the rounds that read it, ``eval_every`` in a block.

    The examples of three blocks are in memory: one block is computed, one is queued, one is read.
    If a block may hold the whole population, only one is. ``num_seeds`` is the number of seeds of a
    sweep. States differ in one respect from those that ``fcojax.start`` makes: ``clients`` and
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
        require_one_device(data)
        self.data, self.plan, self.eval_every = data, as_plan(plan), eval_every
        # The largest number of distinct clients in a block, and below the largest number of rows of
        # so many clients: all blocks have these shapes, so one program serves them.
        places = self.plan.cohort.size(data.num_clients) * eval_every * num_seeds
        self.num_held = min(data.num_clients, places)
        self._sizes = np.diff(np.asarray(data.offsets)).astype(np.int64)
        # The largest ones in O(M); a sort takes O(M log M).
        largest = -np.partition(-self._sizes, self.num_held - 1)[: self.num_held]
        # `Local.full` slices as many rows as the largest client has, whoever is in the block.
        self.num_rows = max(int(largest.sum()), data.max_size)
        # Buffers in use, queued and being read. One is enough for the whole population.
        num_buffers = 1 if self.num_held == data.num_clients else 3
        # Checked before anything is allocated, where the message can name `eval_every`.
        row_bytes = tree.num_bytes(data.examples) / max(int(self._sizes.sum()), 1)
        needed = num_buffers * self.num_rows * row_bytes
        if needed > (usable := usable_memory()):
            raise ValueError(
                f"eval_every is {eval_every}, and the cohorts of such a block have up to "
                f"{self.num_held} clients, whose examples need {needed / 2**30:.1f} GiB where "
                f"{usable / 2**30:.1f} GiB are free; pass fewer rounds or a smaller cohort."
            )
        self._buffers = itertools.cycle([self._buffer() for _ in range(num_buffers)])
        self._blocks_drawn = min(_MOST_BLOCKS, 1 + _MOST_PLACES // places)
        self._cohorts: dict[tuple[bytes, int], np.ndarray] = {}
        # One thread: blocks are read in order, and a buffer has one writer.
        self._reader = concurrent.futures.ThreadPoolExecutor(1, "fcojax-stream")
        self._ahead: dict[tuple[bytes, int], concurrent.futures.Future] = {}
        self._computing: PyTree = ()
        self._latest: tuple[np.ndarray, ClientData] | None = None
        self._all = Held(jnp.zeros(0, jnp.int32), data.sizes, data.weights)
        # For cohorts: the number of clients and their sizes, but no examples.
        none = {"examples": (), "offsets": jnp.zeros(1, jnp.int32), "weights": data.weights[:0]}
        self._sized = dataclasses.replace(data, held=self._all, **none)

    def start(self, algorithm: Algorithm, hparams: PyTree, params: Params, key: Key) -> State:
        """Return the state before the first round; the arguments are those of ``fcojax.start``."""
        state = stepper.start(algorithm, hparams, params, self.nobody(), key, self.plan)
        axis = 2 * key.ndim

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
        """Advance a state as ``fcojax.advance`` does, by a multiple of ``eval_every`` rounds.

        ``donate`` is whether ``state`` may be overwritten; its clients' rows then change in place.
        """
        given = state, self.data, self.plan, (num_rounds, self.eval_every), observe
        program, hparams = stepper.continued(algorithm, hparams, *given)
        if not donate:  # all blocks overwrite their states, so that they are one program
            rows = jax.tree.map(np.array, (state.clients, state.residuals))
            state = jax.tree.map(jnp.array, state._replace(clients=(), residuals=()))
            state = state._replace(clients=rows[0], residuals=rows[1])
        # Read once: on later states they are pending device values, and reading would block.
        first, key = int(state.round), jnp.array(state.key)
        name = np.asarray(jax.random.key_data(key)).tobytes()
        one, at = program._replace(num_evaluations=1), (slice(None),) * (2 * key.ndim)

        def advance(_, state, begin, end):
            members, data = self._take(name, key, begin)
            rows = state.clients, state.residuals
            # Unused places read the last row, with weight zero.
            unused = (0, self.num_held - members.size)
            places = np.pad(members, unused, constant_values=self.data.num_clients - 1)
            part = jax.tree.map(lambda leaf: leaf[(*at, places)], rows)
            part = state._replace(clients=part[0], residuals=part[1])
            part, history = run.advance_donating(one, hparams, data, part, context)

            def write(leaf, new):
                # In place: a copy of a million clients' rows after every block would cost more than
                # the block.
                leaf[(*at, members)] = np.asarray(new)[(*at, slice(members.size))]

            jax.tree.map(write, rows, (part.clients, part.residuals))
            # One block is computed and one is queued; the buffer of the previous block is free.
            jax.block_until_ready(self._computing)
            self._computing = history
            return part._replace(clients=rows[0], residuals=rows[1]), history

        ends = [first + (1 + n) * self.eval_every for n in range(program.num_evaluations)]
        found = list(blocks(advance, state, ends, first=first))
        return found[-1].state, join_histories([block.history for block in found], 2 * key.ndim)

    def nobody(self) -> ClientData:
        """Return a block without clients, which has the shapes of all blocks."""
        return self._read(np.zeros(0, np.int32), self._buffer())

    def _take(self, name: bytes, key: Key, first: int) -> tuple[np.ndarray, ClientData]:
        """Return the block from round ``first``, and start to read the next one."""
        ahead, self._ahead = self._ahead, {}
        # Usually this is the block that was read ahead. For another key or an earlier round the
        # clients are read now, once the thread and the device no longer use the buffers.
        if (name, first) in ahead:
            found = ahead[name, first].result()
        else:
            concurrent.futures.wait(ahead.values())
            jax.block_until_ready(self._computing)
            found = self._held(self._members(name, key, first))
        # Drawn now, before the device is busy; the thread only reads.
        after = first + self.eval_every
        members = self._members(name, key, after)
        self._ahead = {(name, after): self._reader.submit(self._held, members)}
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
            rounds = first + np.arange(count * self.eval_every, dtype=np.int32)
            drawn = _drawn(self.plan, self._sized, jnp.atleast_1d(key), rounds)
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
        sizes, known = self._sizes[members], self.data
        starts = np.asarray(known.offsets)[members]

        def gathered(leaf, out):
            stored.read_rows(np.asarray(leaf), starts, sizes, out)
            # Clear what an earlier block left here: no result may depend on it.
            out[sizes.sum() :] = 0
            return out

        # Empty places have no rows and no weight, and name one client past the end.
        empty = (0, self.num_held - members.size)
        held = np.pad(members.astype(np.int32), empty, constant_values=known.num_clients)
        return dataclasses.replace(
            known,
            examples=jax.tree.map(gathered, known.examples, buffer),
            offsets=np.pad(np.append(0, np.cumsum(sizes)), empty, "edge").astype(np.int32),
            weights=np.pad(np.asarray(known.weights)[members], empty),
            held=self._all._replace(members=held),
        )


@jit_per(num_static=1)
def _drawn(plan: Plan, data: ClientData, keys: Key, rounds: Any):
    """Return members and presence in every round of a block, for each key."""

    def one(key, index):
        drawn = draw_cohort(plan, data, key, index)
        return drawn.indices, drawn.present

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(keys, rounds)
