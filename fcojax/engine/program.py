"""The static part of a compiled program of rounds, as one hashable argument of ``jit``."""

from typing import NamedTuple

from fcojax.algorithms.base import Algorithm
from fcojax.engine.plan import Plan
from fcojax.engine.state import Observe


class Program(NamedTuple):
    """What is compiled: everything that is fixed before tracing.

    Attributes:
      algorithm: the algorithm.
      plan: how rounds are driven, with every size chosen.
      observe: what is evaluated, or ``None``.
      num_evaluations: how often it is evaluated.
      rounds_per_evaluation: rounds before each evaluation.
    """

    algorithm: Algorithm
    plan: Plan
    observe: Observe | None = None
    num_evaluations: int = 1
    rounds_per_evaluation: int = 1
