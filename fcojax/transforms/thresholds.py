r"""Soft thresholding and clipping, and the threshold that lands on a simplex or an l1 ball.

The projection on a simplex subtracts one number theta from all entries, the root of
:math:`\sum_i \max(v_i - \theta, 0) = s`. The left side is convex and decreasing in theta, so
Newton's method started below the root climbs to it and stops after finitely many steps: each step
halves the excess or the number of active entries. The projection of a subset has a smaller root, so
the maxima of a few chunks give a good start. All is measured from the largest entry, so that a
total far below the entries is met to its own last digits.

These maps are piecewise linear, and each states its derivative at a kink: the one-sided derivative
of the side on which a constraint does not bind or an entry stays zero. Where there is no kink, as
for a threshold of 0, that is the derivative.

References: Michelot, 1986; Condat, Fast projection onto the simplex and the l1 ball, 2016.
"""

import jax
import jax.numpy as jnp

from fcojax.device import loop
from fcojax.types import Array, Scalar

# Chunks of a strided view. Of 1e6 entries 32 to 256 took the same time; of a few thousand, the
# maxima of 16 are a larger share of the entries that stay, which saves a pass or two.
_NUM_CHUNKS, _NUM_CHUNKS_OF_FEW, _FEW = 64, 16, 1 << 16
_COLUMNS = 64  # that sums are taken over side by side, since one after the other they wait
# Newton steps to the root of normal entries: 3 to 8 of a thousand, 1 to 5 once chunks gave a start.
_USUAL_STEPS, _USUAL_STEPS_AFTER_CHUNKS = 8, 1


def soft_threshold(v: Array, threshold: Scalar) -> Array:
    """``sign(v) * max(|v| - threshold, 0)``, written as one pass that keeps exact zeros.

    Its derivative at the kinks ``|v| == threshold > 0`` is 0, so it is 0 where the answer is; for a
    threshold of 0 it is 1 everywhere.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> fcojax.transforms.soft_threshold(jnp.array([3.0, -0.5, -2.0]), 1.0).tolist()
      [2.0, 0.0, -1.0]
    """
    return _soft(v, jnp.asarray(threshold, v.dtype))


@jax.custom_jvp
def _soft(v, threshold):
    return v - jnp.clip(v, -threshold, threshold)


@_soft.defjvp
def _soft_jvp(primals, tangents):
    v, threshold = primals
    along, threshold_along = tangents
    moves = (jnp.abs(v) > threshold) | (threshold == 0)
    return _soft(v, threshold), jnp.where(moves, along - jnp.sign(v) * threshold_along, 0.0)


@jax.custom_jvp
def clipped(v: Array, low: Array, high: Array) -> Array:
    """``clip(v, low, high)`` for ``low <= high``, with derivative 1 at either bound.

    Where the bounds are equal the answer does not depend on v, and the derivative is 0.
    """
    return jnp.clip(v, low, high)


@clipped.defjvp
def _clipped_jvp(primals, tangents):
    v, low, high = primals
    along, low_along, high_along = tangents
    between = jnp.where(low < high, along, (low_along + high_along) / 2)
    moved = jnp.where(v < low, low_along, jnp.where(v > high, high_along, between))
    return clipped(v, low, high), moved


def _climb(entries, total, start, usual):
    """Newton's method from ``start``, which lies below the root; stops when nothing drops out."""

    def going(state):
        _, _, moved = state
        return moved

    def climb(state):
        theta, last_count, _ = state
        rest = jnp.maximum(entries - theta, 0.0)
        count = _sum((rest > 0).astype(entries.dtype))
        higher = theta + jnp.maximum(_sum(rest) - total, 0.0) / jnp.maximum(count, 1.0)
        return higher, count, (higher > theta) & (count < last_count)

    everyone = jnp.full_like(start, entries.size + 1)
    state = start, everyone, start == start
    return loop(going, climb, state, usual)[0]


def _sum(entries):
    """The sum; XLA adds up a row on a CPU number after number, but columns as vectors."""
    whole = entries.size // _COLUMNS * _COLUMNS
    if whole <= _COLUMNS:
        return jnp.sum(entries)
    columns = jnp.sum(entries[:whole].reshape(-1, _COLUMNS), axis=0)
    return jnp.sum(columns) + jnp.sum(entries[whole:])


def _threshold(entries, total):
    """The largest entry, the entries less that, and the threshold less that; for ``total >= 0``."""
    highest = jnp.max(entries)
    below = entries - highest
    start = jnp.maximum(-total, (jnp.sum(below) - total) / entries.size)
    usual = _USUAL_STEPS
    if entries.size >= 4096:
        chunks = _NUM_CHUNKS_OF_FEW if entries.size < _FEW else _NUM_CHUNKS
        width = entries.size // chunks
        tops = jnp.max(below[: chunks * width].reshape(chunks, width), axis=0)
        start = _climb(tops, total, start, usual)
        usual = _USUAL_STEPS_AFTER_CHUNKS
    return highest, below, jnp.minimum(_climb(below, total, start, usual), 0.0)


@jax.custom_jvp
def onto_simplex(entries: Array, total: Array) -> Array:
    r"""The nearest point of :math:`\{x \ge 0, \sum_i x_i = s\}`, for a total s of at least 0.

    Its derivative takes the mean off the active entries. For a total of 0 the only answer is 0, and
    only the derivative in the total is not: it is shared by the largest entries.
    """
    _, below, theta = _threshold(entries, total)
    return jnp.maximum(below - theta, 0.0)


@onto_simplex.defjvp
def _onto_simplex_jvp(primals, tangents):
    entries, total = primals
    _, below, theta = _threshold(entries, total)
    answer = jnp.maximum(below - theta, 0.0)
    return answer, _simplex_tangent(answer, below, total, *tangents)


def _simplex_tangent(answer, below, total, along, total_along):
    active = jnp.where(total > 0, answer > 0, below == 0)
    count = jnp.maximum(jnp.sum(active.astype(answer.dtype)), 1.0)
    mean = jnp.sum(jnp.where(active, along, 0.0)) / count
    inner = jnp.where(total > 0, along - mean, 0.0)
    return jnp.where(active, inner + total_along / count, 0.0)


@jax.custom_jvp
def onto_l1_ball(flat: Array, radius: Array) -> Array:
    """The nearest vector whose l1 norm is at most ``radius``, a number of at least 0.

    On the sphere of the ball the derivative is that of the inside, the identity.
    """
    answer, *_ = _into_ball(flat, radius)
    return answer


def _into_ball(flat, radius):
    highest, below, theta = _threshold(jnp.abs(flat), radius)
    outside = highest + theta > 0
    answer = jnp.where(outside, jnp.sign(flat) * jnp.maximum(below - theta, 0.0), flat)
    return answer, outside, below, highest + theta


def _ball_tangent(flat, radius, along, radius_along):
    answer, outside, below, _ = _into_ball(flat, radius)
    sign = jnp.sign(flat)
    moved = _simplex_tangent(jnp.abs(answer), below, radius, sign * along, radius_along)
    return jnp.where(outside | (radius == 0), sign * moved, along)


@onto_l1_ball.defjvp
def _onto_l1_ball_jvp(primals, tangents):
    return onto_l1_ball(*primals), _ball_tangent(*primals, *tangents)


@jax.custom_jvp
def off_l1_ball(flat: Array, radius: Array) -> Array:
    """What ``onto_l1_ball`` leaves over: the largest entries cut to a common level."""
    *_, level = _into_ball(flat, radius)
    level = jnp.maximum(level, 0.0)
    return jnp.clip(flat, -level, level)


@off_l1_ball.defjvp
def _off_l1_ball_jvp(primals, tangents):
    return off_l1_ball(*primals), tangents[0] - _ball_tangent(*primals, *tangents)
