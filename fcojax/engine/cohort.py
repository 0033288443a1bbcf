"""Who takes part in a round, as a function of a key and the round's number.

A sampler is a small value, not a closure: two equal samplers are one compiled program. Drawing
costs work and memory in proportion to the cohort and not to the population.
"""

import math
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from fcojax import shuffle
from fcojax.algorithms.base import Cohort
from fcojax.types import Array, Key


class Sampler(Protocol):
    """``(key, round, num_clients) -> Cohort`` with a size known before tracing."""

    def __call__(self, key: Key, round_index: Array, num_clients: int) -> Cohort:
        """Draws the cohort; ``fraction`` is by head count, the engine weighs it."""
        ...

    def size(self, num_clients: int) -> int:
        """Places in the cohort, absent ones included; raises if the population is too small."""
        ...

    @property
    def can_be_absent(self) -> bool:
        """Whether places may be empty, so that skipping them is worth a branch."""
        ...


class Everyone(NamedTuple):
    """See ``everyone``."""

    def __call__(self, key: Key, round_index: Array, num_clients: int) -> Cohort:
        return Cohort(None, jnp.ones(num_clients), jnp.ones(()))

    def size(self, num_clients: int) -> int:
        return num_clients

    @property
    def can_be_absent(self) -> bool:
        return False


class UniformCohort(NamedTuple):
    """See ``uniform_cohort``."""

    cohort_size: int

    def __call__(self, key: Key, round_index: Array, num_clients: int) -> Cohort:
        places = jnp.arange(self.cohort_size, dtype=jnp.int32)
        members = shuffle.permuted(key, num_clients, jnp.zeros_like(places), places)
        return Cohort(
            members, jnp.ones(self.cohort_size), jnp.asarray(self.cohort_size / num_clients)
        )

    def size(self, num_clients: int) -> int:
        if self.cohort_size > num_clients:
            raise ValueError(
                f"cohort_size is {self.cohort_size} but the problem has {num_clients} clients; "
                f"pass at most {num_clients}, or use everyone()."
            )
        return self.cohort_size

    @property
    def can_be_absent(self) -> bool:
        return False


class CoinFlips(NamedTuple):
    """See ``coin_flips``."""

    probability: float

    def __call__(self, key: Key, round_index: Array, num_clients: int) -> Cohort:
        count_key, member_key = jax.random.split(key)
        heads = jax.random.binomial(count_key, num_clients, self.probability)
        places = jnp.arange(self.size(num_clients), dtype=jnp.int32)
        members = shuffle.permuted(member_key, num_clients, jnp.zeros_like(places), places)
        present = places < heads.astype(jnp.int32)
        fraction = jnp.sum(jnp.where(present, 1.0, 0.0)) / num_clients
        return Cohort(members, jnp.where(present, 1.0, 0.0), fraction)

    def size(self, num_clients: int) -> int:
        mean = num_clients * self.probability
        deviation = math.sqrt(mean * (1 - self.probability))
        return min(num_clients, math.ceil(mean + 8 * deviation + 8))

    @property
    def can_be_absent(self) -> bool:
        return True


def everyone() -> Sampler:
    """All clients, every round."""
    return Everyone()


def uniform_cohort(cohort_size: int) -> Sampler:
    """``cohort_size`` distinct clients, drawn afresh each round, all subsets equally likely."""
    if isinstance(cohort_size, bool) or not isinstance(cohort_size, int) or cohort_size < 1:
        raise ValueError(f"cohort_size is {cohort_size!r}; pass a whole number of at least 1.")
    return UniformCohort(cohort_size)


def coin_flips(probability: float) -> Sampler:
    """Each client takes part with this probability, independently of the others (Poisson).

    The number of heads is drawn first and then that many distinct clients, which is the same law
    at a cost in proportion to the cohort. The cohort has room for eight standard deviations more
    than its mean, beyond which heads are cut off: that happens with probability below 1e-12.
    """
    if not 0 < probability <= 1:
        raise ValueError(f"probability is {probability}; pass a number above 0 and at most 1.")
    return CoinFlips(float(probability))
