r"""The simplex and the l1 ball, by the root of a piecewise linear equation and without a sort.

Both projections subtract one number theta, the root of :math:`\sum_i \max(v_i - \theta, 0) = s`.
The left side is convex and decreasing in theta, so Newton's method started below the root climbs to
it and stops after finitely many steps: each step halves the excess or the number of active entries.
The projection of a subset has a smaller root, so the maxima of a few chunks give a good start.

References: Michelot, 1986; Condat, Fast projection onto the simplex and the l1 ball, 2016.
"""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fcojax import tree
from fcojax.transforms.penalty import Penalty, checked, indicator, largest, soft_threshold, strength

_NUM_CHUNKS = 64  # of a strided view; 32 to 256 took the same time on 1e6 entries


def _climb(entries, total, start):
    """Newton's method from ``start``, which lies below the root; stops when nothing drops out."""

    def going(state):
        _, _, moved = state
        return moved

    def climb(state):
        theta, last_count, _ = state
        rest = jnp.maximum(entries - theta, 0.0)
        count = jnp.sum((rest > 0).astype(entries.dtype))
        higher = theta + jnp.maximum(jnp.sum(rest) - total, 0.0) / jnp.maximum(count, 1.0)
        return higher, count, (higher > theta) & (count < last_count)

    everyone = jnp.full_like(start, entries.size + 1)
    return jax.lax.while_loop(going, climb, (start, everyone, start == start))[0]


@jax.custom_jvp
def simplex_threshold(entries: jax.Array, total: jax.Array) -> jax.Array:
    r"""The theta for which :math:`\sum_i \max(v_i - \theta, 0)` is ``total``, at least 0.

    For a total of 0 it is the largest entry. Its derivative averages over the active entries.
    """
    size = entries.size
    highest = jnp.max(entries)
    start = jnp.maximum(highest - total, (jnp.sum(entries) - total) / size)
    if size >= 64 * _NUM_CHUNKS:
        width = size // _NUM_CHUNKS
        tops = jnp.max(entries[: _NUM_CHUNKS * width].reshape(_NUM_CHUNKS, width), axis=0)
        start = _climb(tops, total, start)
    return jnp.minimum(_climb(entries, total, start), highest)


@simplex_threshold.defjvp
def _simplex_threshold_jvp(primals, tangents):
    entries, total = primals
    theta = simplex_threshold(entries, total)
    active = entries > theta
    active = jnp.where(jnp.any(active), active, entries >= theta)  # total 0: the largest entries
    along, total_along = tangents
    moved = jnp.sum(jnp.where(active, along, 0.0)) - total_along
    return theta, moved / jnp.maximum(jnp.sum(active.astype(entries.dtype)), 1.0)


def ball_threshold(entries: jax.Array, radius: jax.Array) -> jax.Array:
    """What to soft-threshold a vector by so that its l1 norm is at most ``radius``; 0 inside."""
    theta = simplex_threshold(jnp.abs(entries), radius)
    return jnp.where(theta > 0, theta, 0.0)


def simplex() -> Penalty:
    r"""The simplex :math:`\{x \ge 0, \sum_i x_i = s\}` over all leaves, s given as ``scale``.

    .. math:: \mathrm{prox}(v) = \mathrm{argmin}_{x \ge 0,\, 1^T x = s} |x - v|^2
      = \max(v - \theta, 0)

    The step has no effect. For s = 0 the answer is 0, the only point of the set. In a tree without
    entries there is nothing to project.

    Example:
      >>> simplex().prox(jnp.array([2.0, 1.5, 0.0]), step=1.0, scale=1.0).tolist()
      [0.75, 0.25, 0.0]

    References:
      Michelot, A finite algorithm for finding the projection of a point onto the canonical
      simplex of R^n, 1986. Departs from it by a better start and by measuring the excess from the
      present theta, which loses no digits.
    """

    def value(x, scale):
        total = tree.total(jax.tree.map(jnp.sum, x))
        off = jnp.abs(total - strength(scale, total))
        return indicator(jnp.maximum(off, largest(jax.tree.map(jnp.negative, x))), scale)

    def prox(v, step, scale):
        del step
        flat, unravel = ravel_pytree(v)
        if flat.size == 0:
            return v
        theta = simplex_threshold(flat, strength(scale, flat))
        return unravel(jax.nn.relu(flat - theta))

    return checked("simplex", Penalty(value, prox))


def l1_ball() -> Penalty:
    r"""The ball :math:`\{|x|_1 \le r\}` over all leaves jointly, with the radius r as ``scale``.

    .. math:: \mathrm{prox}(v) = \mathrm{argmin}_{|x|_1 \le r} |x - v|^2
      = \mathrm{soft}(v, \theta)

    A point inside is returned as it is. The step has no effect. For r = 0 the answer is 0.

    Example:
      >>> l1_ball().prox(jnp.array([2.0, -1.5, 0.0]), step=1.0, scale=1.0).tolist()
      [0.75, -0.25, 0.0]

    References:
      Duchi, Shalev-Shwartz, Singer and Chandra, Efficient projections onto the l1-ball for
      learning in high dimensions, 2008; with the search of ``simplex`` in place of the sort.
    """

    def value(x, scale):
        norm = tree.total(jax.tree.map(lambda leaf: jnp.sum(jnp.abs(leaf)), x))
        return indicator(norm - strength(scale, norm), scale)

    def prox(v, step, scale):
        del step
        flat, unravel = ravel_pytree(v)
        if flat.size == 0:
            return v
        return unravel(soft_threshold(flat, ball_threshold(flat, strength(scale, flat))))

    return checked("l1_ball", Penalty(value, prox))
