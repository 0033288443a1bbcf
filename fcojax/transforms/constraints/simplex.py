"""The simplex and the l1 ball, whose projections subtract one threshold from all entries."""

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.indicators import indicator, largest
from fcojax.transforms.penalties.l1 import l1_norm
from fcojax.transforms.penalty import Penalty, strength
from fcojax.transforms.shapes import flattened, on_flat
from fcojax.transforms.subdifferentials import distance_to_level, is_on_sphere
from fcojax.transforms.thresholds import project_l1_ball, project_simplex


@factory
def simplex() -> Penalty:
    r"""Return the simplex :math:`\{x \ge 0, \sum_i x_i = s\}` over all leaves; ``scale`` is s.

    .. math:: \mathrm{prox}(v) = \mathrm{argmin}_{x \ge 0,\, 1^T x = s} |x - v|^2
      = \max(v - \theta, 0)

    The step has no effect. A tree without entries is returned unchanged.

    Example:
      >>> simplex().prox(jnp.array([2.0, 1.5, 0.0]), step=1.0, scale=1.0).tolist()
      [0.75, 0.25, 0.0]

    References:
      Michelot, "A finite algorithm for finding the projection of a point onto the canonical simplex
      of R^n", 1986. Our starting point is better, and sums are taken relative to the current theta,
      and theta relative to the largest entry, which avoids cancellation.
    """

    def value(x, scale):
        total = tree.total(jax.tree.map(jnp.sum, x))
        if not sum(leaf.size for leaf in jax.tree.leaves(x)):
            return total
        gap = jnp.abs(total - strength(scale, total))
        return indicator(jnp.maximum(gap, largest(jax.tree.map(jnp.negative, x))), scale)

    def prox(v, step, scale):
        return on_flat(lambda flat: project_simplex(flat, strength(scale, flat)), v)

    def subdiff_distance(x, v, scale):
        flat, slope = flattened(x)[0], flattened(v)[0]
        if flat.size == 0:
            return jnp.zeros(())
        active = flat > 0
        return jnp.where(jnp.any(active), distance_to_level(slope, active, -jnp.inf), 0)

    return Penalty(value, prox, subdiff_distance=subdiff_distance)


@factory
def l1_ball() -> Penalty:
    r"""Return the ball :math:`\{|x|_1 \le r\}` over all leaves jointly; ``scale`` is r.

    .. math:: \mathrm{prox}(v) = \mathrm{argmin}_{|x|_1 \le r} |x - v|^2
      = \mathrm{soft}(v, \theta)

    A point of the ball is returned unchanged, and the derivative there is the identity, also on the
    boundary. The step has no effect.

    Example:
      >>> l1_ball().prox(jnp.array([2.0, -1.5, 0.0]), step=1.0, scale=1.0).tolist()
      [0.75, -0.25, 0.0]

    References:
      Duchi, Shalev-Shwartz, Singer and Chandra, "Efficient projections onto the l1-ball for
      learning in high dimensions", 2008, with the iteration of ``simplex`` in place of a sort.
    """

    def value(x, scale):
        norm = l1_norm(x)
        return indicator(norm - strength(scale, norm), scale)

    def prox(v, step, scale):
        return on_flat(lambda flat: project_l1_ball(flat, strength(scale, flat)), v)

    def subdiff_distance(x, v, scale):
        flat, slope = flattened(x)[0], flattened(v)[0]
        if flat.size == 0:
            return jnp.zeros(())
        norm, active = jnp.sum(jnp.abs(flat)), flat != 0
        radius = strength(scale, norm)
        signed = jnp.where(active, jnp.sign(flat) * slope, jnp.abs(slope))
        on_sphere = distance_to_level(signed, active, 0.0)
        distance = jnp.where(is_on_sphere(norm, radius), on_sphere, tree.euclidean_norm(slope))
        return jnp.where(radius > 0, distance, 0)

    return Penalty(value, prox, subdiff_distance=subdiff_distance)
