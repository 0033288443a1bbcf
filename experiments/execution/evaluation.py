"""The measures of a sweep, after each block and at the optimum."""

import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from experiments.report.summary import SUPPORT, Criterion
from experiments.study import Sweep
from fcojax.algorithms.dual_averages import FedDualAvgHparams
from fcojax.extend import on_disk
from fcojax.problems import ClientData, Problem, population_loss
from fcojax.reference import optimum
from fcojax.transforms import Penalty

_SAMPLED = 1000  # clients that stand for a larger population
_LIMIT = 120.0  # seconds for the optima of all strengths
_MOST_STEPS = 50_000


def observer(problem: Problem, penalty: Penalty, default_scale: float) -> Callable:
    """Return the measures after each block, on the training and the validation clients.

    Args:
      problem: loss and measures.
      penalty: psi.
      default_scale: the strength in the objective of algorithms without a penalty.
    """

    def observe(hparams, params, context: tuple[ClientData, ClientData | None]):
        train, validation = context
        scale = getattr(hparams, "penalty_scale", default_scale)
        loss = population_loss(problem.loss, params, train)
        seen = {"objective": loss + penalty.value(params, scale), "loss": loss}
        if validation is not None:
            seen["validation_loss"] = population_loss(problem.loss, params, validation)
        return seen | problem.measures(params)

    return observe


def some_of(data: ClientData) -> ClientData:
    """Return at most 1,000 evenly spaced clients, in memory."""
    if data.num_clients <= _SAMPLED and not on_disk(data):
        return data
    places = np.linspace(0, data.num_clients - 1, min(data.num_clients, _SAMPLED))
    return data.select(np.unique(places.round().astype(np.int64)))


def has_optimum(sweep: Sweep, problem: Problem, penalty: Penalty, criterion: Criterion) -> bool:
    """Return whether to solve for the optimum: if that can be done, and it is ranked or drawn."""
    shown = {criterion.measure, *(panel.measure for panel in sweep.panels)}
    needed = shown & {"objective", "suboptimality"}
    # A sample of the clients does not give the optimum of all.
    solvable = problem.convex and penalty.convex and not on_disk(problem.train)
    return sweep.solve_optimum and solvable and bool(needed)


def solve_optima(
    problem: Problem, penalty: Penalty, scales: tuple[float, ...], limit: float = _LIMIT
) -> Iterator[tuple[float, dict[str, float]]]:
    """Yield the measures at the optimum for each strength of the penalty.

    Raises ``TimeoutError`` if the solver needs more than ``limit`` seconds, or 50,000 steps.
    """
    observe = jax.jit(observer(problem, penalty, scales[0]))
    end = time.monotonic() + limit
    for scale in scales:
        steps = 1
        while True:
            began = time.monotonic()
            found = optimum(problem, penalty, scale, tolerance=1e-7, max_steps=steps)
            if found.converged:
                break
            # A program on a device cannot be stopped: each try may take eight times the last.
            now = time.monotonic()
            more = min(8.0, (end - now) / (now - began), _MOST_STEPS / steps)
            if more < 1.5:
                raise TimeoutError(
                    f"the optimum at strength {scale:g} was not found in {limit:g} s or "
                    f"{_MOST_STEPS:,} steps, so rows have no suboptimality; Sweep("
                    "solve_optimum=False) does not look for it"
                )
            steps = int(more * steps)
        params = jax.tree.map(jnp.asarray, found.params)
        hparams = FedDualAvgHparams(penalty_scale=scale)
        seen = observe(hparams, params, (problem.train, problem.validation))
        seen.pop(SUPPORT, None)
        measures = {name: float(value) for name, value in seen.items() if jnp.ndim(value) == 0}
        yield scale, measures | {"objective": float(found.objective)}


def columns(problem: Problem, solved: bool) -> list[str]:
    """Return the measures by which points can be ranked; ``solved`` adds the suboptimality."""
    measures = jax.eval_shape(lambda key: problem.measures(problem.init(key)), jax.random.key(0))
    found = ["objective", "loss", *(name for name in measures if name != SUPPORT)]
    found += ["suboptimality"] * solved + ["validation_loss"] * (problem.validation is not None)
    return list(dict.fromkeys(found))
