"""How rounds are driven, as one value."""

from typing import NamedTuple

from fcojax.algorithms.work import Work, checked_count
from fcojax.engine.cohort import Everyone, Sampler
from fcojax.engine.outliers import Guard
from fcojax.engine.uplink import Uplink
from fcojax.problems.fields import shown


class Plan(NamedTuple):
    """How rounds are driven; static, hashable, and equal when its parts are.

    Where a plan is asked for, a ``Work`` alone stands for one with everyone and nothing special.

    Attributes:
      work: how much each client does: ``local_steps(...)`` or ``local_epochs(...)``.
      cohort: who takes part; everyone by default.
      uplink: what happens to uploads on their way; ``None`` for nothing.
      client_chunk_size: clients that work side by side; ``None`` picks it for the backend.
      point_chunk_size: points of a sweep that run side by side; ``None`` for as many as memory
        holds.
      guard: whose uploads are too large to be believed, ``norm_bound(...)`` or
        ``norm_quantile(...)``; ``None`` for nobody's.

    Example:
      >>> import fcojax
      >>> plan = fcojax.Plan(fcojax.local_steps(10, batch_size=32), fcojax.uniform_cohort(5))
      >>> plan.work.num_steps, plan.cohort, plan.uplink
      (10, UniformCohort(cohort_size=5), None)
    """

    work: Work
    cohort: Sampler = Everyone()
    uplink: Uplink | None = None
    client_chunk_size: int | None = None
    point_chunk_size: int | None = None
    guard: Guard | None = None


def as_plan(plan: Plan | Work) -> Plan:
    """The plan itself, or that of ``work`` alone; raises for anything else."""
    if isinstance(plan, Work):
        return Plan(plan)
    if not isinstance(plan, Plan):
        raise ValueError(
            f"plan is {shown(plan)}; pass how much clients work, as in plan=local_steps(10, 32), "
            "or Plan(local_steps(10, 32), uniform_cohort(10))."
        )
    for name, kind, example in (
        ("work", Work, "local_steps(10, 32)"),
        ("cohort", Sampler, "uniform_cohort(10)"),
    ):
        value = getattr(plan, name)
        if not isinstance(value, kind) or isinstance(value, type):
            raise ValueError(f"the plan's {name} is {shown(value)}; pass something like {example}.")
    if plan.uplink is not None and not isinstance(plan.uplink, Uplink):
        raise ValueError(f"the plan's uplink is {shown(plan.uplink)}; pass an Uplink, or None.")
    if plan.guard is not None and not isinstance(plan.guard, Guard):
        raise ValueError(
            f"the plan's guard is {shown(plan.guard)}; pass norm_bound(...), or None for no guard."
        )
    sizes = {
        name: checked_count(name, getattr(plan, name), optional=True)
        for name in ("client_chunk_size", "point_chunk_size")
    }
    return plan._replace(**sizes)
