"""Plans, which describe how rounds run, and programs, the static part of a compiled computation."""

from typing import NamedTuple

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.arguments import checked_value, field_annotations, shown
from fcojax.engine.participation.base import Everyone, Sampler
from fcojax.engine.state import Observe
from fcojax.types import Count
from fcojax.uploads.aggregator import MEAN, Aggregator
from fcojax.uploads.broadcast import Broadcast
from fcojax.uploads.transform import NOTHING, UploadTransform


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
    uploads: UploadTransform = NOTHING
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
        if isinstance(part := getattr(plan, name), UploadTransform):
            raise ValueError(f"plan.{name} is {part.name}; pass it as uploads={part.name}.")
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
