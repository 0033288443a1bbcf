"""Skeleton of a sampler: a random window of neighbouring clients.

Test it against a closed form in ``tests/engine/test_samplers.py``; the table
in ``tests/engine/test_participation.py`` includes all exported samplers.
"""

import dataclasses

import jax
import jax.numpy as jnp

from fcojax import Draw, Sampler


@dataclasses.dataclass(frozen=True)
class MySampler(Sampler):
    """A cohort of clients with consecutive indices and a random first one."""

    cohort_size: int
    can_be_absent = False  # all places of a cohort are always filled

    def draw(self, key, round_index, num_clients, sizes=None):
        """Return the cohort of one round; rounds count from 0."""
        key = jax.random.fold_in(key, round_index)  # the same key in all rounds
        first = jax.random.randint(key, (), 0, num_clients, jnp.int32)
        members = (
            first + jnp.arange(self.cohort_size, dtype=jnp.int32)
        ) % num_clients
        return Draw(members, jnp.ones(self.cohort_size, bool))

    def size(self, num_clients):
        """Return the number of places, which must be known before tracing."""
        if self.cohort_size > num_clients:
            raise ValueError(
                f"cohort_size is {self.cohort_size}; "
                f"pass at most {num_clients}."
            )
        return self.cohort_size
