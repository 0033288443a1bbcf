"""The solver of a path over clients in arrays. It runs rounds until the violation is small."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import ClientData, kkt, tree
from fcojax.algorithms import Algorithm
from fcojax.extend import Program, pooled_gradient, solve_traced
from fcojax.problems import population_loss
from fcojax.problems.losses import Loss
from fcojax.transforms import Penalty, flat
from fcojax.types import Array, Params, PyTree
from fcojax_sites.selection.solver import Fits, Solver, Start

# Power iterations for the curvature from a random direction, and from the last direction.
FIRST_ITERATIONS, LATER_ITERATIONS = 30, 3


class Setup(NamedTuple):
    """The static inputs of a compiled path."""

    program: Program  # the program of one solve, with the violation
    loss: Loss
    penalty: Penalty
    max_rounds: int
    finds_rate: bool
    summary: Callable[[ClientData], ClientData] | None = None

    def with_loss(self, loss: Loss, algorithm: Algorithm) -> "Setup":
        """Replace the loss, and the algorithm that minimises it."""
        observe = kkt(loss, self.penalty)
        return self._replace(
            loss=loss, program=self.program._replace(algorithm=algorithm, observe=observe)
        )


def solver_of(setup: Setup, hparams: PyTree, data: ClientData) -> Solver:
    """Return the solver for clients in arrays, for use inside a program.

    Args:
      setup: the static inputs.
      hparams: the hyperparameters; a solve replaces the strength, and the rate if it is searched.
      data: the clients.
    """
    loss, is_quadratic = setup.loss, setup.summary is not None

    def gradient(params):
        return population_loss(loss, params, data), pooled_gradient(loss, params, data)

    def begin(params, key):
        if not setup.finds_rate:
            return Start.first(params)
        direction = flat().random_point(params, key)
        number = FIRST_ITERATIONS - (0 if is_quadratic else LATER_ITERATIONS)
        return Start.first(params, curvature_at(loss, params, data, direction, number))

    def solve(start, strength, key, tolerance):
        model, curvature = start.extrapolated(strength), start.curvature
        now = hparams._replace(penalty_scale=tree.cast_like(strength, hparams.penalty_scale))
        if setup.finds_rate:
            if not is_quadratic:  # a quadratic has one curvature
                curvature = curvature_at(loss, model, data, curvature[1], LATER_ITERATIONS)
            now = now._replace(client_lr=tree.cast_like(1 / curvature[0], now.client_lr))
        found, outcome = solve_traced(
            setup.program, setup.max_rounds, now, model, data, key, tolerance
        )
        fit = population_loss(loss, found, data)
        objective = fit + setup.penalty.value(found, strength).astype(fit.dtype)
        is_sound = ~outcome.diverged & tree.all_finite(found)
        following = start._replace(curvature=curvature).after(found, strength, is_sound)
        return following, Fits(found, objective, outcome)

    return Solver(setup.penalty, data.num_clients, gradient, begin, solve)


def curvature_at(
    loss: Loss, params: Params, data: ClientData, direction: Params, num_iterations: int
) -> tuple[Array, Params]:
    """Estimate the largest curvature of F at a point by power iterations; return its direction too.

    Power iterations converge from below, so a tenth is added.
    """

    def iterate(_, carry):
        direction, _ = carry
        gradient = functools.partial(pooled_gradient, loss, data=data)
        image = jax.jvp(gradient, (params,), (direction,))[1]
        size = tree.norm(image)
        is_flat = ~(size > 0)  # F has no curvature in this direction
        unit = tree.scale(1 / jnp.where(is_flat, 1, size), image)
        return tree.where(is_flat, direction, unit), jnp.where(is_flat, 1, size)

    start = direction, jnp.ones_like(tree.norm(direction))
    direction, size = jax.lax.fori_loop(0, num_iterations, iterate, start)
    return 1.1 * size, direction
