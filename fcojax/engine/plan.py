"""Plans: how rounds are driven, as one value."""

from typing import NamedTuple

from fcojax.algorithms.work import Work
from fcojax.arguments import checked_value, field_annotations, shown
from fcojax.engine.participation.samplers import Everyone, Sampler
from fcojax.engine.uploads.outliers import OutlierRule
from fcojax.engine.uploads.uplink import Uplink
from fcojax.types import Count


class Plan(NamedTuple):
    """How rounds are driven; static, hashable, and equal when its parts are.

    Every function that takes a plan also takes a ``Work``, for a plan with everyone.

    Attributes:
      work: how much each client does: ``local_steps(...)`` or ``local_epochs(...)``.
      cohort: which clients take part; everyone by default.
      uplink: how uploads are encoded; ``None`` for no encoding.
      client_chunk_size: number of clients that are vmapped together; ``None`` chooses it by the
        rules for the backend.
      point_chunk_size: number of points of a sweep that run together; ``None`` for as many as
        memory holds.
      outliers: which uploads are excluded for their norm, ``norm_bound(...)`` or
        ``norm_quantile(...)``; ``None`` for none.
      downlink: how the mean of the uploads is encoded for all clients, which then take the server's
        step themselves; ``None`` to send each client of a cohort the message.

    Example:
      >>> import fcojax
      >>> plan = fcojax.Plan(
      ...     fcojax.local_steps(10, batch_size=32), fcojax.uniform_cohort(cohort_size=5))
      >>> plan.work.num_steps, plan.cohort, plan.uplink
      (10, UniformCohort(cohort_size=5), None)
    """

    work: Work
    cohort: Sampler = Everyone()
    uplink: Uplink | None = None
    client_chunk_size: Count | None = None
    point_chunk_size: Count | None = None
    outliers: OutlierRule | None = None
    downlink: Uplink | None = None


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
    return Plan(
        *(
            checked_value(f"plan.{name}", part, kinds[name])
            for name, part in zip(Plan._fields, plan, strict=True)
        )
    )
