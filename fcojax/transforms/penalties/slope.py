"""The sorted l1 norm, by isotonic regression of the sorted magnitudes."""

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.blocks import block_numbers
from fcojax.transforms.constraints.monotone import isotonic, monotone
from fcojax.transforms.penalty import Penalty, strength, times_scale, weight
from fcojax.transforms.shapes import flattened
from fcojax.types import Array


@factory
def slope(weights: Array) -> Penalty:
    r"""Return the sorted l1 norm, :math:`\psi(x) = \lambda \sum_i w_i |x|_{(i)}`.

    :math:`|x|_{(1)} \ge |x|_{(2)} \ge \dots` are the magnitudes over all leaves jointly. Equal
    weights give the l1 norm, and :math:`w = (1, 0, \dots)` the largest magnitude. Entries with
    correlated columns get equal magnitudes. With v sorted like x,

    .. math:: \mathrm{prox}(v)_{(i)} = \mathrm{sign}(v_{(i)}) \max(u_i, 0),

    where u is the closest decreasing sequence to :math:`|v|_{(i)} - t \lambda w_i`. It is exact:
    magnitudes that tie are equal to the last bit. ``scale_max`` is the largest ratio of
    :math:`|g|_{(1)} + \dots + |g|_{(k)}` to :math:`w_1 + \dots + w_k`.

    Args:
      weights: [entries], w, decreasing, at least 0, and the first above 0.

    Example:
      >>> slope(jnp.array([3.0, 1.0])).prox(jnp.array([5.0, -4.0]), step=1.0, scale=1.0).tolist()
      [2.5, -2.5]

    References:
      Bogdan, van den Berg, Sabatti, Su and Candes, "SLOPE: adaptive variable selection via convex
      optimization", 2015, algorithm 3; Bondell and Reich, "Simultaneous regression shrinkage,
      variable selection, and supervised clustering of predictors with OSCAR", 2008.
    """
    levels = np.asarray(weights)
    if not (levels.ndim == 1 and levels.size and levels[0] > 0 and levels[-1] >= 0):
        raise ValueError("the weights of slope need w_1 > 0 and w_p >= 0; pass such a vector.")
    if not (np.diff(levels) <= 0).all():
        raise ValueError("the weights of slope increase somewhere; pass them in decreasing order.")

    def sized(x):
        flat, unravel = flattened(x)
        if flat.size != levels.size:
            raise ValueError(
                f"slope has {levels.size} weights for {flat.size} entries; pass one for each."
            )
        return flat, unravel, jnp.asarray(levels, flat.dtype)

    def value(x, scale):
        flat, _, w = sized(x)
        return times_scale(scale, jnp.vdot(w, jnp.sort(jnp.abs(flat), descending=True)))

    def prox(v, step, scale):
        flat, unravel, w = sized(v)
        order = jnp.argsort(jnp.abs(flat), descending=True)
        sign = jnp.where(flat < 0, -1.0, 1.0).astype(flat.dtype)  # at 0 the derivative is one-sided
        shift, size = weight(step, scale, flat), (sign * flat)[order]
        # Without a penalty ties form no blocks: the derivative in v is then the identity.
        fixed = jax.lax.stop_gradient(size)
        lowered = jnp.where(shift > 0, size, fixed) - shift * w
        level = -monotone().prox(-lowered, 0.0, 0.0)
        level = jnp.where(shift > 0, _unpooled(lowered, level), level)
        # Entries of weight 0 do not shrink: at 0 their derivative is 1.
        kept = (level > 0) | ((level == 0) & (w == 0) & (shift > 0))
        moved = jnp.where(kept, level, 0) + jnp.where(shift > 0, 0, size - fixed)
        return unravel(sign * jnp.zeros_like(flat).at[order].set(moved))

    def scale_max(gradient):
        flat, _, w = sized(gradient)
        return jnp.max(jnp.cumsum(jnp.sort(jnp.abs(flat), descending=True)) / jnp.cumsum(w))

    def subdiff_distance(x, v, scale):
        # Within equal magnitudes the subdifferential is the hull of the permutations of weights.
        flat, _, w = sized(x)
        signed = jnp.where(flat == 0, jnp.abs(flattened(v)[0]), jnp.sign(flat) * flattened(v)[0])
        order = jnp.lexsort((-signed, -jnp.abs(flat)))
        size = jnp.abs(flat)[order]
        begins = jnp.concatenate([jnp.ones(1, bool), size[1:] != size[:-1]])
        rest = -isotonic(strength(scale, flat) * w - signed[order], begins)
        return tree.euclidean_norm(jnp.where(size == 0, jnp.maximum(rest, 0), rest))

    return Penalty(value, prox, scale_max, subdiff_distance=subdiff_distance)


def _unpooled(values: Array, levels: Array) -> Array:
    """Return the levels with every block of equal values replaced by these values.

    Magnitudes that tie under equal weights are such a block. The derivative does not average over
    it: each magnitude moves freely.
    """
    blocks = block_numbers(jnp.concatenate([jnp.ones(1, bool), levels[1:] != levels[:-1]]))
    apart = jnp.abs(values - levels)
    furthest = jax.ops.segment_max(apart, blocks, levels.size, indices_are_sorted=True)[blocks]
    return jnp.where(furthest == 0, values, levels)
