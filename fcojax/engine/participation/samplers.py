"""Samplers: which clients take part in a round, as a function of a key and the round's index."""

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import shuffle
from fcojax.arguments import at_most, checked_value, validated
from fcojax.engine.participation.base import Draw, EqualSampler, Everyone, Sampler
from fcojax.types import Array, Count, Key, Real, Share


@dataclasses.dataclass(frozen=True)
class _FixedSize(Sampler):
    """Base class of samplers whose cohorts are always full."""

    cohort_size: int
    can_be_absent = False

    def size(self, num_clients: int) -> int:
        require_at_most(num_clients, self.cohort_size)
        return self.cohort_size


@dataclasses.dataclass(frozen=True)
class UniformCohort(_FixedSize, EqualSampler):
    """See ``uniform_cohort``."""

    def draw(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Draw:
        key = jax.random.fold_in(key, round_index)
        places = jnp.arange(self.cohort_size, dtype=jnp.int32)
        members = shuffle.permuted(key, num_clients, jnp.zeros_like(places), places)
        return Draw(members, jnp.ones(self.cohort_size, bool))


@dataclasses.dataclass(frozen=True)
class WeightedCohort(_FixedSize):
    """See ``weighted_cohort``."""

    power: float

    def draw(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Draw:
        if sizes is None:
            raise ValueError("weighted_cohort draws by size; pass the examples of each client.")
        noise = jax.random.gumbel(jax.random.fold_in(key, round_index), (num_clients,))
        # The k largest scores have the law of k draws without replacement, one after the other.
        score = noise + self.power * jnp.log(sizes.astype(noise.dtype))
        members = jax.lax.top_k(score, self.cohort_size)[1].astype(jnp.int32)
        return Draw(members, jnp.ones(self.cohort_size, bool))

    def inclusion(
        self, clients: Array, num_clients: int, sizes: Array | None = None
    ) -> Array | float:
        # Draws of several clients without replacement have no closed form.
        if self.cohort_size > 1 or sizes is None:
            return super().inclusion(clients, num_clients, sizes)
        powers = sizes.astype(float) ** self.power
        return powers[clients] / jnp.sum(powers)


@dataclasses.dataclass(frozen=True)
class CoinFlips(EqualSampler):
    """See ``coin_flips``."""

    probability: float

    def draw(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Draw:
        count_key, member_key = jax.random.split(jax.random.fold_in(key, round_index))
        # Given their number, the participants are a uniform cohort, which takes O(cohort) numbers
        # instead of one coin for each of M clients.
        count = jax.random.binomial(count_key, num_clients, self.probability)
        places = jnp.arange(self.size(num_clients), dtype=jnp.int32)
        members = shuffle.permuted(member_key, num_clients, jnp.zeros_like(places), places)
        return first_present(members, count.astype(jnp.int32))

    @validated
    def size(self, num_clients: Count) -> int:
        mean = num_clients * self.probability
        return places_within(num_clients, mean, mean * (1 - self.probability))

    def mean_size(self, num_clients: int) -> float:
        return num_clients * self.probability


@dataclasses.dataclass(frozen=True)
class UnequalCoinFlips(Sampler):
    """See ``coin_flips``."""

    shares: tuple[float, ...]

    def __repr__(self) -> str:
        least, most = min(self.shares), max(self.shares)
        return f"UnequalCoinFlips({len(self.shares)} clients, {least:g} to {most:g})"

    def draw(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Draw:
        key = jax.random.fold_in(key, round_index)
        heads = jax.random.uniform(key, (num_clients,)) < jnp.asarray(self.shares)
        members = jnp.nonzero(heads, size=self.size(num_clients), fill_value=0)[0]
        return first_present(members.astype(jnp.int32), jnp.sum(heads, dtype=jnp.int32))

    def size(self, num_clients: int) -> int:
        if len(self.shares) != num_clients:
            raise ValueError(
                f"coin_flips has probabilities of {len(self.shares)} clients but the problem has "
                f"{num_clients}; pass one for each, or one number for all."
            )
        shares = np.asarray(self.shares)
        return places_within(num_clients, shares.sum(), (shares * (1 - shares)).sum())

    def mean_size(self, num_clients: int) -> float:
        return sum(self.shares)

    def inclusion(
        self, clients: Array, num_clients: int, sizes: Array | None = None
    ) -> Array | float:
        return jnp.asarray(self.shares)[clients]


@dataclasses.dataclass(frozen=True)
class DerivedSampler(Sampler):
    """Base class of samplers that change the draws of another one."""

    sampler: Sampler

    def size(self, num_clients: int) -> int:
        return self.sampler.size(num_clients)

    def mean_size(self, num_clients: int) -> float:
        return self.sampler.mean_size(num_clients)

    def inclusion(
        self, clients: Array, num_clients: int, sizes: Array | None = None
    ) -> Array | float:
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

    def draw(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Draw:
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
    large clients, as the pooled data do.

    All clients are drawn at once, as the largest of :math:`b \log n_m` plus Gumbel noise. This
    takes O(M) for a population of M clients, where a uniform draw takes O(cohort_size).

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
      Efraimidis and Spirakis, "Weighted random sampling with a reservoir", Inf. Process. Lett.
      2006; Li, Huang, Yang, Wang and Zhang, "On the convergence of FedAvg on non-IID data", ICLR
      2020, scheme I, which draws by size with replacement and averages equally.
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


def first_present(members: Array, count: Array) -> Draw:
    """Return a cohort in which only the first ``count`` places are present."""
    return Draw(members, jnp.arange(members.shape[0], dtype=jnp.int32) < count)


def places_within(num_clients: int, mean: float, variance: float) -> int:
    """Return a number that a sum of independent coins exceeds with probability below 1e-12."""
    # Eight deviations bound a normal tail by 1e-15. The second 8 is for small means, whose tail is
    # longer: with mean 1 there are 17 places, and a Poisson variable exceeds 17 with probability
    # 1e-16.
    return min(num_clients, math.ceil(mean + 8 * math.sqrt(variance) + 8))


def require_at_most(num_clients: int, cohort_size: int) -> None:
    """Raise ``ValueError`` if the cohort is larger than the population."""
    clients = f" but the problem has {num_clients} clients"
    at_most("cohort_size", cohort_size, num_clients, clients, ", or use everyone()")
