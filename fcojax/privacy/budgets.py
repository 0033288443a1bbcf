"""How many rounds an epsilon allows, and how many clients it takes."""

from collections.abc import Callable, Sequence
from typing import Any

from fcojax import Plan, everyone
from fcojax.arguments import validated
from fcojax.privacy.accounting import Accountant, Releases, noise_for, releases, total_epsilon
from fcojax.types import Count, Fraction, Positive


@validated
def rounds_within(
    target: Positive,
    delta: Fraction,
    plan: Plan,
    num_clients: Count,
    *,
    hparams: Any = None,
    num_runs: Count = 1,
    spent: Sequence[Releases] = (),
    by: Accountant = "rdp",
) -> int:
    """Return the largest number of rounds whose epsilon is within a budget; pass it to ``run``.

    Args:
      target: the largest epsilon.
      delta: failure probability of (epsilon, delta)-privacy.
      plan: a plan whose chain has noise, as of ``gaussian``.
      num_clients: size of the population.
      hparams: the hyperparameters, if the noise is a function of them.
      num_runs: as for ``epsilon``.
      spent: earlier releases about these clients, such as from tuning.
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
        return total_epsilon([*spent, entry], num_clients, delta, by=by) <= target

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
