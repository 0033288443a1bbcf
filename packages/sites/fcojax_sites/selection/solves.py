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
    # A quadratic has one curvature.
    loss, later = setup.loss, jnp.int32(0 if setup.summary else LATER_ITERATIONS)

    def gradient(params):
        return population_loss(loss, params, data), pooled_gradient(loss, params, data)

    def begin(params, key):
        if not setup.finds_rate:
            return Start.first(params)
        direction = flat().random_point(params, key)
        # The first solve takes these iterations, so that they are compiled once.
        size = jnp.ones_like(tree.norm(direction))
        return Start.first(params, (size, direction, jnp.int32(FIRST_ITERATIONS)))

    def solve(start, strength, key, tolerance):
        model, curvature = start.extrapolated(strength), start.curvature
        now = hparams._replace(penalty_scale=tree.cast_like(strength, hparams.penalty_scale))
        if setup.finds_rate:
            size, direction = curvature_at(loss, model, data, *curvature)
            curvature = size, direction, later
            now = now._replace(client_lr=tree.cast_like(1 / (1.1 * size), now.client_lr))
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
    loss: Loss, params: Params, data: ClientData, size: Array, direction: Params, num: Array | int
) -> tuple[Array, Params]:
    """Estimate the largest curvature of F at a point by ``num`` power iterations.

    They converge from below, so that a rate leaves a tenth of room.

    Args:
      loss: one loss per example.
      params: the point.
      data: the clients.
      size: the estimate so far.
      direction: its direction.
      num: the number of iterations; 0 returns the estimate so far.
    """

    def iterate(_, carry):
        _, direction = carry
        gradient = functools.partial(pooled_gradient, loss, data=data)
        image = jax.jvp(gradient, (params,), (direction,))[1]
        size = tree.norm(image)
        is_flat = ~(size > 0)  # F has no curvature in this direction
        unit = tree.scale(1 / jnp.where(is_flat, 1, size), image)
        return jnp.where(is_flat, 1, size), tree.where(is_flat, direction, unit)

    return jax.lax.fori_loop(0, num, iterate, (size, direction))
