"""Centralised solvers run to a stated tolerance: the optimum that a problem does not know."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer

from fcojax import tree
from fcojax.device import in_full_precision
from fcojax.memo import memoised
from fcojax.problems.problem import Problem, population_loss
from fcojax.transforms.penalty import Penalty, require_penalty
from fcojax.types import Array, Params, PyTree, Scalar


class Solution(NamedTuple):
    """Where a solver stopped, and how good a point that is.

    Attributes:
      params: the minimiser found.
      objective: F + psi there.
      residual: the certificate, the largest entry of ``grad F(w) + s`` at ``w = params``, where s
        is a subgradient of psi at w, over the largest entry of ``grad F(w)``, of s or of
        ``Hess F(w) |w|``. Zero exactly at a minimiser; scaling F + psi, or the parameters, does
        not change it. Entries of w below 1e-4 times those of the start count as that large.
      num_steps: proximal gradient steps taken.
      converged: whether the residual is no larger than the tolerance.
    """

    params: Params
    objective: Array
    residual: Array
    num_steps: Array
    converged: Array


class _Composite(NamedTuple):
    """F with its slope and the prox step of psi."""

    value: Callable[[Params], Array]
    slope: Callable[[Params], Params]
    value_and_slope: Callable[[Params], tuple[Array, Params]]
    prox: Callable[[Params, Array], Params]  # (v, L) -> prox_{psi / L}(v)
    floor: Params  # sizes of the parameters below which they count as zero


class _Iterate(NamedTuple):
    point: Params
    subgradient: Params  # of psi at the point
    ahead: Params  # the extrapolated point, where gradients are taken
    plain: Array  # whether it is the point itself
    momentum: Array
    smoothness: Array
    unit: Array  # of the residual, when it was last computed
    residual: Array
    num_steps: Array
    done: Array


def fista(
    smooth: Callable[[Params, PyTree], Array],
    penalty: Penalty,
    scale: Scalar,
    params: Params,
    context: PyTree = None,
    *,
    tolerance: float = 1e-8,
    max_steps: int = 50_000,
) -> Solution:
    r"""Minimises ``smooth(w, context) + psi(w; scale)`` by accelerated proximal gradient.

    .. math:: w^+ = \mathrm{prox}_{\psi / L}\big(v - \nabla F(v) / L\big), \qquad
              v^+ = w^+ + \tfrac{\theta - 1}{\theta^+} (w^+ - w)

    L starts at the curvature of F along its gradient, shrinks by a tenth in every step, and doubles
    until the quadratic model majorises F. The momentum restarts whenever it points uphill, which
    makes the method linear on strongly convex problems without knowing it. Nothing here has a
    unit: F + psi and c (F + psi) take the same steps to the same answer.

    Args:
      smooth: F, a function of the parameters and of ``context``, twice differentiable.
      penalty: psi; what it does not touch is minimised without it.
      scale: its strength, at least 0.
      params: where to start; its dtype is the precision of the solve.
      context: arrays that F needs, so that they are not baked into the program.
      tolerance: on the relative residual; in float32 below about 1e-5 it may be out of reach.
      max_steps: after which the solver gives up, with ``converged`` false.

    References:
      Beck and Teboulle, "A fast iterative shrinkage-thresholding algorithm for linear inverse
      problems", SIAM J. Imaging Sci. 2009; Scheinberg, Goldfarb and Bai, "Fast first-order methods
      for composite convex optimization with backtracking", Found. Comput. Math. 2014; O'Donoghue
      and Candes, "Adaptive restart for accelerated gradient schemes", Found. Comput. Math. 2015.
    """
    require_penalty(penalty, "fista")
    _refuse_negative(scale)
    return _solve(smooth, penalty, scale, params, context, tolerance, max_steps)


def optimum(
    problem: Problem,
    penalty: Penalty,
    scale: float,
    *,
    tolerance: float = 1e-8,
    max_steps: int = 50_000,
) -> Solution:
    """The pooled minimiser of a problem's ``F + psi``, in float64 whatever the data's precision.

    The solution is in numpy's float64, which keeps its digits in a float32 program too; JAX rounds
    it to float32 where it meets ``jax_enable_x64`` switched off. See ``fista`` for the arguments.
    """
    require_penalty(penalty, "optimum")
    _refuse_negative(scale)
    with jax.enable_x64(True):
        start = problem.init(jax.random.key(0))
        data, start = jax.tree.map(_in_float64, (problem.train, start))
        found = fista(
            _population(problem.loss), penalty, jnp.float64(scale), start, data,
            tolerance=tolerance, max_steps=max_steps,
        )  # fmt: skip
        return jax.device_get(found)


@functools.partial(jax.jit, static_argnames=("smooth", "penalty", "max_steps"))
@in_full_precision
def _solve(smooth, penalty, scale, params, context, tolerance, max_steps) -> Solution:
    def value(w):
        return smooth(w, context)

    slope, differentiate = jax.vjp(jax.grad(value), params)
    problem = _Composite(
        value=value,
        slope=jax.grad(value),
        value_and_slope=jax.value_and_grad(value),
        prox=lambda v, smoothness: penalty.prox(v, 1 / smoothness, scale),
        floor=tree.scale(2.0**-13, jax.tree.map(jnp.abs, params)),
    )
    end = jax.lax.while_loop(
        lambda iterate: ~iterate.done,
        lambda iterate: _step(problem, iterate, tolerance, max_steps),
        _first(params, slope, _curvature(params, slope, differentiate)),
    )
    reached = value(end.point)
    objective = reached + penalty.value(end.point, scale).astype(reached.dtype)
    converged = end.residual <= tolerance
    return Solution(end.point, objective, end.residual, end.num_steps, converged)


def _first(params: Params, slope: Params, smoothness: Array) -> _Iterate:
    one = jnp.ones_like(smoothness)
    no = jnp.zeros((), bool)
    return _Iterate(
        params, tree.zeros_like(params), params, no, one, smoothness, _largest(slope),
        one * jnp.inf, jnp.zeros((), jnp.int32), no,
    )  # fmt: skip


def _step(problem: _Composite, iterate: _Iterate, tolerance: Scalar, max_steps: int) -> _Iterate:
    ahead = iterate.ahead
    value, slope = problem.value_and_slope(ahead)
    # The certificate needs the gradient at a point whose subgradient is known: where no momentum
    # led ahead of it. Elsewhere the length of a step says when to look.
    residual, unit = jax.lax.cond(
        iterate.plain,
        lambda: _residual(problem, iterate.point, slope, iterate.subgradient),
        lambda: (jnp.full_like(iterate.residual, jnp.inf), iterate.unit),
    )
    smoothness = _majorising(problem, ahead, value, slope, 0.9 * iterate.smoothness)
    point = _move(problem, ahead, slope, smoothness)
    gap, move = tree.sub(ahead, point), tree.sub(point, iterate.point)
    uphill = tree.vdot(gap, move) > 0
    restart = uphill | (smoothness * _largest(gap) <= tolerance * unit)
    restart |= iterate.num_steps + 1 >= max_steps
    squared = iterate.momentum**2 * smoothness / iterate.smoothness
    momentum = jnp.where(restart, 1, (1 + jnp.sqrt(1 + 4 * squared)) / 2)
    weight = jnp.where(restart, 0, (iterate.momentum - 1) / momentum)
    taken = _Iterate(
        point=point,
        subgradient=tree.sub(tree.scale(smoothness, gap), slope),
        ahead=tree.add_scaled(point, weight, move),
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


def _move(problem: _Composite, ahead: Params, slope: Params, smoothness: Array) -> Params:
    return problem.prox(tree.add_scaled(ahead, -1 / smoothness, slope), smoothness)


def _residual(
    problem: _Composite, point: Params, slope: Params, subgradient: Params
) -> tuple[Array, Array]:
    """That of a point, and its unit."""
    sizes = jax.tree.map(
        lambda leaf, least: jnp.maximum(jnp.abs(leaf), least), point, problem.floor
    )
    change = jax.vjp(problem.slope, point)[1](sizes)[0]
    parts = (slope, subgradient, change)
    unit = functools.reduce(jnp.maximum, [_largest(part) for part in parts])
    left = _largest(tree.add(slope, subgradient))
    return jnp.where(left == 0, 0, left / unit), unit


def _majorising(problem, ahead: Params, value: Array, slope: Params, smoothness: Array) -> Array:
    """The least doubling of L whose quadratic model at ``ahead`` is above F at the step's end."""
    epsilon = jnp.finfo(value.dtype).eps

    def too_small(smoothness):
        point = _move(problem, ahead, slope, smoothness)
        move = tree.sub(point, ahead)
        there, along = problem.value(point), tree.vdot(slope, move)
        allowed = smoothness / 2 * tree.vdot(move, move)
        rounding = 4 * epsilon * (jnp.abs(value) + jnp.abs(there) + jnp.abs(along))

        def by_slopes():
            # Near the optimum F cannot be evaluated to what the two sides differ by.
            bend = tree.vdot(tree.sub(problem.slope(point), slope), move) / 2
            error = smoothness * _largest(point) + _largest(slope)
            length = tree.total(jax.tree.map(lambda leaf: jnp.sum(jnp.abs(leaf)), move))
            return bend <= (1 + 1e-3) * allowed + 4 * epsilon * error * length

        fits = jax.lax.cond(
            rounding > allowed / 100, by_slopes, lambda: there - value - along <= allowed + rounding
        )
        return ~fits & jnp.isfinite(smoothness)

    return jax.lax.while_loop(too_small, lambda smoothness: 2 * smoothness, smoothness)


def _curvature(params: Params, slope: Params, differentiate: Callable) -> Array:
    """The curvature of F along its gradient; a guess of the same unit where F is not curved."""
    largest = _largest(slope)
    along = jax.tree.map(
        lambda leaf: jnp.where(largest > 0, leaf / largest, jnp.ones_like(leaf)), slope
    )
    (change,) = differentiate(along)
    curvature = jnp.abs(tree.vdot(change, along)) / tree.vdot(along, along)
    guess = jnp.where(largest > 0, largest / jnp.maximum(_largest(params), 1), 1)
    return jnp.where(jnp.isfinite(curvature) & (curvature > 0), curvature, guess)


@memoised
def _population(loss):
    return functools.partial(population_loss, loss)


def _refuse_negative(scale: Scalar) -> None:
    if not isinstance(scale, Tracer) and not scale >= 0:
        raise ValueError(f"scale is {scale}, but the strength of a penalty is at least 0.")


def _in_float64(leaf: Array) -> Array:
    return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def _largest(x: Params) -> Array:
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(x)]))
