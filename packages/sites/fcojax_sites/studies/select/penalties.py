"""Penalties of the groups of a table: sorted l1, and trend filtering, each of a vector.

The proxes are exact. A trend's is a projected Newton method in the dual: Bertsekas, "Projected
Newton methods for optimization problems with simple constraints", 1982.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fcojax.transforms import Penalty, monotone


def on_entries(*parts: tuple[Penalty, Sequence[int] | np.ndarray]) -> Penalty:
    r"""Add penalties, each on some entries of a point, :math:`\sum_p \psi_p(x_p; \lambda)`.

    An entry in no part is not penalised. ``scale_max`` is the largest of the parts.

    Args:
      *parts: pairs of a penalty and the entries that it gets as a vector, in that order: integers
        from 0, counted over all leaves jointly. No entry is in two parts.
    """
    parts = tuple((psi, np.asarray(chosen)) for psi, chosen in parts)

    def value(x, scale):
        flat, _ = ravel_pytree(x)
        return sum((psi.value(flat[chosen], scale) for psi, chosen in parts), jnp.zeros(()))

    def prox(v, step, scale):
        flat, unravel = ravel_pytree(v)
        for psi, chosen in parts:
            flat = flat.at[chosen].set(psi.prox(flat[chosen], step, scale))
        return unravel(flat)

    def scale_max(gradient):
        flat, _ = ravel_pytree(gradient)
        least: list[Any] = [psi.scale_max for psi, _ in parts]
        each = [one(flat[chosen]) for one, (_, chosen) in zip(least, parts, strict=True)]
        return jnp.max(jnp.stack(each))

    return Penalty(value, prox, scale_max)


def slope(weights: np.ndarray) -> Penalty:
    r"""Return the sorted l1 norm, :math:`\psi(x) = \lambda \sum_i w_i |x|_{(i)}`, of a vector.

    :math:`|x|_{(1)} \ge |x|_{(2)} \ge \dots` are the magnitudes; w is decreasing. The prox is the
    positive part of the closest decreasing sequence to the sorted magnitudes minus
    :math:`t \lambda w`.

    References:
      Bogdan, van den Berg, Sabatti, Su and Candes, "SLOPE: adaptive variable selection via convex
      optimization", 2015, algorithm 3.
    """

    def value(x, scale):
        return scale * jnp.vdot(weights, jnp.sort(jnp.abs(x), descending=True))

    def prox(v, step, scale):
        order = jnp.argsort(jnp.abs(v), descending=True)
        lowered = jnp.abs(v)[order] - step * scale * jnp.asarray(weights, v.dtype)
        level = -monotone().prox(-lowered, 0.0, 0.0)
        return jnp.sign(v) * jnp.zeros_like(v).at[order].set(jnp.maximum(level, 0))

    def scale_max(gradient):
        sums = jnp.cumsum(jnp.sort(jnp.abs(gradient), descending=True))
        return jnp.max(sums / jnp.cumsum(jnp.asarray(weights, gradient.dtype)))

    return Penalty(value, prox, scale_max)


def trend_filter() -> Penalty:
    r"""Return :math:`\lambda \sum_i |x_{i+1} - 2 x_i + x_{i-1}|` of a vector of three or more.

    Straight lines have value 0, so ``scale_max`` is the smallest scale at which the minimiser is
    one, computed from the gradient at the best line. The errors of the prox are rounding errors
    times the length to the power 4.

    References:
      Kim, Koh, Boyd and Gorinevsky, "l1 trend filtering", 2009.
    """

    def matrices(x):
        matrix = np.diff(np.eye(x.size), n=2, axis=0)
        return jnp.asarray(matrix, x.dtype), jnp.asarray(matrix @ matrix.T, x.dtype)

    def value(x, scale):
        return scale * jnp.sum(jnp.abs(matrices(x)[0] @ x))

    def prox(v, step, scale):
        matrix, gram = matrices(v)
        # Of numbers near 1 no squares overflow; from this bound on the signal is a line.
        unit = jnp.where(jnp.any(v != 0), jnp.max(jnp.abs(v)), 1)
        free = jnp.linalg.solve(gram, matrix @ v) / unit
        bound = jnp.minimum(step * scale / unit, 1 + 2 * jnp.max(jnp.abs(free)))
        side = _sides(matrix @ v / unit, bound, matrix, gram)
        moved = v / unit - (bound * side) @ matrix
        # The second solution removes what the first leaves of the differences.
        for _ in range(2):
            moved = moved - _released(matrix @ moved, side, gram) @ matrix
        return jnp.where(bound > 0, unit * moved, v)

    def scale_max(gradient):
        matrix, gram = matrices(gradient)
        return jnp.max(jnp.abs(jnp.linalg.solve(gram, matrix @ gradient)))

    return Penalty(value, prox, scale_max)


def _released(target, side, gram):
    """Return u, zero at active bounds, such that D D^T u is ``target`` at the other entries."""
    free = side == 0
    gram = jnp.where(free[:, None] & free[None], gram, jnp.diag((~free).astype(gram.dtype)))
    return jnp.linalg.solve(gram, jnp.where(free, target, 0))


def _sides(target, bound, matrix, gram):
    """Return 1 or -1 where a bound of u is active, else 0; ``target`` is Dv."""
    epsilon = jnp.finfo(target.dtype).eps
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
        way = active + _released(target - gram @ active, side, gram) - dual
        lengths = jnp.asarray(0.5 ** np.arange(20), target.dtype)
        moves = jnp.clip(dual[None] + lengths[:, None] * way[None], -bound, bound) - dual[None]
        gains = moves @ gradient + 0.5 * jnp.sum((moves @ matrix) ** 2, axis=1)
        return dual + moves[jnp.argmin(gains)], turn + 1, rest > room

    start = jnp.clip(jnp.linalg.solve(gram, target), -bound, bound)
    state = jax.lax.while_loop(
        lambda state: state[2] & (state[1] < most), step, (start, jnp.asarray(0), jnp.asarray(True))
    )
    return sides(state[0])[1]
