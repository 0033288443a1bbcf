"""The simplex and the l1 ball: one threshold for all entries."""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fcojax import tree
from fcojax.memo import memoised
from fcojax.transforms.lengths import length
from fcojax.transforms.penalty import Penalty, checked, indicator, largest, strength
from fcojax.transforms.subdifferentials import nearly_at, off_level
from fcojax.transforms.thresholds import onto_l1_ball, onto_simplex


@memoised
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
      present theta, and theta from the largest entry, which loses no digits.
    """

    def value(x, scale):
        if not sum(leaf.size for leaf in jax.tree.leaves(x)):
            return tree.total(jax.tree.map(jnp.sum, x))
        total = tree.total(jax.tree.map(jnp.sum, x))
        off = jnp.abs(total - strength(scale, total))
        return indicator(jnp.maximum(off, largest(jax.tree.map(jnp.negative, x))), scale)

    def prox(v, step, scale):
        del step
        flat, unravel = ravel_pytree(v)
        if flat.size == 0:
            return v
        return unravel(onto_simplex(flat, strength(scale, flat)))

    def subdiff_distance(x, v, scale):
        flat, slope = ravel_pytree(x)[0], ravel_pytree(v)[0]
        if flat.size == 0:
            return jnp.zeros(())
        active = flat > 0
        return jnp.where(jnp.any(active), off_level(slope, active, -jnp.inf), 0)

    return checked("simplex", Penalty(value, prox, subdiff_distance=subdiff_distance))


@memoised
def l1_ball() -> Penalty:
    r"""The ball :math:`\{|x|_1 \le r\}` over all leaves jointly, with the radius r as ``scale``.

    .. math:: \mathrm{prox}(v) = \mathrm{argmin}_{|x|_1 \le r} |x - v|^2
      = \mathrm{soft}(v, \theta)

    A point of the ball is returned as it is, and the derivative there is the identity, on the
    sphere too. The step has no effect. For r = 0 the answer is 0.

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
        return unravel(onto_l1_ball(flat, strength(scale, flat)))

    def subdiff_distance(x, v, scale):
        flat, slope = ravel_pytree(x)[0], ravel_pytree(v)[0]
        if flat.size == 0:
            return jnp.zeros(())
        norm, active = jnp.sum(jnp.abs(flat)), flat != 0
        radius = strength(scale, norm)
        along = jnp.where(active, jnp.sign(flat) * slope, jnp.abs(slope))
        on_sphere = off_level(along, active, 0.0)
        inside = jnp.where(nearly_at(norm, radius), on_sphere, length(slope))
        return jnp.where(radius > 0, inside, 0)

    return checked("l1_ball", Penalty(value, prox, subdiff_distance=subdiff_distance))
