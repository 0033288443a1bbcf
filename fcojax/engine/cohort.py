"""Who takes part in a round, as a function of a key and the round's number.

A sampler is a small value, not a closure: two equal samplers are one compiled program. Drawing
costs work and memory in proportion to the cohort and not to the population, where the law allows.
A sampler says who takes part and nothing of what they weigh: the mean keeps the weights p_m of the
objective, on which the conservation laws of stateful algorithms rest.
"""

import math
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from fcojax import shuffle
from fcojax.algorithms.base import Cohort
from fcojax.algorithms.work import as_number, checked_count
from fcojax.problems.fields import shown
from fcojax.types import Array, Key

# Rounds count upwards from zero and are folded into the key, so streams that are not a round's own
# are named from the top.
LOST_UPLOADS, CHAINS = 0xFFFFFFFF, 0xFFFFFFFE


@runtime_checkable
class Sampler(Protocol):
    """``(key, round, num_clients, sizes) -> Cohort`` with a size known before tracing."""

    def __call__(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Cohort:
        """Draws the cohort of one round.

        Args:
          key: the same in every round, so that a law may have a memory; a law without one folds
            the round in.
          round_index: which round, from zero.
          num_clients: M.
          sizes: examples of each client, for laws that look at them.

        Returns:
          The cohort, with ``fraction`` by head count; the engine weighs it.
        """
        ...

    def size(self, num_clients: int) -> int:
        """Places in the cohort, absent ones included; raises if the population does not fit."""
        ...

    @property
    def can_be_absent(self) -> bool:
        """Whether places may be empty, so that skipping them is worth a branch."""
        ...


class Everyone(NamedTuple):
    """See ``everyone``."""

    def __call__(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Cohort:
        return Cohort(None, jnp.ones(num_clients), jnp.ones(()))

    def size(self, num_clients: int) -> int:
        return num_clients

    @property
    def can_be_absent(self) -> bool:
        return False


class UniformCohort(NamedTuple):
    """See ``uniform_cohort``."""

    cohort_size: int

    def __call__(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Cohort:
        key = jax.random.fold_in(key, round_index)
        places = jnp.arange(self.cohort_size, dtype=jnp.int32)
        members = shuffle.permuted(key, num_clients, jnp.zeros_like(places), places)
        return Cohort(
            members, jnp.ones(self.cohort_size), jnp.asarray(self.cohort_size / num_clients)
        )

    def size(self, num_clients: int) -> int:
        refuse_more_than(num_clients, self.cohort_size)
        return self.cohort_size

    @property
    def can_be_absent(self) -> bool:
        return False


class WeightedCohort(NamedTuple):
    """See ``weighted_cohort``."""

    cohort_size: int
    power: float

    def __call__(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Cohort:
        if sizes is None:
            raise ValueError("weighted_cohort draws by size; pass the examples of each client.")
        luck = jax.random.gumbel(jax.random.fold_in(key, round_index), (num_clients,))
        score = luck + self.power * jnp.log(sizes.astype(luck.dtype))
        members = jax.lax.top_k(score, self.cohort_size)[1].astype(jnp.int32)
        return Cohort(
            members, jnp.ones(self.cohort_size), jnp.asarray(self.cohort_size / num_clients)
        )

    def size(self, num_clients: int) -> int:
        refuse_more_than(num_clients, self.cohort_size)
        return self.cohort_size

    @property
    def can_be_absent(self) -> bool:
        return False


class CoinFlips(NamedTuple):
    """See ``coin_flips``."""

    probability: float

    def __call__(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Cohort:
        count_key, member_key = jax.random.split(jax.random.fold_in(key, round_index))
        count = jax.random.binomial(count_key, num_clients, self.probability)
        places = jnp.arange(self.size(num_clients), dtype=jnp.int32)
        members = shuffle.permuted(member_key, num_clients, jnp.zeros_like(places), places)
        return first_present(members, count.astype(jnp.int32), num_clients)

    def size(self, num_clients: int) -> int:
        return room_for(num_clients, self.probability)

    @property
    def can_be_absent(self) -> bool:
        return True


class Dropout(NamedTuple):
    """See ``dropout``."""

    sampler: Sampler
    probability: float

    def __call__(
        self, key: Key, round_index: Array, num_clients: int, sizes: Array | None = None
    ) -> Cohort:
        # The key is handed on as it is: the cohorts are those that the sampler draws by itself.
        cohort = self.sampler(key, round_index, num_clients, sizes)
        clients = cohort.members
        if clients is None:
            clients = jnp.arange(num_clients, dtype=jnp.int32)
        word = shuffle.words(jax.random.fold_in(key, LOST_UPLOADS), round_index, clients)
        return cohort._replace(arrives=~shuffle.heads(word, self.probability))

    def size(self, num_clients: int) -> int:
        return self.sampler.size(num_clients)

    @property
    def can_be_absent(self) -> bool:
        return self.sampler.can_be_absent

    @property
    def loses_uploads(self) -> bool:
        return True


def everyone() -> Sampler:
    """All clients, every round.

    Example:
      >>> import fcojax
      >>> fcojax.everyone().size(1000)
      1000
    """
    return Everyone()


def uniform_cohort(cohort_size: int) -> Sampler:
    """``cohort_size`` distinct clients, drawn afresh each round, all subsets equally likely.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp
      >>> cohort = fcojax.uniform_cohort(3)(jax.random.key(0), jnp.int32(0), 12)
      >>> len(set(cohort.members.tolist())), float(cohort.fraction)
      (3, 0.25)
    """
    return UniformCohort(checked_count("cohort_size", cohort_size))


def weighted_cohort(cohort_size: int, power: float = 1.0) -> Sampler:
    r"""``cohort_size`` distinct clients drawn one after the other with chances by their size.

    The next one is client m with probability :math:`n_m^b / \sum_j n_j^b`, the sum over those not
    drawn yet, where :math:`n_m` is a client's number of examples and b is ``power``. With equal
    weights p_m the mean then leans towards the large clients, as the pooled data do.

    All S are found at once, as the largest of :math:`b \log n_m` plus Gumbel noise. That looks at
    every client, so this draw costs O(M), where a uniform one costs O(S).

    Example:
      >>> import fcojax, jax, jax.numpy as jnp
      >>> sizes = jnp.array([1, 1, 1_000_000, 1])
      >>> cohort = fcojax.weighted_cohort(1)(jax.random.key(0), jnp.int32(0), 4, sizes)
      >>> cohort.members.tolist()
      [2]

    References:
      Efraimidis and Spirakis, "Weighted random sampling with a reservoir", Inf. Process. Lett.
      2006; Li, Huang, Yang, Wang and Zhang, "On the convergence of FedAvg on non-IID data", ICLR
      2020, scheme I, which draws by size with replacement and averages equally.
    """
    if not math.isfinite(as_number(power)):
        raise ValueError(f"power is {shown(power)}; pass a finite number, 0 for equal chances.")
    return WeightedCohort(checked_count("cohort_size", cohort_size), float(power))


def coin_flips(probability: float) -> Sampler:
    """Each client takes part with this probability, independently of the others (Poisson).

    The number of heads is drawn first and then that many distinct clients, which is the same law
    at a cost in proportion to the cohort. The cohort has room for eight standard deviations more
    than its mean, beyond which heads are cut off: that happens with probability below 1e-12.

    Example:
      >>> import fcojax
      >>> fcojax.coin_flips(0.1).size(10_000)  # the mean of 1,000 and eight deviations of 30
      1248
    """
    return CoinFlips(checked_probability("probability", probability))


def dropout(sampler: Sampler, probability: float) -> Sampler:
    """The cohort of ``sampler``, each of whose uploads is lost with this probability.

    A client whose upload is lost has worked and sent for nothing: it notices that no answer comes
    and takes its own state back. Losses are independent over clients and rounds and are counted in
    ``lost``. The cohorts are those that ``sampler`` draws without losses.

    Example:
      >>> import fcojax
      >>> sampler = fcojax.dropout(fcojax.uniform_cohort(4), probability=0.3)
      >>> sampler.size(20)  # so many work, of whom 2.8 are heard on average
      4
    """
    if not isinstance(sampler, Sampler) or isinstance(sampler, type):
        raise ValueError(
            f"sampler is {shown(sampler)}; pass a sampler, as in dropout(everyone(), 0.1)."
        )
    if isinstance(sampler, Dropout):
        raise ValueError("the sampler drops uploads already; give one dropout both probabilities.")
    if not 0 <= as_number(probability) < 1:
        raise ValueError(
            f"probability is {shown(probability)}; pass a number of at least 0 and below 1."
        )
    return Dropout(sampler, float(probability))


def first_present(members: Array, count: Array, num_clients: int) -> Cohort:
    """A cohort of which only the first ``count`` places are taken."""
    present = jnp.arange(members.shape[0], dtype=jnp.int32) < count
    weights = jnp.where(present, 1.0, 0.0)
    return Cohort(members, weights, jnp.sum(weights) / num_clients)


def room_for(num_clients: int, probability: float) -> int:
    """Places that as many heads of ``num_clients`` coins exceed with probability below 1e-12."""
    mean = num_clients * probability
    deviation = math.sqrt(mean * (1 - probability))
    return min(num_clients, math.ceil(mean + 8 * deviation + 8))


def optional_cohort_size(cohort_size: int | None) -> int | None:
    """The size of a cohort, or ``None`` for all who are there."""
    return checked_count("cohort_size", cohort_size, optional=True)


def checked_probability(name: str, probability: float) -> float:
    """The probability, if it is above 0 and at most 1."""
    if not 0 < as_number(probability) <= 1:
        raise ValueError(f"{name} is {shown(probability)}; pass a number above 0 and at most 1.")
    return float(probability)


def refuse_more_than(num_clients: int, cohort_size: int) -> None:
    """Raises if the cohort is larger than the population."""
    if cohort_size > num_clients:
        raise ValueError(
            f"cohort_size is {cohort_size} but the problem has {num_clients} clients; "
            f"pass at most {num_clients}, or use everyone()."
        )
