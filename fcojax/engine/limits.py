"""The number of rounds that a privacy budget allows, computed on the host before the first."""

import warnings
from collections.abc import Callable
from typing import Any

from fcojax.engine.hparams import num_points, take
from fcojax.engine.plan import Plan
from fcojax.engine.state import is_sweep
from fcojax.engine.transform import Allowance
from fcojax.problems.clients import ClientData
from fcojax.types import Array, Key, PyTree

# How a run ends that is stopped by its budget.
SPENT = "stopped after round {round}, the last that is allowed: {detail}"


def limit_of(plan: Plan, hparams: PyTree, data: ClientData, key: Key) -> Allowance | None:
    """Return how many rounds the plan allows each of these runs; ``None`` for any number."""
    allowance = allowance_of(plan)
    if allowance is None:
        return None
    runs = [[hparams]]
    # One list per seed, because the points of a seed share cohorts: their releases in a round are
    # one subsampled release. Counted as independent, twelve points had epsilon 13.3 where 107 is
    # right (coin flips of 0.05, noise 1, 100 rounds, delta 1e-5).
    if is_sweep(key):  # the points of a seed have the same cohorts
        runs = [[take(hparams, point) for point in range(num_points(hparams))]] * key.size
    return allowance(plan.cohort, runs, data.num_clients)


def allowance_of(plan: Plan) -> Callable[[Any, list, int], Allowance] | None:
    """Return the function that computes how many rounds a plan allows; ``None`` for any number."""
    noise = plan.uploads.noise
    return None if noise is None else noise.allowance


def within(limit: Allowance | None, num_rounds: int, warns: bool = True) -> int:
    """Return the number of rounds within a limit."""
    if limit is None or limit.rounds >= num_rounds:
        return num_rounds
    if not limit.rounds:
        raise ValueError(f"no round is allowed, as {limit.detail}; add noise, or allow more.")
    if warns:
        # The warning points at the line that calls `run` or `sweep`.
        warnings.warn(SPENT.format(round=limit.rounds, detail=limit.detail), stacklevel=4)
    return limit.rounds


def require_within(limit: Allowance | None, first: Array, num_rounds: int) -> None:
    """Raise ``ValueError`` if a state would be advanced beyond a limit."""
    if limit is None:
        return
    # Earlier rounds have used a part of the budget, so their number is needed.
    if int(first) + num_rounds > limit.rounds:
        raise ValueError(
            f"num_rounds is {num_rounds} after round {int(first)}, but {limit.detail}; pass at "
            f"most {max(0, limit.rounds - int(first))}."
        )


def require_unlimited(plan: Plan, name: str) -> None:
    """Raise ``ValueError`` if a plan has a budget, which the called function does not enforce.

    Args:
      plan: how rounds are run.
      name: the called function, for the message.
    """
    if allowance_of(plan) is not None:
        raise ValueError(
            f"the plan has a budget, which {name} does not enforce; pass one without, and "
            "add up the rounds of all runs with privacy.total_epsilon."
        )
