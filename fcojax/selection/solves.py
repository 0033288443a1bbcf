"""Solves along a path: each starts where the line through the last two models leads.

A method that sums gradients in a dual would start its sums anew at each strength and let go of the
zeros in its first rounds. It starts instead as after a block of rounds at the start point, with the
subgradient of a proximal gradient step: entries that have to enter are at the threshold, the others
as far inside as their gradient is. Reusing the old sums would keep entries at zero for thousands
of rounds.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import ClientData, Plan, kkt, tree
from fcojax.algorithms import Algorithm
from fcojax.extend import Loss, Outcome, Program, pooled_gradient, solve_traced
from fcojax.problems import population_loss
from fcojax.transforms import Penalty, flat
from fcojax.types import Array, Key, Params

# Power iterations for the curvature: from a random direction, and from the last strength's.
FIRST_ITERATIONS, LATER_ITERATIONS = 30, 3
# Folded into the key of a path; strengths have the indices from 0.
_NULL, _FOLD = 0x6E756C6C, 0x666F6C64


class Setup(NamedTuple):
    """What is fixed while a path is compiled."""

    program: Program  # of a solve, with the violation as what is evaluated
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


class Fits(NamedTuple):
    """Models, objectives and outcomes with a leading axis of strengths."""

    models: Params
    objective: Array
    outcome: Outcome


def warm_started_path(
    setup: Setup, hparams, params, strengths, data, key, tolerance, num_iterations=LATER_ITERATIONS
) -> Fits:
    """Solve for one strength after the other, each from the model of the one before."""

    def solve_next(start, inputs):
        index, strength = inputs
        solve_key = jax.random.fold_in(key, index)
        return solve_from(
            setup, hparams, start, strength, data, solve_key, tolerance, num_iterations
        )

    start = first_start(setup, params, data, key, num_iterations)
    index = jnp.arange(strengths.shape[0], dtype=jnp.int32)
    return jax.lax.scan(solve_next, start, (index, strengths))[1]


class Start(NamedTuple):
    """The last two models with their strengths; the curvature and its direction if needed."""

    model: Params
    strength: Array
    earlier: tuple[Params, Array]
    curvature: tuple


def first_start(
    setup: Setup, params: Params, data: ClientData, key, num_iterations=LATER_ITERATIONS
) -> Start:
    """Return where the first solve of a path starts."""
    nowhere = beyond_all(tree.norm(params).dtype)
    start = Start(params, nowhere, (params, nowhere), ())
    if not setup.finds_rate:
        return start
    is_quadratic = setup.summary is not None
    direction = flat().random_point(params, key)
    number = FIRST_ITERATIONS if is_quadratic else FIRST_ITERATIONS - num_iterations
    return start._replace(curvature=curvature_at(setup.loss, params, data, direction, number))


def solve_from(
    setup: Setup,
    hparams,
    start: Start,
    strength,
    data,
    key,
    tolerance,
    num_iterations=LATER_ITERATIONS,
) -> tuple[Start, Fits]:
    """Solve for one strength; return where the next solve starts, too."""
    model, curvature, program = ahead(start, strength), start.curvature, setup.program
    now = hparams._replace(penalty_scale=cast_like(strength, hparams.penalty_scale))
    if setup.finds_rate:
        if setup.summary is None:
            curvature = curvature_at(setup.loss, model, data, curvature[1], num_iterations)
        now = now._replace(client_lr=cast_like(1 / curvature[0], now.client_lr))
    found, outcome = solve_traced(program, setup.max_rounds, now, model, data, key, tolerance)
    fit = population_loss(setup.loss, found, data)
    objective = fit + setup.penalty.value(found, strength).astype(fit.dtype)
    # Starting from a model that is not finite would spoil all strengths after it.
    is_sound = ~outcome.diverged & tree.all_finite(found)
    last = tree.where(is_sound, found, start.model)
    strength = strength.astype(start.strength.dtype)
    following = Start(last, strength, (start.model, start.strength), curvature)
    return following, Fits(found, objective, outcome)


def ahead(start: Start, strength: Array) -> Params:
    """Follow the line through the last two models, no further than they are apart.

    Zeros stay, and an entry that would change its sign becomes one.
    """
    earlier, before = start.earlier
    gap = start.strength - before
    share = (strength - start.strength) / jnp.where(gap == 0, 1, gap)
    share = jnp.where(gap == 0, 0, jnp.clip(share, -1, 1))

    def one(w, old):
        moved = w + share.astype(w.dtype) * (w - old)
        return jnp.where(moved * w > 0, moved, 0)

    return jax.tree.map(one, start.model, earlier)


class Null(NamedTuple):
    """The model at a strength beyond all others, and the least strength at which it is optimal."""

    model: Params
    outcome: Outcome
    first: Array
    gradient: Params


def null_model(setup: Setup, hparams, params, data, key, tolerance) -> Null:
    """Solve for the parameters that the penalty leaves free; ``tolerance`` is in units of first."""
    scale_max = setup.penalty.scale_max
    assert scale_max is not None
    guess = scale_max(pooled_gradient(setup.loss, params, data))
    null = warm_started_path(
        setup,
        hparams,
        params,
        beyond_all(guess.dtype)[None],
        data,
        null_key(key),
        tolerance * guess,
        FIRST_ITERATIONS,
    )
    model, outcome = jax.tree.map(lambda leaf: leaf[0], (null.models, null.outcome))
    gradient = pooled_gradient(setup.loss, model, data)
    return Null(model, outcome, scale_max(gradient), gradient)


def null_key(key: Key) -> Key:
    """Return the key of the null model, which no strength of the path has."""
    return jax.random.fold_in(key, _NULL)


def key_of_fold(plan: Plan, key: Key, fold: Array | int) -> Key:
    """Return the key of a path on part of the data.

    Paths have the same cohorts, which is best for comparing them, but with noise keys of their own:
    the difference of two releases with the same noise has none.
    """
    if not plan.aggregator.noisy:
        return key
    return jax.random.fold_in(jax.random.fold_in(key, _FOLD), fold)


def beyond_all(dtype) -> Array:
    """Return a strength at which every parameter that is penalised is zero."""
    return jnp.asarray(jnp.finfo(dtype).max ** 0.25, dtype)


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


def cast_like(number: Array, other: Array) -> Array:
    """Return a number in the dtype of another."""
    return number.astype(jnp.asarray(other).dtype)
