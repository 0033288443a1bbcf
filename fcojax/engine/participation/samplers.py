"""Samplers: which clients take part in a round, as a function of a key and the round's index.

A sampler is a small hashable value, so two equal samplers share one compiled program. Where
possible, drawing takes time and memory in proportion to the cohort, not to the population. A
sampler decides only who takes part: the mean keeps the weights p_m of the objective, which stateful
algorithms such as SCAFFOLD need.
"""

import dataclasses
import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import shuffle
from fcojax.arguments import at_most, validated
from fcojax.types import Array, Count, Key, Probability, Real, Share

# Rounds count up from 0 and are folded into the key; the largest integers are for other streams.
LOST_UPLOADS, CHAINS = 0xFFFFFFFF, 0xFFFFFFFE


class Draw(NamedTuple):
    """The cohort of one round.

    Attributes:
      members: distinct client indices as int32, or ``None`` for all clients in their order, with
        no gather. An absent place may hold any index.
      present: for each member whether it takes part.
      arrives: for each member whether its upload reaches the server, or ``None`` if all do. A
        client whose upload is lost keeps the state that it had before the round.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp
      >>> draw = fcojax.uniform_cohort(cohort_size=2).draw(jax.random.key(0), jnp.int32(0), 8)
      >>> draw.members.shape, draw.present.tolist(), draw.arrives
      ((2,), [True, True], None)
    """

    members: Array | None
    present: Array
    arrives: Array | None = None

    @property
    def indices(self) -> Array:
        """The members as indices, also if ``members`` is ``None``."""
        # Made on demand, because a gather by these would copy the rows of everyone.
        if self.members is None:
            return jnp.arange(self.present.shape[0], dtype=jnp.int32)
        return self.members


class Sampler:
    """Base class of samplers: subclasses define ``draw`` and ``size``.

    Write a subclass as a frozen dataclass, so that equal samplers share their compiled programs. A
    draw may depend on the key, the round and the clients' sizes, never on the model or losses. A
    subclass whose places are always present sets ``can_be_absent = False``. Otherwise it is refused
    for algorithms that need every client in every round, such as ``fed_pd``.

    Attributes:
      can_be_absent: whether a place may be absent in some round.
      loses_uploads: whether uploads may be lost.

    Example:
      >>> import dataclasses, jax.numpy as jnp
      >>> from fcojax.engine.participation.samplers import Draw, Sampler
      >>> @dataclasses.dataclass(frozen=True)
      ... class First(Sampler):
      ...     cohort_size: int
      ...     def draw(self, key, round_index, num_clients, sizes=None):
      ...         members = jnp.arange(self.cohort_size, dtype=jnp.int32)
      ...         return Draw(members, jnp.ones(self.cohort_size, bool))
      ...     def size(self, num_clients):
      ...         return self.cohort_size
      >>> First(3).draw(None, 0, 10).members.tolist()
      [0, 1, 2]
    """

    example: ClassVar[str] = "everyone()"
    can_be_absent = True
    loses_uploads = False

    def draw(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Draw:
        """Draw the cohort of one round.

        Args:
          key: the run's key, the same in every round, so that a sampler can have memory. Use
            ``jax.random.fold_in(key, round_index)`` for independent rounds.
          round_index: index of the round, from 0, as int32.
          num_clients: size of the population.
          sizes: number of examples of each client, for samplers that depend on it.

        Returns:
          The cohort, with ``size(num_clients)`` places.
        """
        raise NotImplementedError

    def size(self, num_clients: int) -> int:
        """Return the number of places in a cohort, absent ones included.

        Args:
          num_clients: size of the population; raise ``ValueError`` if it is too small for the
            cohort, since members would repeat.
        """
        raise NotImplementedError

    def mean_size(self, num_clients: int) -> float:
        """Return the mean number of clients that take part; by default all places.

        Uploads with noise are divided by it; override it where cohorts vary in size.

        Args:
          num_clients: size of the population.
        """
        return self.size(num_clients)


@dataclasses.dataclass(frozen=True)
class Everyone(Sampler):
    """See ``everyone``."""

    can_be_absent = False

    def draw(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Draw:
        return Draw(None, jnp.ones(num_clients, bool))

    def size(self, num_clients: int) -> int:
        return num_clients


@dataclasses.dataclass(frozen=True)
class _FixedSize(Sampler):
    """Base class of samplers whose cohorts are always full."""

    cohort_size: int
    can_be_absent = False

    def size(self, num_clients: int) -> int:
        require_at_most(num_clients, self.cohort_size)
        return self.cohort_size


@dataclasses.dataclass(frozen=True)
class UniformCohort(_FixedSize):
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


@dataclasses.dataclass(frozen=True)
class CoinFlips(Sampler):
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
        return places_for(num_clients, self.probability)

    def mean_size(self, num_clients: int) -> float:
        return num_clients * self.probability


@dataclasses.dataclass(frozen=True)
class Dropout(Sampler):
    """See ``dropout``."""

    sampler: Sampler
    probability: float
    loses_uploads = True

    def draw(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Draw:
        # The same key, so that the sampler draws the cohorts that it draws without losses.
        drawn = self.sampler.draw(key, round_index, num_clients, sizes)
        # Hashed by client and not by place, so that a loss does not depend on the rest of the
        # cohort.
        word = shuffle.words(jax.random.fold_in(key, LOST_UPLOADS), round_index, drawn.indices)
        return drawn._replace(arrives=~shuffle.heads(word, self.probability))

    def size(self, num_clients: int) -> int:
        return self.sampler.size(num_clients)

    def mean_size(self, num_clients: int) -> float:
        return self.sampler.mean_size(num_clients)

    @property
    def can_be_absent(self) -> bool:
        return self.sampler.can_be_absent


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
def coin_flips(probability: Share) -> Sampler:
    """Independent participation: each client takes part with the same probability (Poisson).

    The number of participants is drawn first and then that many distinct clients, which is the same
    law at a cost in proportion to the cohort. The cohort has places for the mean plus eight
    standard deviations; a larger draw is cut off, which has probability below 1e-12.

    Args:
      probability: the probability that a client takes part.

    Example:
      >>> import fcojax
      >>> fcojax.coin_flips(0.1).size(10_000)  # a mean of 1,000 and eight deviations of 30
      1248
    """
    return CoinFlips(float(probability))


@validated
def dropout(sampler: Sampler, probability: Probability) -> Sampler:
    """The cohorts of another sampler, with uploads that are lost at random.

    A client whose upload is lost keeps the state that it had before the round. Losses are
    independent over clients and rounds and are counted in ``history["lost"]``. The cohorts are
    those that ``sampler`` draws without losses.

    Args:
      sampler: draws the cohorts.
      probability: the probability that an upload is lost.

    Example:
      >>> import fcojax
      >>> sampler = fcojax.dropout(fcojax.uniform_cohort(cohort_size=4), probability=0.3)
      >>> sampler.size(20)  # 4 clients work, 2.8 uploads arrive on average
      4
    """
    if isinstance(sampler, Dropout):
        raise ValueError("the sampler drops uploads already; give one dropout both probabilities.")
    return Dropout(sampler, float(probability))


def first_present(members: Array, count: Array) -> Draw:
    """Return a cohort in which only the first ``count`` places are present."""
    return Draw(members, jnp.arange(members.shape[0], dtype=jnp.int32) < count)


def places_for(num_clients: int, probability: float) -> int:
    """Return a number that a binomial variable exceeds with probability below 1e-12."""
    mean = num_clients * probability
    deviation = math.sqrt(mean * (1 - probability))
    # Eight deviations bound a normal tail by 1e-15. The second 8 is for small means, whose tail is
    # longer: with mean 1 there are 17 places, and a Poisson variable exceeds 17 with probability
    # 1e-16.
    return min(num_clients, math.ceil(mean + 8 * deviation + 8))


def require_at_most(num_clients: int, cohort_size: int) -> None:
    """Raise ``ValueError`` if the cohort is larger than the population."""
    clients = f" but the problem has {num_clients} clients"
    at_most("cohort_size", cohort_size, num_clients, clients, ", or use everyone()")
