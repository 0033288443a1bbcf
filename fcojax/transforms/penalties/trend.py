r"""Trend filtering: total variation of a derivative, by projected Newton steps in its dual.

With D the matrix of differences, the prox is :math:`v - D^T u` for the u that minimises
:math:`|v - D^T u|^2 / 2` subject to :math:`|u_i| \le s`. Given the active bounds, u solves a linear
system. A step treats the bounds at which the gradient points outwards as active, solves the system,
and moves towards the solution by the best of some step lengths, projected onto the bounds. Once the
active bounds are right, the result is exact.

Reference: Bertsekas, Projected Newton methods for optimization problems with simple constraints,
1982.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.indicators import largest
from fcojax.transforms.penalties.l1 import l1_norm
from fcojax.transforms.penalty import Penalty, times_scale, weight
from fcojax.types import Array, Axis, Count
from fcojax.xla import linalg

_LENGTHS = 0.5 ** np.arange(20)  # step lengths that are tried


class _Differences(NamedTuple):
    """D and D D^T."""

    matrix: Array
    gram: Array


@factory
def trend_filter(degree: Count = 1, axis: Axis = -1) -> Penalty:
    r"""Return the penalty of trend filtering, :math:`\lambda |D^{(k + 1)} x|_1` along an axis.

    D takes the differences of neighbours k + 1 times, so that minimisers are piecewise polynomials
    of degree k: for k = 1 linear with few kinks, :math:`\lambda \sum_i |x_{i+1} - 2 x_i +
    x_{i-1}|`. For k = 0 see ``total_variation``.

    The prox is exact but for rounding errors, which grow with the length to the power 2 k + 2; use
    float64 beyond twenty entries. It solves a dense system of that size a few times. Polynomials
    have value 0, so ``scale_max`` is the smallest scale at which the minimiser is a polynomial,
    computed from the gradient at the best polynomial.

    Args:
      degree: k, the degree of the polynomials.
      axis: the axis of the signals, in every leaf; signals of at most k + 1 entries have value 0.

    Example:
      >>> kink = jnp.array([0.0, 1.0, 3.0])
      >>> trend_filter().prox(kink, step=1.0, scale=0.125).round(3).tolist()
      [-0.125, 1.25, 2.875...]

    References:
      Kim, Koh, Boyd and Gorinevsky, "l1 trend filtering", 2009; Tibshirani, "Adaptive piecewise
      polynomial estimation via trend filtering", 2014.
    """

    def of_signals(function, leaf):
        """Apply a function to every signal and D; ``None`` if they are too short."""
        if leaf.ndim == 0 or leaf.shape[axis] <= degree + 1 or leaf.size == 0:
            return None
        signals = jnp.moveaxis(leaf, axis, -1)
        matrix = np.diff(np.eye(signals.shape[-1]), n=degree + 1, axis=0)
        # Numpy multiplies: XLA is slow in folding products of constants.
        given = (jnp.asarray(m, leaf.dtype) for m in (matrix, matrix @ matrix.T))
        each = functools.partial(function, differences=_Differences(*given))
        found = jax.vmap(each)(signals.reshape(-1, signals.shape[-1]))
        return found if found.ndim == 1 else jnp.moveaxis(found.reshape(signals.shape), -1, axis)

    def value(x, scale):
        def one(leaf):
            sums = of_signals(lambda flat, differences: l1_norm(differences.matrix @ flat), leaf)
            return jnp.zeros((), leaf.dtype) if sums is None else jnp.sum(sums)

        return times_scale(scale, tree.total(jax.tree.map(one, tree.floats(x))))

    def prox(v, step, scale):
        def one(leaf):
            denoise = functools.partial(_denoised, bound=weight(step, scale, leaf))
            moved = of_signals(denoise, leaf)
            return leaf if moved is None else moved

        return tree.cast_like(jax.tree.map(one, tree.floats(v)), v)

    def scale_max(gradient):
        def one(leaf):
            bounds = of_signals(
                lambda flat, differences: tree.max_abs(_free(flat, differences)), leaf
            )
            return jnp.zeros((), leaf.dtype) if bounds is None else bounds

        return largest(jax.tree.map(one, tree.floats(gradient)))

    return Penalty(value, prox, scale_max)


def _free(flat: Array, differences: _Differences) -> Array:
    """Return the minimiser of the dual without bounds."""
    return linalg.solve(differences.gram, differences.matrix @ flat)


def _denoised(flat: Array, differences: _Differences, bound: Array) -> Array:
    # The prox is homogeneous, and for entries near 1 squares neither overflow nor underflow.
    unit = tree.safe_unit(tree.max_abs(flat))
    flat, bound = flat / unit, bound / unit
    # At this bound the signal is a polynomial already; larger bounds could overflow.
    bound = jnp.minimum(
        bound, 1 + 2 * tree.max_abs(jax.lax.stop_gradient(_free(flat, differences)))
    )
    fixed = jax.lax.stop_gradient(flat)
    # With a bound of 0 the dual is 0 for every v: the derivative in v is the identity.
    inner = jnp.where(bound > 0, flat, fixed)
    side = _sides(differences.matrix @ fixed, jax.lax.stop_gradient(bound), differences)
    moved = inner - (bound * side) @ differences.matrix
    # The second solution removes what the first leaves of the differences, for x and not for u.
    for _ in range(2):
        dual = _released(differences.matrix @ moved, side, differences)
        moved = moved - dual @ differences.matrix
    return unit * (moved + jnp.where(bound > 0, 0, flat - fixed))


def _released(target: Array, side: Array, differences: _Differences) -> Array:
    """Return u, zero at active bounds, such that D D^T u is ``target`` at the other entries."""
    free = side == 0
    gram = differences.gram
    gram = jnp.where(free[:, None] & free[None], gram, jnp.diag((~free).astype(gram.dtype)))
    return linalg.solve(gram, jnp.where(free, target, 0))


def _sides(target: Array, bound: Array, differences: _Differences) -> Array:
    """Return 1 or -1 where a bound of u is active, else 0; ``target`` is Dv."""
    matrix, gram = differences
    epsilon = jnp.finfo(target.dtype).eps
    # With a bound of 0 the sides are those of the least bounds above it: every difference but 0 is
    # then far beyond its bound, and D D^T u is at most the largest row sum of |D D^T|.
    far = 1 + 2 * jnp.max(jnp.sum(jnp.abs(gram), axis=1))
    target = jnp.where(bound > 0, target, far * jnp.sign(target))
    bound = jnp.where(bound > 0, bound, 1)
    most = 100 + 10 * target.size

    def sides(dual):
        gradient = gram @ dual - target
        pushed = (jnp.abs(dual) >= bound) & (dual * gradient <= 0)
        upper = jnp.where(gradient == 0, jnp.sign(dual), -jnp.sign(gradient))
        return gradient, jnp.where(pushed, upper, 0)

    def step(state):
        dual, turn, _ = state
        gradient, side = sides(dual)
        rest = jnp.max(jnp.where(side == 0, jnp.abs(gradient), 0))
        # A step that reaches the solution leaves a gradient of rounding errors.
        room = epsilon ** (2 / 3) * jnp.max(jnp.abs(target)) + 64 * epsilon * jnp.max(jnp.abs(dual))
        active = bound * side
        way = active + _released(target - gram @ active, side, differences) - dual
        lengths = jnp.asarray(_LENGTHS, target.dtype)
        moves = jnp.clip(dual[None] + lengths[:, None] * way[None], -bound, bound) - dual[None]
        gains = moves @ gradient + 0.5 * jnp.sum((moves @ matrix) ** 2, axis=1)
        return dual + moves[jnp.argmin(gains)], turn + 1, rest > room

    start = jnp.clip(linalg.solve(gram, target), -bound, bound)
    start = start, jnp.asarray(0), jnp.asarray(True)
    state = jax.lax.while_loop(lambda state: state[2] & (state[1] < most), step, start)
    return sides(state[0])[1]
