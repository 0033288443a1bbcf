"""Budgets: an epsilon that ends a run, converted to a number of rounds before the run."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fcojax import Plan, Sampler, everyone
from fcojax.arguments import validated
from fcojax.engine.hparams import number
from fcojax.engine.transform import Allowance
from fcojax.memo import memoised
from fcojax.privacy.accounting import (
    Accountant,
    Releases,
    noise_for,
    releases,
    together,
    total_epsilon,
)
from fcojax.types import Count, Fraction, Positive


class Budget(NamedTuple):
    """An epsilon that runs may not exceed; see ``budget``.

    Example:
      >>> Budget(2.0, 1e-3, spent=(), by="rdp").epsilon
      2.0
    """

    epsilon: float
    delta: float
    spent: tuple[Releases, ...]
    by: Accountant

    def limit(
        self, noise: Any, bands: tuple, cohort: Sampler, runs: list[list], num_clients: int
    ) -> Allowance:
        """Return how many rounds each of these runs may have; see ``fcojax.extend.Noise``.

        Args:
          noise: the noise multiplier, a number or a function of the hyperparameters.
          bands: coefficients of noise that is correlated across rounds.
          cohort: who takes part.
          runs: the hyperparameters of each run, in one list for each set of runs with the same
            cohorts.
          num_clients: size of the population.
        """
        noises = [together([float(number(each, noise)) for each in same]) for same in runs]
        if len(bands) > 1:  # one run does not continue another's rounds
            noises = [together(noises)]
        counts = Counter(noises)

        def after(num_rounds: int) -> float:
            new = (Releases(cohort, each, num_rounds * n, bands) for each, n in counts.items())
            return total_epsilon([*self.spent, *new], num_clients, self.delta, by=self.by)

        rounds = _most_rounds(lambda num_rounds: after(num_rounds) <= self.epsilon)
        detail = f"the budget is an epsilon of {self.epsilon:g} at delta {self.delta:g}, of which "
        detail += f"{after(rounds):.4g} is spent by then"
        if self.spent:
            detail += f", {after(0):.4g} of it before"
        return Allowance(rounds, detail)


@memoised
@validated
def budget(
    epsilon: Positive, delta: Fraction, *, spent: Sequence[Releases] = (), by: Accountant = "rdp"
) -> Budget:
    """Return a budget for ``gaussian``, which ends runs that would exceed it.

    ``fcojax.run`` and ``sweep`` end with a warning after the last round within it, ``solve`` with
    ``Status.SPENT``; ``advance`` refuses to go beyond it. All points and seeds of a sweep share it,
    and so do the algorithms of the launcher. Two calls are accounted separately: pass the releases
    of the first as ``spent`` to the second.

    Args:
      epsilon: the largest epsilon.
      delta: failure probability of (epsilon, delta)-privacy.
      spent: earlier releases about these clients, such as from tuning.
      by: as for ``privacy.epsilon``.

    Example:
      >>> budget(2.0, delta=1e-3)
      Budget(epsilon=2.0, delta=0.001, spent=(), by='rdp')
    """
    return Budget(float(epsilon), float(delta), tuple(spent), by)


@validated
def rounds_within(
    target: Positive,
    delta: Fraction,
    plan: Plan,
    num_clients: Count,
    *,
    hparams: Any = None,
    num_runs: Count = 1,
    by: Accountant = "rdp",
) -> int:
    """Return the largest number of rounds whose epsilon is within a budget.

    It is known before the first round; ``gaussian(..., budget=...)`` ends runs there.

    Args:
      target: the largest epsilon.
      delta: failure probability of (epsilon, delta)-privacy.
      plan: a plan whose chain has noise, as of ``gaussian``.
      num_clients: size of the population.
      hparams: the hyperparameters, if the noise is a function of them.
      num_runs: as for ``epsilon``.
      by: as for ``epsilon``.

    Example:
      >>> import fcojax
      >>> from fcojax import privacy
      >>> plan = fcojax.Plan(fcojax.local_steps(1), uploads=privacy.gaussian(1.0, noise=0.0))
      >>> rounds_within(2.0, 1e-3, plan, num_clients=100)
      0
    """

    def allowed(num_rounds):
        entry = releases(plan, num_rounds, hparams=hparams, num_runs=num_runs)
        return total_epsilon([entry], num_clients, delta, by=by) <= target

    return _most_rounds(allowed)


@validated
def clients_needed(
    target: Positive, num_rounds: Count, dim: Count, *, share: Fraction = 0.1
) -> int:
    r"""Return how many clients a private run takes until its noise is small beside its signal.

    All n clients take part in every round. The noise on the mean update has a norm of about
    :math:`z C \sqrt d / n`, with the multiplier z for this epsilon and delta
    :math:`n^{-1.1} / 10`; n is the smallest number at which it is at most a share of C.

    Args:
      target: epsilon.
      num_rounds: number of rounds.
      dim: d, the number of parameters.
      share: the largest norm of the noise, in units of the clipping norm.

    Example:
      >>> clients_needed(3.0, num_rounds=20, dim=10) > 100  # so three hospitals gain nothing
      True
    """

    def is_enough(number: int) -> bool:
        delta = number**-1.1 / 10
        noise = noise_for(target, delta, everyone(), number, num_rounds)
        return noise * dim**0.5 / number <= share

    return _most_rounds(lambda number: not is_enough(number + 1)) + 2


def _most_rounds(allowed: Callable[[int], bool]) -> int:
    """Return the largest allowed number, if all smaller ones are allowed too."""
    if not allowed(1):
        return 0
    least, beyond = 1, 2
    while beyond < 2**31 and allowed(beyond):
        least, beyond = beyond, 2 * beyond
    while beyond - least > 1:
        middle = (least + beyond) // 2
        least, beyond = (middle, beyond) if allowed(middle) else (least, middle)
    return least
