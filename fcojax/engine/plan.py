"""Plans: how rounds are driven, as one value."""

from typing import NamedTuple

from fcojax.algorithms.work import Work
from fcojax.arguments import checked_value, field_annotations, shown
from fcojax.engine.aggregator import MEAN, Aggregator, Codec
from fcojax.engine.participation.samplers import Everyone, Sampler
from fcojax.types import Count


class Plan(NamedTuple):
    """How rounds are driven; static, hashable, and equal when its parts are.

    Every function that takes a plan also takes a ``Work``, for a plan with everyone.

    Attributes:
      work: how much each client does: ``local_steps(...)`` or ``local_epochs(...)``.
      cohort: which clients take part; everyone by default.
      codec: how uploads are encoded; ``None`` to send them as they are.
      aggregator: what the server makes of the uploads; their weighted mean by default.
      client_chunk_size: number of clients that are vmapped together; ``None`` chooses it by the
        rules for the backend.
      point_chunk_size: number of points of a sweep that run together; ``None`` for as many as
        memory holds.

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
