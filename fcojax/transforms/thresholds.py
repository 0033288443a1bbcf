r"""Clipping, and the projections on a simplex and an l1 ball.

The projection on a simplex subtracts a threshold theta from all entries, the root of
:math:`\sum_i \max(v_i - \theta, 0) = s`. The left side is convex and decreasing in theta, so
Newton's method from below increases to the root and stops after finitely many steps: each step
halves the excess or the number of active entries. The root for a subset of the entries is smaller,
so the maxima of a few chunks give a good starting point. Entries are taken relative to the largest,
so that a total much smaller than the entries is still attained to full precision.

These maps are piecewise linear. Their derivative at a kink is one-sided: that of the side on which
a constraint is inactive or an entry stays zero.

References: Michelot, 1986; Condat, Fast projection onto the simplex and the l1 ball, 2016.
"""

import jax
import jax.numpy as jnp

from fcojax.types import Array
from fcojax.xla.conditionals import loop

# Chunks of a strided view. For 1e6 entries, 32 to 256 chunks took the same time; for a few
# thousand, 16 chunks save an iteration or two, as more of their maxima are active entries.
_NUM_CHUNKS, _NUM_CHUNKS_IF_SHORT, _SHORT = 64, 16, 1 << 16
_COLUMNS = 64  # summed as a vector; XLA on a CPU sums a row one number after the other
# Newton steps for normal entries: 3 to 8 for a thousand, 1 to 5 from the starting point of chunks.
_USUAL_STEPS, _USUAL_STEPS_AFTER_CHUNKS = 8, 1


@jax.custom_jvp
def clipped(v: Array, low: Array, high: Array) -> Array:
    """Return ``clip(v, low, high)`` for ``low <= high``, with derivative 1 at either bound.

    Where the bounds are equal, the result does not depend on v and the derivative is 0.
    """
    return jnp.clip(v, low, high)


@clipped.defjvp
def _clipped_jvp(primals, tangents):
    v, low, high = primals
    v_dot, low_dot, high_dot = tangents
    inside_dot = jnp.where(low < high, v_dot, (low_dot + high_dot) / 2)
    result_dot = jnp.where(v < low, low_dot, jnp.where(v > high, high_dot, inside_dot))
    return clipped(v, low, high), result_dot


def _newton(entries, total, start, usual):
    """Newton's method from ``start`` below the root, until the active entries stay the same."""

    def unfinished(state):
        _, _, changed = state
        return changed

    def advance(state):
        theta, last_count, _ = state
        rest = jnp.maximum(entries - theta, 0.0)
        count = _sum((rest > 0).astype(entries.dtype))
        new_theta = theta + jnp.maximum(_sum(rest) - total, 0.0) / jnp.maximum(count, 1.0)
        return new_theta, count, (new_theta > theta) & (count < last_count)

    state = start, jnp.full_like(start, entries.size + 1), start == start
    return loop(unfinished, advance, state, usual)[0]


def _sum(entries):
    """The sum, vectorised over columns."""
    whole = entries.size // _COLUMNS * _COLUMNS
    if whole <= _COLUMNS:
        return jnp.sum(entries)
    columns = jnp.sum(entries[:whole].reshape(-1, _COLUMNS), axis=0)
    return jnp.sum(columns) + jnp.sum(entries[whole:])


def _threshold(entries, total):
    """The largest entry, and the entries and the threshold minus that; for ``total >= 0``."""
    highest = jnp.max(entries)
    below = entries - highest
    start = jnp.maximum(-total, (jnp.sum(below) - total) / entries.size)
    usual = _USUAL_STEPS
    if entries.size >= 4096:
        chunks = _NUM_CHUNKS_IF_SHORT if entries.size < _SHORT else _NUM_CHUNKS
        width = entries.size // chunks
        tops = jnp.max(below[: chunks * width].reshape(chunks, width), axis=0)
        start = _newton(tops, total, start, usual)
        usual = _USUAL_STEPS_AFTER_CHUNKS
    return highest, below, jnp.minimum(_newton(below, total, start, usual), 0.0)


@jax.custom_jvp
def project_simplex(entries: Array, total: Array) -> Array:
    r"""Return the nearest point of :math:`\{x \ge 0, \sum_i x_i = s\}`.

    The derivative subtracts the mean over the active entries. For s = 0 the result is 0, and only
    its derivative in s is not zero: it is distributed over the largest entries.
    """
    _, below, theta = _threshold(entries, total)
    return jnp.maximum(below - theta, 0.0)


@project_simplex.defjvp
def _project_simplex_jvp(primals, tangents):
    entries, total = primals
    _, below, theta = _threshold(entries, total)
    x = jnp.maximum(below - theta, 0.0)
    return x, _simplex_tangent(x, below, total, *tangents)


def _simplex_tangent(x, below, total, entries_dot, total_dot):
    active = jnp.where(total > 0, x > 0, below == 0)
    count = jnp.maximum(jnp.sum(active.astype(x.dtype)), 1.0)
    mean = jnp.sum(jnp.where(active, entries_dot, 0.0)) / count
    centred = jnp.where(total > 0, entries_dot - mean, 0.0)
    return jnp.where(active, centred + total_dot / count, 0.0)


@jax.custom_jvp
def project_l1_ball(flat: Array, radius: Array) -> Array:
    """Return the nearest vector whose l1 norm is at most ``radius``, a number of at least 0.

    On the boundary of the ball the derivative is that of the interior, the identity.
    """
    x, *_ = _l1_ball_projection(flat, radius)
    return x


def _l1_ball_projection(flat, radius):
    highest, below, theta = _threshold(jnp.abs(flat), radius)
    outside = highest + theta > 0
    x = jnp.where(outside, jnp.sign(flat) * jnp.maximum(below - theta, 0.0), flat)
    return x, outside, below, highest + theta


def _ball_tangent(flat, radius, flat_dot, radius_dot):
    x, outside, below, _ = _l1_ball_projection(flat, radius)
    sign = jnp.sign(flat)
    x_dot = _simplex_tangent(jnp.abs(x), below, radius, sign * flat_dot, radius_dot)
    return jnp.where(outside | (radius == 0), sign * x_dot, flat_dot)


@project_l1_ball.defjvp
def _project_l1_ball_jvp(primals, tangents):
    return project_l1_ball(*primals), _ball_tangent(*primals, *tangents)


@jax.custom_jvp
def l1_ball_residual(flat: Array, radius: Array) -> Array:
    """Return ``flat - project_l1_ball(flat, radius)``: the entries clipped to a common level."""
    *_, level = _l1_ball_projection(flat, radius)
    level = jnp.maximum(level, 0.0)
    return jnp.clip(flat, -level, level)


@l1_ball_residual.defjvp
def _l1_ball_residual_jvp(primals, tangents):
    return l1_ball_residual(*primals), tangents[0] - _ball_tangent(*primals, *tangents)
