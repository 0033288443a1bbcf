"""Centralised solvers run to a stated tolerance: the optimum that a problem does not know."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.problems.problem import Problem, population_loss
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, Params, PyTree, Scalar


class Solution(NamedTuple):
    """Where a solver stopped.

    Attributes:
      params: the minimiser found.
      objective: F + psi there.
      residual: the largest entry of ``L (w - prox_{psi / L}(w - grad F(w) / L))``, zero exactly at
        a minimiser; L is the final estimate of the smoothness of F.
      num_steps: proximal gradient steps taken.
      converged: whether the residual fell below the tolerance.
    """

    params: Params
    objective: Array
    residual: Array
    num_steps: Array
    converged: Array


class _Iterate(NamedTuple):
    point: Params
    ahead: Params  # the extrapolated point, where gradients are taken
    momentum: Array
    smoothness: Array
    residual: Array
    num_steps: Array


@functools.partial(jax.jit, static_argnames=("smooth", "penalty", "max_steps"))
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

    L is found by doubling until the quadratic model majorises F. The momentum restarts whenever it
    points uphill, which makes the method linear on strongly convex problems without knowing it.

    Args:
      smooth: F, a function of the parameters and of ``context``.
      penalty: psi; what it does not touch is minimised without it.
      scale: its strength.
      params: where to start; its dtype is the precision of the solve.
      context: arrays that F needs, so that they are not baked into the program.
      tolerance: on the residual; in float32 below about 1e-4 it may be out of reach.
      max_steps: after which the solver gives up, with ``converged`` false.

    References:
      Beck and Teboulle, "A fast iterative shrinkage-thresholding algorithm for linear inverse
      problems", SIAM J. Imaging Sci. 2009; O'Donoghue and Candes, "Adaptive restart for
      accelerated gradient schemes", Found. Comput. Math. 2015.
    """
    dtype = jnp.result_type(*jax.tree.leaves(params))
    value_and_slope = jax.value_and_grad(smooth)

    def prox_step(ahead, slope, smoothness):
        return penalty.prox(tree.add_scaled(ahead, -1 / smoothness, slope), 1 / smoothness, scale)

    def majorised(ahead, value, slope, smoothness):
        move = tree.sub(prox_step(ahead, slope, smoothness), ahead)
        model = value + tree.vdot(slope, move) + smoothness / 2 * tree.vdot(move, move)
        # Near the optimum the two sides differ by less than F can be evaluated to.
        slack = 16 * jnp.finfo(dtype).eps * jnp.abs(value)
        return smooth(tree.add(ahead, move), context) <= model + slack

    def unfinished(iterate):
        return (iterate.residual > tolerance) & (iterate.num_steps < max_steps)

    def step(iterate):
        value, slope = value_and_slope(iterate.ahead, context)
        smoothness = jax.lax.while_loop(
            lambda smoothness: ~majorised(iterate.ahead, value, slope, smoothness),
            lambda smoothness: 2 * smoothness,
            iterate.smoothness,
        )
        point = prox_step(iterate.ahead, slope, smoothness)
        move = tree.sub(point, iterate.point)
        gap = tree.sub(iterate.ahead, point)
        uphill = tree.vdot(gap, move) > 0
        momentum = jnp.where(uphill, 1, (1 + jnp.sqrt(1 + 4 * iterate.momentum**2)) / 2)
        weight = jnp.where(uphill, 0, (iterate.momentum - 1) / momentum)
        return _Iterate(
            point=point,
            ahead=tree.add_scaled(point, weight, move),
            momentum=momentum.astype(dtype),
            smoothness=smoothness,
            residual=smoothness * _largest(gap),
            num_steps=iterate.num_steps + 1,
        )

    one = jnp.ones((), dtype)
    start = _Iterate(params, params, one, one, one * jnp.inf, jnp.zeros((), jnp.int32))
    end = jax.lax.while_loop(unfinished, step, start)
    objective = smooth(end.point, context) + penalty.value(end.point, scale).astype(dtype)
    return Solution(end.point, objective, end.residual, end.num_steps, end.residual <= tolerance)


def optimum(
    problem: Problem,
    penalty: Penalty,
    scale: float,
    *,
    tolerance: float = 1e-8,
    max_steps: int = 50_000,
) -> Solution:
    """The pooled minimiser of a problem's ``F + psi``, in float64 whatever the data's precision."""
    with jax.enable_x64(True):
        start = problem.init(jax.random.key(0))
        data, start = jax.tree.map(_in_float64, (problem.train, start))
        return fista(
            _population(problem.loss), penalty, jnp.float64(scale), start, data,
            tolerance=tolerance, max_steps=max_steps,
        )  # fmt: skip


@functools.cache
def _population(loss):
    return functools.partial(population_loss, loss)


def _in_float64(leaf: Array) -> Array:
    return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf


def _largest(x: Params) -> Array:
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(x)]))
