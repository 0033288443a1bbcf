"""Samplers of populations whose clients are available only in some rounds.

Each sampler takes all available clients, or ``cohort_size`` of them uniformly at random; if fewer
than that are available, all of them.
"""

import dataclasses
import hashlib
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import shuffle
from fcojax.arguments import at_most, shown, validated
from fcojax.engine.participation.base import Draw, Sampler
from fcojax.engine.participation.samplers import first_present
from fcojax.types import Array, Count, Key


@dataclasses.dataclass(frozen=True)
class Cyclic(Sampler):
    """See ``cyclic``."""

    num_groups: int
    cohort_size: int | None

    def draw(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Draw:
        group = round_index.astype(jnp.int32) % self.num_groups
        # The first `num_larger` groups have one client more.
        smallest, num_larger = divmod(num_clients, self.num_groups)
        first = group * smallest + jnp.minimum(group, num_larger)
        group_size = smallest + (group < num_larger).astype(jnp.int32)
        places = jnp.arange(self.size(num_clients), dtype=jnp.int32)
        if self.cohort_size is not None:
            key = jax.random.fold_in(key, round_index)
            # Group sizes are traced, as the group depends on the round; `permuted` allows that.
            places = shuffle.permuted(key, group_size, jnp.zeros_like(places), places)
        return first_present(first + places, group_size)

    def size(self, num_clients: int) -> int:
        clients = f" but the problem has {num_clients} clients"
        # More groups than clients would leave rounds without anybody.
        at_most("num_groups", self.num_groups, num_clients, clients)
        smallest = num_clients // self.num_groups
        if self.cohort_size is None:
            return -(-num_clients // self.num_groups)
        clients = f" but the smallest of {self.num_groups} groups has {smallest} clients"
        whole = ", or None for the whole group"
        return at_most("cohort_size", self.cohort_size, smallest, clients, whole)

    def mean_size(self, num_clients: int) -> float:
        # Where groups differ by one client, the places of the smaller ones are not all filled.
        return self.cohort_size or num_clients / self.num_groups

    def inclusion(
        self, clients: Array, num_clients: int, sizes: Array | None = None
    ) -> Array | float:
        if self.cohort_size is None:
            return 1 / self.num_groups
        smallest, num_larger = divmod(num_clients, self.num_groups)
        group_size = jnp.where(clients < num_larger * (smallest + 1), smallest + 1, smallest)
        return self.cohort_size / (self.num_groups * group_size)

    by_round = True

    @property
    def can_be_absent(self) -> bool:
        return self.cohort_size is None


@dataclasses.dataclass(frozen=True)
class Trace(Sampler):
    """See ``from_trace``; members are bytes, whose hash is computed once.

    Attributes:
      num_clients: clients of the trace; ``None`` if it lists members and may name only some.
      num_named: one more than the largest client it names.
      width: members of the busiest round.
      starts: where each round's members begin in ``members``, and the end, as int32.
      members: the clients of each round, one round after the other, as int32.
      cohort_size: how many available clients take part, or ``None``.
    """

    num_clients: int | None
    num_named: int
    width: int
    starts: bytes
    members: bytes
    cohort_size: int | None

    def __repr__(self) -> str:
        # Short, because it appears in messages and in names of results; the bytes may be megabytes.
        content = hashlib.sha256(self.starts + self.members).hexdigest()[:16]
        return f"Trace(sha256={content}, cohort_size={self.cohort_size})"

    def draw(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Draw:
        starts = np.frombuffer(self.starts, np.int32)
        # After its last round the trace repeats; `starts` has one entry more than there are rounds.
        row = jnp.asarray(round_index, jnp.int32) % (starts.size - 1)
        start, end = jnp.asarray(starts)[row], jnp.asarray(starts)[row + 1]
        places = jnp.arange(self.size(num_clients), dtype=jnp.int32)
        positions = places
        if self.cohort_size is not None:
            key = jax.random.fold_in(key, round_index)
            positions = shuffle.permuted(key, end - start, jnp.zeros_like(places), places)
        flat = jnp.asarray(np.frombuffer(self.members, np.int32))
        # Places beyond this round's clients are absent, so they may read anything.
        members = flat[jnp.minimum(start + positions, flat.size - 1)]
        return first_present(members, end - start)

    by_round = True

    @property
    def can_be_absent(self) -> bool:
        # If all rounds fill their places, no branch is compiled, whose operands XLA would copy.
        fewest = np.diff(np.frombuffer(self.starts, np.int32)).min()
        return bool(fewest < min(self.cohort_size or self.width, self.width))

    def inclusion(
        self, clients: Array, num_clients: int, sizes: Array | None = None
    ) -> Array | float:
        counts = np.diff(np.frombuffer(self.starts, np.int32))
        # In a round with more available clients than places, each is drawn with this probability.
        each = np.minimum(1, (self.cohort_size or self.width) / np.maximum(counts, 1))
        members = np.frombuffer(self.members, np.int32)
        share = np.bincount(members, np.repeat(each, counts), num_clients) / counts.size
        return jnp.asarray(share)[clients]

    def size(self, num_clients: int) -> int:
        if self.num_clients not in (None, num_clients) or self.num_named > num_clients:
            has = f"names client {self.num_named - 1}, counted from zero,"
            if self.num_clients is not None:
                has = f"has {self.num_clients} clients"
            raise ValueError(
                f"the trace {has} but the problem has {num_clients} clients; pass a trace of the "
                "problem's clients."
            )
        return min(self.cohort_size or self.width, self.width)


@validated
def cyclic(*, num_groups: Count, cohort_size: Count | None = None) -> Sampler:
    """Groups of clients that are available in turn: group r modulo ``num_groups`` in round r.

    Groups are contiguous in the order of the population, and their sizes differ by at most one.
    Without ``cohort_size`` the cohorts are deterministic.

    Args:
      num_groups: number of groups.
      cohort_size: number of clients of the group that take part; ``None`` for all of them.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp
      >>> sampler, key = fcojax.cyclic(num_groups=2), jax.random.key(0)
      >>> [sampler.draw(key, jnp.int32(r), 6).members.tolist() for r in range(3)]
      [[0, 1, 2], [3, 4, 5], [0, 1, 2]]

    References:
      Cho, Sharma, Joshi, Xu, Kale and Zhang, "On the convergence of federated averaging with
      cyclic client participation", ICML 2023.
    """
    return Cyclic(num_groups, cohort_size)


@validated
def from_trace(
    trace: np.ndarray | Sequence[Sequence[int]], *, cohort_size: Count | None = None
) -> Sampler:
    """Availability from a recorded trace, which starts again after its last round.

    The trace is a constant of the compiled program, with four bytes for each available client of
    each round.

    Args:
      trace: a matrix of truth values or of zeros and ones, [rounds, clients]; or for each round a
        list of the available clients.
      cohort_size: number of available clients that take part; ``None`` for all of them.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> sampler = from_trace([[0, 2], [1]])
      >>> draw = sampler.draw(jax.random.key(0), jnp.array(2), 3)
      >>> draw.members.tolist(), draw.present.tolist()
      ([0, 2], [True, True])
    """
    if isinstance(trace, np.ndarray | jax.Array):
        matrix = np.asarray(trace)
        if matrix.ndim != 2 or not np.isin(matrix, (0, 1)).all():
            raise ValueError(
                f"the trace is a matrix of shape {matrix.shape}; pass [rounds, clients] with "
                "entries that are true or false, 1 or 0."
            )
        num_clients, rounds = matrix.shape[1], [np.flatnonzero(row) for row in matrix]
    else:
        num_clients = None
        rounds = [_members(index, clients) for index, clients in enumerate(trace)]
    # Lists of clients in one vector: the matrix of a sparse trace would be mostly zeros.
    counts = np.array([members.size for members in rounds], np.int64)
    if not counts.any():
        raise ValueError(
            "no client is available in any round of the trace; pass one with clients in it."
        )
    members = np.concatenate(rounds).astype(np.int32)
    return Trace(
        num_clients=num_clients,
        num_named=int(members.max()) + 1,
        width=int(counts.max()),
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32).tobytes(),
        members=members.tobytes(),
        cohort_size=cohort_size,
    )


def _members(index: int, clients: Sequence[int]) -> np.ndarray:
    members = np.asarray(clients)
    if not members.size:
        return members.astype(np.int64)
    fits = members.dtype.kind in "iu" and members.min() >= 0
    fits = fits and members.max() < np.iinfo(np.int32).max
    if not fits or np.unique(members).size < members.size:
        raise ValueError(
            f"round {index} of the trace is {shown(clients)}; pass distinct client indices from "
            "zero, or an array of truth values."
        )
    return np.sort(members)
