"""Centralised solvers with a stated tolerance, for the optimum of a pooled problem."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import validated
from fcojax.memo import jit_per, memoised
from fcojax.problems import Problem, population_loss
from fcojax.problems.quadratic import in_float64
from fcojax.transforms import Penalty
from fcojax.types import Array, Count, NonNegative, NumberTree, Params, PyTree, Scalar
from fcojax.xla.rules import in_full_precision


class Solution(NamedTuple):
    """The result of a solver.

    Attributes:
      params: the minimiser found.
      objective: F + psi at ``params``.
      residual: the optimality certificate, the largest entry of ``grad F(w) + s`` at
        ``w = params``, where s is a subgradient of psi at w, divided by the largest entry of
        ``grad F(w)``, s and ``Hess F(w) |w|``. It is zero exactly at a minimiser, and scaling
        F + psi or the parameters does not change it. In this ratio an entry of ``|w|`` counts
        as at least 1e-4 times the entry of the start point.
      num_steps: proximal gradient steps taken.
      converged: whether the residual is at most the tolerance.
    """

    params: Params
    objective: Array
    residual: Array
    num_steps: Array
    converged: Array


class _Composite(NamedTuple):
    """F, and the prox of psi."""

    value: Callable[[Params], Array]
    prox: Callable[[Params, Array], Params]  # (v, L) -> prox_{psi / L}(v)
    floor: Params  # the smallest size of a parameter in the unit of the residual


class _Iterate(NamedTuple):
    point: Params
    subgradient: Params  # a subgradient of psi at the point
    extrapolated: Params  # the extrapolated point, at which gradients are taken
    plain: Array  # whether ``extrapolated`` is the point itself
    momentum: Array
    smoothness: Array  # L
    unit: Array  # the denominator of the residual when it was last computed
    residual: Array
    num_steps: Array
    done: Array


@validated
def fista(
    smooth: Callable[[Params, PyTree], Array],
    penalty: Penalty,
    scale: NonNegative,
    params: Params,
    context: NumberTree | None = None,
    *,
    tolerance: NonNegative = 1e-8,
    max_steps: Count = 50_000,
) -> Solution:
    r"""Minimise ``smooth(w, context) + psi(w; scale)`` by accelerated proximal gradient.

    .. math:: w^+ = \mathrm{prox}_{\psi / L}\big(v - \nabla F(v) / L\big), \qquad
              v^+ = w^+ + \tfrac{\theta - 1}{\theta^+} (w^+ - w)

    L starts at the curvature of F along its gradient, shrinks by a tenth in every step, and doubles
    until the quadratic model majorises F. The momentum restarts whenever it points uphill, so
    convergence is linear on strongly convex problems without knowledge of the constant. The method
    is invariant to units: F + psi and c (F + psi) take the same steps to the same answer.

    Args:
      smooth: F, a function of the parameters and of ``context``, twice differentiable.
      penalty: psi.
      scale: the strength of psi, at least 0.
      params: the starting point; its dtype is the precision of the solve.
      context: arrays that F needs, passed as arguments so that they are not constants of the
        compiled program.
      tolerance: largest relative residual; below about 1e-5 it may not be reached in float32.
      max_steps: the solver stops after this number of steps, with ``converged`` false.

    Returns:
      The ``Solution``.

    References:
      Beck and Teboulle, "A fast iterative shrinkage-thresholding algorithm for linear inverse
      problems", SIAM J. Imaging Sci. 2009; Scheinberg, Goldfarb and Bai, "Fast first-order methods
      for composite convex optimization with backtracking", Found. Comput. Math. 2014; O'Donoghue
      and Candes, "Adaptive restart for accelerated gradient schemes", Found. Comput. Math. 2015.
    """
    return _solve(smooth, penalty, scale, params, context, tolerance, max_steps)


@validated
def optimum(
    problem: Problem,
    penalty: Penalty,
    scale: NonNegative,
    *,
    tolerance: NonNegative = 1e-8,
    max_steps: Count = 50_000,
) -> Solution:
    """Return the pooled minimiser of a problem's ``F + psi``, computed in float64.

    The solution consists of numpy float64 arrays; JAX rounds them to float32 when they are used
    with ``jax_enable_x64`` switched off.

    Args:
      problem: the problem, whose training clients are pooled.
      penalty: psi.
      scale: the strength of psi, at least 0.
      tolerance: largest relative residual, as for ``fista``.
      max_steps: the solver stops after this number of steps, with ``converged`` false.

    Returns:
      The ``Solution``.
    """
    with jax.enable_x64(True):
        start = problem.init(jax.random.key(0))
        data, start = jax.jit(in_float64)((problem.train, start))
        given = _population(problem.loss), penalty, jnp.float64(scale), start, data
        return jax.device_get(fista(*given, tolerance=tolerance, max_steps=max_steps))


@jit_per(num_static=2)
@in_full_precision
def _solve(smooth, penalty, scale, params, context, tolerance, max_steps) -> Solution:
    def value(w):
        return smooth(w, context)

    def prox(v, smoothness):
        return penalty.prox(v, 1 / smoothness, scale)

    problem = _Composite(value, prox, tree.scale(2.0**-13, jax.tree.map(jnp.abs, params)))
    gradient = jax.grad(value)(params)
    end = jax.lax.while_loop(
        lambda iterate: ~iterate.done,
        lambda iterate: _step(problem, iterate, tolerance, max_steps),
        _first(params, gradient, _curvature(problem, params, gradient)),
    )
    loss = value(end.point)
    objective = loss + penalty.value(end.point, scale).astype(loss.dtype)
    converged = end.residual <= tolerance
    return Solution(end.point, objective, end.residual, end.num_steps, converged)


def _first(params: Params, gradient: Params, smoothness: Array) -> _Iterate:
    one, false, none = jnp.ones_like(smoothness), jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    zeros, unit = tree.zeros_like(params), _largest(gradient)
    return _Iterate(params, zeros, params, false, one, smoothness, unit, one * jnp.inf, none, false)


def _step(problem: _Composite, iterate: _Iterate, tolerance: Scalar, max_steps: Scalar) -> _Iterate:
    extrapolated = iterate.extrapolated
    value, gradient = jax.value_and_grad(problem.value)(extrapolated)
    # The residual needs the gradient at a point with a known subgradient, that is, after a step
    # without momentum. Otherwise the length of the step decides when to restart and compute it.
    residual, unit = jax.lax.cond(
        iterate.plain,
        lambda: _residual(problem, iterate.point, gradient, iterate.subgradient),
        lambda: (jnp.full_like(iterate.residual, jnp.inf), iterate.unit),
    )
    smoothness = _majorising(problem, extrapolated, value, gradient, 0.9 * iterate.smoothness)
    point = _move(problem, extrapolated, gradient, smoothness)
    gap, move = tree.sub(extrapolated, point), tree.sub(point, iterate.point)
    uphill = tree.vdot(gap, move) > 0
    restart = uphill | (smoothness * _largest(gap) <= tolerance * unit)
    restart |= iterate.num_steps + 1 >= max_steps
    squared = iterate.momentum**2 * smoothness / iterate.smoothness
    momentum = jnp.where(restart, 1, (1 + jnp.sqrt(1 + 4 * squared)) / 2)
    weight = jnp.where(restart, 0, (iterate.momentum - 1) / momentum)
    taken = _Iterate(
        point=point,
        subgradient=tree.sub(tree.scale(smoothness, gap), gradient),
        extrapolated=tree.add_scaled(point, weight, move),
        plain=weight == 0,
        momentum=momentum.astype(iterate.momentum.dtype),
        smoothness=smoothness,
        unit=unit,
        residual=residual,
        num_steps=iterate.num_steps + 1,
        done=~jnp.isfinite(smoothness),
    )
    done = (residual <= tolerance) | (iterate.num_steps >= max_steps)
    return tree.where(done, iterate._replace(residual=residual, done=done), taken)


def _move(problem: _Composite, extrapolated: Params, gradient: Params, smoothness: Array) -> Params:
    return problem.prox(tree.add_scaled(extrapolated, -1 / smoothness, gradient), smoothness)


def _residual(
    problem: _Composite, point: Params, gradient: Params, subgradient: Params
) -> tuple[Array, Array]:
    """The residual of a point, and its denominator."""
    sizes = jax.tree.map(
        lambda leaf, least: jnp.maximum(jnp.abs(leaf), least), point, problem.floor
    )
    change = _along(problem, point, sizes)
    parts = (gradient, subgradient, change)
    unit = functools.reduce(jnp.maximum, [_largest(part) for part in parts])
    size = _largest(tree.add(gradient, subgradient))
    return jnp.where(size == 0, 0, size / unit), unit


def _majorising(
    problem, extrapolated: Params, value: Array, gradient: Params, smoothness: Array
) -> Array:
    """Return L, doubled until the quadratic model is above F at the end of the step."""
    epsilon = jnp.finfo(value.dtype).eps

    def too_small(smoothness):
        point = _move(problem, extrapolated, gradient, smoothness)
        move = tree.sub(point, extrapolated)
        new_value, along = problem.value(point), tree.vdot(gradient, move)
        allowed = smoothness / 2 * tree.vdot(move, move)
        rounding = 4 * epsilon * (jnp.abs(value) + jnp.abs(new_value) + jnp.abs(along))

        def by_gradients():
            # Near the optimum the two sides differ by less than the rounding error of F.
            bend = tree.vdot(tree.sub(jax.grad(problem.value)(point), gradient), move) / 2
            error = smoothness * _largest(point) + _largest(gradient)
            length = tree.total(jax.tree.map(lambda leaf: jnp.sum(jnp.abs(leaf)), move))
            return bend <= (1 + 1e-3) * allowed + 4 * epsilon * error * length

        fits = jax.lax.cond(
            rounding > allowed / 100,
            by_gradients,
            lambda: new_value - value - along <= allowed + rounding,
        )
        return ~fits & jnp.isfinite(smoothness)

    return jax.lax.while_loop(too_small, lambda smoothness: 2 * smoothness, smoothness)


def _along(problem: _Composite, point: Params, direction: Params) -> Params:
    """The Hessian of F times a direction; forward over reverse, which keeps no copy of the data."""
    return jax.jvp(jax.grad(problem.value), (point,), (direction,))[1]


def _curvature(problem: _Composite, params: Params, gradient: Params) -> Array:
    """The curvature of F along its gradient, or a guess of the same unit if F has none there."""
    largest = _largest(gradient)
    along = jax.tree.map(
        lambda leaf: jnp.where(largest > 0, leaf / largest, jnp.ones_like(leaf)), gradient
    )
    change = _along(problem, params, along)
    curvature = jnp.abs(tree.vdot(change, along)) / tree.vdot(along, along)
    guess = jnp.where(largest > 0, largest / jnp.maximum(_largest(params), 1), 1)
    return jnp.where(jnp.isfinite(curvature) & (curvature > 0), curvature, guess)


@memoised
def _population(loss):
    return functools.partial(population_loss, loss)


def _largest(x: Params) -> Array:
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(x)]))
