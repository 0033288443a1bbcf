"""The contract of a sampler, which decides who takes part in a round; and the default, everyone.

Where possible, drawing takes time and memory in proportion to the cohort, not to the population. A
sampler decides only who takes part: the mean keeps the weights p_m of the objective, which stateful
algorithms such as SCAFFOLD need.
"""

import dataclasses
from typing import ClassVar, NamedTuple

import jax.numpy as jnp

from fcojax.types import Array, Key


class Draw(NamedTuple):
    """The cohort of one round.

    Attributes:
      members: distinct client indices as int32, or ``None`` for all clients in their order, with
        no gather. An absent place may hold any index.
      present: for each member whether it takes part.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp
      >>> draw = fcojax.uniform_cohort(cohort_size=2).draw(jax.random.key(0), jnp.int32(0), 8)
      >>> draw.members.shape, draw.present.tolist()
      ((2,), [True, True])
    """

    members: Array | None
    present: Array

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
      by_round: whether the probability of a client differs between rounds.
      rounds: the number of rounds for which a cohort is held.

    Example:
      >>> import dataclasses, jax.numpy as jnp
      >>> from fcojax import Draw, Sampler
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
    by_round = False
    rounds = 1

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

        Raise ``ValueError`` if the population is too small, since members would repeat.
        """
        raise NotImplementedError

    def mean_size(self, num_clients: int) -> float:
        """Return the mean number of clients that take part; by default all places.

        Uploads with noise are divided by it; override it where cohorts vary in size.
        """
        return self.size(num_clients)

    def inclusion(
        self, clients: Array, num_clients: int, sizes: Array | None = None
    ) -> Array | float:
        """Return the probabilities that some clients take part in a round, or their common one.

        ``uploads.inverse_probability("known")`` divides by it. The base class does not know it.
        """
        del clients, num_clients, sizes
        raise ValueError(
            f"{self} does not state with which probability a client takes part; pass "
            'inverse_probability("estimated"), or a sampler that defines inclusion.'
        )


class EqualSampler(Sampler):
    """Base class of samplers that draw all clients with the same probability."""

    def inclusion(self, clients, num_clients, sizes=None) -> Array | float:
        return self.mean_size(num_clients) / num_clients


@dataclasses.dataclass(frozen=True)
class Everyone(EqualSampler):
    """See ``everyone``."""

    can_be_absent = False

    def draw(self, key, round_index, num_clients, sizes=None) -> Draw:
        return Draw(None, jnp.ones(num_clients, bool))

    def size(self, num_clients: int) -> int:
        return num_clients
