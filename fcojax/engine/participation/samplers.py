"""Samplers: which clients take part in a round, as a function of a key and the round's index.

Those of clients that are available only in some rounds, ``cyclic`` and ``from_trace``, take all
that are, or ``cohort_size`` of them uniformly at random; if fewer are available, all of them.
"""

import dataclasses
import hashlib
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import shuffle
from fcojax.arguments import at_most, checked_value, shown, validated
from fcojax.engine.plan import Draw, Everyone, Sampler
from fcojax.types import Array, Count, Key, Real, Share


class EqualSampler(Sampler):
    """Base class of samplers that draw all clients with the same probability."""

    def inclusion(self, clients, num_clients, sizes=None) -> Array | float:
        return self.mean_size(num_clients) / num_clients


@dataclasses.dataclass(frozen=True)
class _FixedSize(Sampler):
    """Base class of samplers whose cohorts are always full."""

    cohort_size: int
    can_be_absent = False

    def size(self, num_clients: int) -> int:
        clients = f" but the problem has {num_clients} clients"
        otherwise = ", or use everyone()"
        return at_most("cohort_size", self.cohort_size, num_clients, clients, otherwise)


@dataclasses.dataclass(frozen=True)
class UniformCohort(_FixedSize, EqualSampler):
    """See ``uniform_cohort``."""

    def draw(self, key, round_index, num_clients, sizes=None) -> Draw:
        key = jax.random.fold_in(key, round_index)
        members = _distinct(key, num_clients, self.cohort_size)
        return Draw(members, jnp.ones(self.cohort_size, bool))


@dataclasses.dataclass(frozen=True)
class WeightedCohort(_FixedSize):
    """See ``weighted_cohort``."""

    power: float

    def draw(self, key, round_index, num_clients, sizes=None) -> Draw:
        if sizes is None:
            raise ValueError("weighted_cohort draws by size; pass the examples of each client.")
        noise = jax.random.gumbel(jax.random.fold_in(key, round_index), (num_clients,))
        # The k largest scores have the law of k draws without replacement, one after the other.
        score = noise + self.power * jnp.log(sizes.astype(noise.dtype))
        members = jax.lax.top_k(score, self.cohort_size)[1].astype(jnp.int32)
        return Draw(members, jnp.ones(self.cohort_size, bool))

    def inclusion(self, clients, num_clients, sizes=None) -> Array | float:
        # Draws of several clients without replacement have no closed form.
        if self.cohort_size > 1 or sizes is None:
            return super().inclusion(clients, num_clients, sizes)
        powers = sizes.astype(float) ** self.power
        return powers[clients] / jnp.sum(powers)


@dataclasses.dataclass(frozen=True)
class CoinFlips(EqualSampler):
    """See ``coin_flips``."""

    probability: float

    def draw(self, key, round_index, num_clients, sizes=None) -> Draw:
        count_key, member_key = jax.random.split(jax.random.fold_in(key, round_index))
        # Given their number, the participants are a uniform cohort, which takes O(cohort) numbers
        # instead of one coin for each of M clients.
        count = jax.random.binomial(count_key, num_clients, self.probability)
        members = _distinct(member_key, num_clients, self.size(num_clients))
        return _first_present(members, count.astype(jnp.int32))

    @validated
    def size(self, num_clients: Count) -> int:
        mean = num_clients * self.probability
        return _places_within(num_clients, mean, mean * (1 - self.probability))

    def mean_size(self, num_clients: int) -> float:
        return num_clients * self.probability


@dataclasses.dataclass(frozen=True)
class UnequalCoinFlips(Sampler):
    """See ``coin_flips``."""

    shares: tuple[float, ...]

    def __repr__(self) -> str:
        least, most = min(self.shares), max(self.shares)
        return f"UnequalCoinFlips({len(self.shares)} clients, {least:g} to {most:g})"

    def draw(self, key, round_index, num_clients, sizes=None) -> Draw:
        key = jax.random.fold_in(key, round_index)
        heads = jax.random.uniform(key, (num_clients,)) < jnp.asarray(self.shares)
        members = jnp.nonzero(heads, size=self.size(num_clients), fill_value=0)[0]
        return _first_present(members.astype(jnp.int32), jnp.sum(heads, dtype=jnp.int32))

    def size(self, num_clients: int) -> int:
        if len(self.shares) != num_clients:
            raise ValueError(
                f"coin_flips has probabilities of {len(self.shares)} clients but the problem has "
                f"{num_clients}; pass one for each, or one number for all."
            )
        shares = np.asarray(self.shares)
        return _places_within(num_clients, shares.sum(), (shares * (1 - shares)).sum())

    def mean_size(self, num_clients: int) -> float:
        return sum(self.shares)

    def inclusion(self, clients, num_clients, sizes=None) -> Array | float:
        return jnp.asarray(self.shares)[clients]


@dataclasses.dataclass(frozen=True)
class Cyclic(Sampler):
    """See ``cyclic``."""

    num_groups: int
    cohort_size: int | None

    def draw(self, key, round_index, num_clients, sizes=None) -> Draw:
        group = round_index.astype(jnp.int32) % self.num_groups
        # The first `num_larger` groups have one client more.
        smallest, num_larger = divmod(num_clients, self.num_groups)
        first = group * smallest + jnp.minimum(group, num_larger)
        group_size = smallest + (group < num_larger).astype(jnp.int32)
        places = jnp.arange(self.size(num_clients), dtype=jnp.int32)
        if self.cohort_size is not None:
            places = _distinct(jax.random.fold_in(key, round_index), group_size, places.size)
        return _first_present(first + places, group_size)

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

    def inclusion(self, clients, num_clients, sizes=None) -> Array | float:
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
    """See ``from_trace``.

    Attributes:
      num_clients: clients of the trace; ``None`` if it lists members and may name only some.
      starts: where each round's members begin in ``members``, and the end, as bytes of int32.
      members: the clients of each round, one round after the other, as bytes of int32.
      cohort_size: how many available clients take part, or ``None``.
    """

    num_clients: int | None
    starts: bytes
    members: bytes
    cohort_size: int | None

    def __repr__(self) -> str:
        # Short, because it appears in messages and in names of results; the bytes may be megabytes.
        content = hashlib.sha256(self.starts + self.members).hexdigest()[:16]
        return f"Trace(sha256={content}, cohort_size={self.cohort_size})"

    @property
    def _counts(self) -> np.ndarray:
        return np.diff(np.frombuffer(self.starts, np.int32))

    @property
    def _num_places(self) -> int:
        most = int(self._counts.max())
        return min(self.cohort_size or most, most)

    def draw(self, key, round_index, num_clients, sizes=None) -> Draw:
        starts = jnp.asarray(np.frombuffer(self.starts, np.int32))
        # After its last round the trace repeats; `starts` has one entry more than there are rounds.
        row = jnp.asarray(round_index, jnp.int32) % (starts.size - 1)
        start, end = starts[row], starts[row + 1]
        places = jnp.arange(self.size(num_clients), dtype=jnp.int32)
        if self.cohort_size is not None:
            places = _distinct(jax.random.fold_in(key, round_index), end - start, places.size)
        flat = jnp.asarray(np.frombuffer(self.members, np.int32))
        # Places beyond this round's clients are absent, so they may read anything.
        members = flat[jnp.minimum(start + places, flat.size - 1)]
        return _first_present(members, end - start)

    by_round = True

    @property
    def can_be_absent(self) -> bool:
        # If all rounds fill their places, no branch is compiled, whose operands XLA would copy.
        return bool(self._counts.min() < self._num_places)

    def inclusion(self, clients, num_clients, sizes=None) -> Array | float:
        # In a round with more available clients than places, each is drawn with this probability.
        each = np.minimum(1, self._num_places / np.maximum(self._counts, 1))
        members = np.frombuffer(self.members, np.int32)
        share = np.bincount(members, np.repeat(each, self._counts), num_clients) / each.size
        return jnp.asarray(share)[clients]

    def size(self, num_clients: int) -> int:
        last = int(np.frombuffer(self.members, np.int32).max())
        if self.num_clients not in (None, num_clients) or last >= num_clients:
            has = f"has {self.num_clients} clients"
            if self.num_clients is None:
                has = f"names client {last}, counted from zero,"
            raise ValueError(
                f"the trace {has} but the problem has {num_clients} clients; pass a trace of the "
                "problem's clients."
            )
        return self._num_places


@dataclasses.dataclass(frozen=True)
class DerivedSampler(Sampler):
    """Base class of samplers that change the draws of another one."""

    sampler: Sampler

    def size(self, num_clients: int) -> int:
        return self.sampler.size(num_clients)

    def mean_size(self, num_clients: int) -> float:
        return self.sampler.mean_size(num_clients)

    def inclusion(self, clients, num_clients, sizes=None) -> Array | float:
        return self.sampler.inclusion(clients, num_clients, sizes)

    @property
    def can_be_absent(self) -> bool:
        return self.sampler.can_be_absent

    @property
    def by_round(self) -> bool:
        return self.sampler.by_round


@dataclasses.dataclass(frozen=True)
class Held(DerivedSampler):
    """See ``held``."""

    rounds: int

    def draw(self, key, round_index, num_clients, sizes=None) -> Draw:
        return self.sampler.draw(key, round_index // self.rounds, num_clients, sizes)


def everyone() -> Sampler:
    """All clients in every round.

    Example:
      >>> import fcojax
      >>> fcojax.everyone().size(1000)
      1000
    """
    return Everyone()


@validated
def uniform_cohort(*, cohort_size: Count) -> Sampler:
    """Distinct clients drawn uniformly at random in each round.

    Args:
      cohort_size: number of clients in a round.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp
      >>> draw = fcojax.uniform_cohort(cohort_size=3).draw(jax.random.key(0), jnp.int32(0), 12)
      >>> len(set(draw.members.tolist()))
      3
    """
    return UniformCohort(cohort_size)


@validated
def weighted_cohort(*, cohort_size: Count, power: Real = 1.0) -> Sampler:
    r"""Distinct clients drawn in each round with probabilities that depend on their size.

    Clients are drawn one after the other: the next one is client m with probability
    :math:`n_m^b / \sum_j n_j^b`, the sum over clients not drawn yet, where :math:`n_m` is the
    number of examples of a client and b is ``power``. With equal weights p_m the mean then favours
    large clients, as the pooled data do. A draw takes O(M) for a population of M clients.

    Args:
      cohort_size: number of clients in a round.
      power: b; 0 for equal probabilities.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp
      >>> sizes = jnp.array([1, 1, 1_000_000, 1])
      >>> sampler = fcojax.weighted_cohort(cohort_size=1)
      >>> sampler.draw(jax.random.key(0), jnp.int32(0), 4, sizes).members.tolist()
      [2]

    References:
      Li, Huang, Yang, Wang and Zhang, "On the convergence of FedAvg on non-IID data", ICLR 2020,
      scheme I, which draws by size with replacement and averages equally.
    """
    return WeightedCohort(cohort_size, float(power))


@validated
def coin_flips(probability: float | Sequence[float] | np.ndarray) -> Sampler:
    """Independent participation: each client takes part with its probability (Poisson).

    With one probability the number of participants is drawn first and then that many distinct
    clients, which is the same law at a cost in proportion to the cohort; with one for each client a
    draw takes O(M) for M clients. The cohort has places for the mean plus eight standard
    deviations; a larger draw is cut off, which has probability below 1e-12.

    Args:
      probability: the probability that a client takes part; or one for each client. If they differ,
        the plain mean of the uploads favours clients that are often there: see
        ``uploads.inverse_probability``.

    Example:
      >>> import fcojax
      >>> fcojax.coin_flips(0.1).size(10_000)  # a mean of 1,000 and eight deviations of 30
      1248
      >>> fcojax.coin_flips([0.5, 0.1, 0.1]).mean_size(3)
      0.7
    """
    if np.ndim(probability) == 0:
        return CoinFlips(float(checked_value("probability", probability, Share)))
    if np.ndim(probability) > 1:
        raise ValueError(f"probability has {np.ndim(probability)} axes; pass one for each client.")
    shares = [
        float(checked_value(f"probability of client {client}", share, Share))
        for client, share in enumerate(np.asarray(probability).tolist())
    ]
    return UnequalCoinFlips(tuple(shares))


@validated
def held(sampler: Sampler, *, rounds: Count = 2) -> Sampler:
    """The cohorts of another sampler, each held for several rounds.

    For methods that exchange more than once with the same clients: ``held(sampler, rounds=2)`` runs
    each round of ``mime`` or ``r_fed_svrg``, which is two rounds of the engine, with one cohort.

    Args:
      sampler: draws the cohorts.
      rounds: number of rounds of each cohort.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp
      >>> sampler, key = fcojax.held(fcojax.cyclic(num_groups=2), rounds=2), jax.random.key(0)
      >>> [sampler.draw(key, jnp.int32(r), 4).members.tolist() for r in range(4)]
      [[0, 1], [0, 1], [2, 3], [2, 3]]
    """
    return Held(sampler, rounds)


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
      trace: a matrix of truth values, or of 0 and 1, [rounds, clients]; or for each round a list of
        the available clients.
      cohort_size: number of available clients that take part; ``None`` for all of them.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> sampler = from_trace([[0, 2], [1]])
      >>> draw = sampler.draw(jax.random.key(0), jnp.array(2), 3)
      >>> draw.members.tolist(), draw.present.tolist()
      ([0, 2], [True, True])
    """
    num_clients = None
    if isinstance(trace, np.ndarray | jax.Array):
        matrix = np.asarray(trace)
        if matrix.ndim != 2 or not np.isin(matrix, (0, 1)).all():
            raise ValueError(
                f"the trace is a matrix of shape {matrix.shape}; pass [rounds, clients] with "
                "entries that are true or false, 1 or 0."
            )
        num_clients, rounds = matrix.shape[1], [np.flatnonzero(row) for row in matrix]
    else:
        rounds = [_members(index, clients) for index, clients in enumerate(trace)]
    if not any(members.size for members in rounds):
        raise ValueError(
            "no client is available in any round of the trace; pass one with clients in it."
        )
    # Lists of clients in one vector: the matrix of a sparse trace would be mostly zeros.
    starts = np.cumsum([0, *(members.size for members in rounds)])
    starts, members = (x.astype(np.int32).tobytes() for x in (starts, np.concatenate(rounds)))
    return Trace(num_clients, starts, members, cohort_size)


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


def _distinct(key: Key, size: Array | int, count: int) -> Array:
    """Return different members of ``range(size)``, whose end may be traced, in a random order."""
    places = jnp.arange(count, dtype=jnp.int32)
    return shuffle.permuted(key, size, jnp.zeros_like(places), places)


def _first_present(members: Array, count: Array) -> Draw:
    """Return a cohort in which only the first ``count`` places are present."""
    return Draw(members, jnp.arange(members.shape[0], dtype=jnp.int32) < count)


def _places_within(num_clients: int, mean: float, variance: float) -> int:
    """Return a number that a sum of independent coins exceeds with probability below 1e-12."""
    # Eight deviations bound a normal tail by 1e-15. The second 8 is for small means, whose tail is
    # longer: with mean 1 there are 17 places, and a Poisson variable exceeds 17 with probability
    # 1e-16.
    return min(num_clients, math.ceil(mean + 8 * math.sqrt(variance) + 8))
