"""The compared methods that need more than a loss and a mirror."""

from collections.abc import Sequence

from fcojax import algorithms
from fcojax.algorithms import Algorithm, takes
from fcojax.algorithms.base import Factory
from fcojax.problems.problem import Loss
from fcojax.transforms import Mirror, Penalty


def staged(factors: Sequence[float], ball: Penalty) -> Factory:
    """Return MC-FedDualAvg with these stages in this ball; C-FedDualAvg for one stage."""
    rates = algorithms.mc_fed_dual_avg.Hparams

    @takes(rates, "mirror")
    def mc_fed_dual_avg(loss, mirror):
        return algorithms.mc_fed_dual_avg(loss, mirror, penalty_factors=factors, ball=ball)

    return mc_fed_dual_avg


@takes(algorithms.fast_fed_dual_avg.Hparams, "mirror")
def fast_with_end_points(loss: Loss, mirror: Mirror) -> Algorithm:
    """Fast-FedDualAvg that averages the clients' end points too, as the authors' code does."""
    return algorithms.fast_fed_dual_avg(loss, mirror, end_points=True)


def methods(factors: Sequence[float], ball: Penalty) -> dict[str, Factory]:
    """Return the factories by label."""
    return {
        "c_fed_dual_avg": staged((1.0,), ball),
        "mc_fed_dual_avg": staged(factors, ball),
        "fast_end_points": fast_with_end_points,
    }
