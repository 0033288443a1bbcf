"""Plans, which describe how rounds run; samplers, which decide who takes part; and programs.

Where possible, drawing takes time and memory in proportion to the cohort, not to the population. A
sampler decides only who takes part: the mean keeps the weights p_m of the objective, which stateful
algorithms such as SCAFFOLD need. A program is the static part of a compiled computation.
"""

import dataclasses
from typing import ClassVar, NamedTuple

import jax.numpy as jnp

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.arguments import checked_value, field_annotations, shown
from fcojax.engine.state import Observe
from fcojax.types import Array, Count, Key
from fcojax.uploads.contract import MEAN, Aggregator, Broadcast, UploadChain


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
          key: a key derived from the run's, the same in every round, so that a sampler can have
            memory. Use ``jax.random.fold_in(key, round_index)`` for independent rounds.
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


@dataclasses.dataclass(frozen=True)
class Everyone(Sampler):
    """See ``everyone``."""

    can_be_absent = False

    def draw(self, key, round_index, num_clients, sizes=None) -> Draw:
        return Draw(None, jnp.ones(num_clients, bool))

    def size(self, num_clients: int) -> int:
        return num_clients

    def inclusion(self, clients, num_clients, sizes=None) -> Array | float:
        return 1.0


class Plan(NamedTuple):
    """How rounds are run; static, hashable, and equal when its parts are.

    Every function that takes a plan also takes a ``Work``, which stands for a plan in which every
    client takes part.

    Attributes:
      work: how much each client does: ``local_steps(...)`` or ``local_epochs(...)``.
      cohort: which clients take part; everyone by default.
      uploads: what happens to an upload, as in ``uploads.chain(...)``: compression, noise, losses;
        nothing by default.
      aggregator: how the server combines the uploads; by their weighted mean by default.
      broadcast: how the server's message is compressed; ``None`` to send it whole.
      client_chunk_size: number of clients that are vmapped together; ``None`` chooses it by the
        rules for the backend.
      point_chunk_size: number of points of a sweep that run together; ``None`` for as many as
        memory holds.

    Example:
      >>> import fcojax
      >>> plan = fcojax.Plan(
      ...     fcojax.local_steps(10, batch_size=32), fcojax.uniform_cohort(cohort_size=5))
      >>> plan.work.num_steps, plan.cohort
      (10, UniformCohort(cohort_size=5))
    """

    work: Work
    cohort: Sampler = Everyone()
    uploads: UploadChain = UploadChain()
    aggregator: Aggregator = MEAN
    broadcast: Broadcast | None = None
    client_chunk_size: Count | None = None
    point_chunk_size: Count | None = None


def as_plan(plan: Plan | Work) -> Plan:
    """Return a plan whose parts have been checked, from a plan or from its ``work`` alone."""
    if isinstance(plan, Work):
        return Plan(plan)
    if not isinstance(plan, Plan):
        raise ValueError(
            f"plan is {shown(plan)}; pass how much clients work, as in plan=local_steps(10, 32), "
            "or Plan(local_steps(10, 32), uniform_cohort(cohort_size=10))."
        )
    for name in ("cohort", "aggregator"):
        if isinstance(part := getattr(plan, name), UploadChain):
            part = getattr(part, "name", "chain()")
            raise ValueError(f"plan.{name} is {part}; pass it as uploads={part}.")
    kinds = field_annotations(Plan)
    parts = zip(Plan._fields, plan, strict=True)
    plan = Plan(*(checked_value(f"plan.{name}", part, kinds[name]) for name, part in parts))
    attacks = {one.facts.attack for one in plan.uploads.transforms} - {None}
    if attacks != {plan.aggregator.attack} - {None}:
        raise ValueError(
            "an attack that sees all uploads needs both uploads=attacked(clients, attack) and "
            "aggregator=seeing_all(attack, ...), with the same attack."
        )
    if plan.uploads.needs_sum and plan.aggregator != MEAN:
        needing = next(one.name for one in plan.uploads.transforms if one.facts.needs_sum)
        raise ValueError(f"{needing} needs the sum of the uploads; pass a plan without aggregator.")
    return plan


class Program(NamedTuple):
    """The static part of a compiled computation: everything that is fixed before tracing.

    Attributes:
      algorithm: the algorithm of the run.
      plan: how rounds are run, with every size chosen.
      observe: the function that is evaluated, or ``None``.
      num_evaluations: how often it is evaluated.
      rounds_per_evaluation: rounds before each evaluation.
    """

    algorithm: Algorithm
    plan: Plan
    observe: Observe | None = None
    num_evaluations: int = 1
    rounds_per_evaluation: int = 1
