"""Plans, which describe how rounds run, and programs, the static part of a compiled computation."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.arguments import checked_value, field_annotations, shown
from fcojax.engine.aggregator import MEAN, Aggregator, Codec
from fcojax.engine.participation.base import Everyone, Sampler
from fcojax.engine.state import Observe
from fcojax.types import Count


class Plan(NamedTuple):
    """How rounds are run; static, hashable, and equal when its parts are.

    Every function that takes a plan also takes a ``Work``, which stands for a plan in which every
    client takes part.

    Attributes:
      work: how much each client does: ``local_steps(...)`` or ``local_epochs(...)``.
      cohort: which clients take part; everyone by default.
      codec: how uploads are encoded; ``None`` to send them unchanged.
      aggregator: how the server combines the uploads; by their weighted mean by default.
      client_chunk_size: number of clients that are vmapped together; ``None`` chooses it by the
        rules for the backend.
      point_chunk_size: number of points of a sweep that run together; ``None`` for as many as
        memory holds.
      correct: whether clients that seldom take part get larger weights, so that the mean estimates
        the mean over all clients: uploads are added with weights p_m / q_m and divided by the sum
        of all p_m. q_m is the probability that client m is counted: ``"known"`` from the sampler,
        or ``"estimated"`` as the share of rounds so far in which it was. ``None`` for the mean over
        the cohort.

    Example:
      >>> import fcojax
      >>> plan = fcojax.Plan(
      ...     fcojax.local_steps(10, batch_size=32), fcojax.uniform_cohort(cohort_size=5))
      >>> plan.work.num_steps, plan.cohort, plan.codec
      (10, UniformCohort(cohort_size=5), None)
    """

    work: Work
    cohort: Sampler = Everyone()
    codec: Codec | None = None
    aggregator: Aggregator = MEAN
    client_chunk_size: Count | None = None
    point_chunk_size: Count | None = None
    correct: Literal["known", "estimated"] | None = None


def as_plan(plan: Plan | Work) -> Plan:
    """Return a plan whose parts have been checked, from a plan or from its ``work`` alone."""
    if isinstance(plan, Work):
        return Plan(plan)
    if not isinstance(plan, Plan):
        raise ValueError(
            f"plan is {shown(plan)}; pass how much clients work, as in plan=local_steps(10, 32), "
            "or Plan(local_steps(10, 32), uniform_cohort(cohort_size=10))."
        )
    kinds = field_annotations(Plan)
    parts = zip(Plan._fields, plan, strict=True)
    return Plan(*(checked_value(f"plan.{name}", part, kinds[name]) for name, part in parts))


class Program(NamedTuple):
    """The static part of a compiled computation: everything that is fixed before tracing.

    Attributes:
      algorithm: the algorithm of the run.
      plan: how rounds are run, with every size chosen.
      observe: the function that is evaluated, or ``None``.
      num_evaluations: how often it is evaluated.
      rounds_per_evaluation: rounds before each evaluation.
      num_last_rounds: rounds of a last, shorter block, followed by one more evaluation; 0 for none.
    """

    algorithm: Algorithm
    plan: Plan
    observe: Observe | None = None
    num_evaluations: int = 1
    rounds_per_evaluation: int = 1
    num_last_rounds: int = 0

    def parts(self) -> "Sequence[Program]":
        """Return the programs of the equal blocks and of a last, shorter one."""
        whole = self._replace(num_last_rounds=0)
        last = whole._replace(num_evaluations=1, rounds_per_evaluation=self.num_last_rounds)
        return [whole] * (whole.num_evaluations > 0) + [last] * (self.num_last_rounds > 0)
