"""The measures of a sweep, after each block and at the optimum."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp

from experiments.report.summary import SUPPORT
from experiments.study import Sweep
from fcojax import kkt_violation
from fcojax.algorithms.fed_dual_avg import FedDualAvgHparams
from fcojax.extend import VIOLATION
from fcojax.problems import ClientData, Problem, population_loss
from fcojax.reference import optimum
from fcojax.transforms import Penalty


def observer(
    problem: Problem, penalty: Penalty, default_scale: float, certificate: bool = False
) -> Callable:
    """Return the measures after each block, on the training and the validation clients.

    Args:
      problem: loss and measures.
      penalty: psi.
      default_scale: the strength in the objective of algorithms without a penalty.
      certificate: whether to measure the KKT violation as well, which takes a gradient.
    """

    def observe(hparams, params, context: tuple[ClientData, ClientData | None]):
        train, validation = context
        scale = getattr(hparams, "penalty_scale", default_scale)
        loss = population_loss(problem.loss, params, train)
        seen = {"objective": loss + penalty.value(params, scale), "loss": loss}
        if validation is not None:
            seen["validation_loss"] = population_loss(problem.loss, params, validation)
        if certificate:
            seen[VIOLATION] = kkt_violation(problem.loss, penalty, scale, params, train)
        return seen | problem.measures(params)

    return observe


def solve_optima(
    problem: Problem, penalty: Penalty, scales: tuple[float, ...]
) -> Iterator[tuple[float, dict[str, float]]]:
    """Yield the measures at the optimum for each strength of the penalty."""
    observe = jax.jit(observer(problem, penalty, scales[0]))
    for scale in scales:
        found = optimum(problem, penalty, scale, tolerance=1e-7)
        params = jax.tree.map(jnp.asarray, found.params)
        hparams = FedDualAvgHparams(penalty_scale=scale)
        seen = observe(hparams, params, (problem.train, problem.validation))
        seen.pop(SUPPORT, None)
        measures = {name: float(value) for name, value in seen.items() if jnp.ndim(value) == 0}
        yield scale, measures | {"objective": float(found.objective)}


def columns(problem: Problem, sweep: Sweep) -> list[str]:
    """Return the measures by which points can be ranked."""
    measures = jax.eval_shape(lambda key: problem.measures(problem.init(key)), jax.random.key(0))
    found = ["objective", "loss", *(name for name in measures if name != SUPPORT)]
    if sweep.solve_optimum:
        found.append("suboptimality")
    if problem.validation is not None:
        found.append("validation_loss")
    return list(dict.fromkeys(found))
