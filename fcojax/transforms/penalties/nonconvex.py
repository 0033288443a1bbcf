"""Penalties and sets that are not convex: MCP, SCAD, and vectors with at most k nonzeros.

Each has ``convex=False``. Its prox returns a global minimiser at every step size, so it is
discontinuous where two minimisers tie, and it is not nonexpansive.
"""

import math
from typing import Annotated

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.penalties.l1 import soft_threshold
from fcojax.transforms.penalty import Penalty, entrywise, strength
from fcojax.transforms.shapes import flattened
from fcojax.types import CountOrZero, Numbers, Positive

AboveTwo = Annotated[float, Numbers("a finite number above 2", lambda values: values > 2)]


@factory
def mcp(reach: Positive) -> Penalty:
    r"""Return the minimax concave penalty (MCP), constant beyond :math:`\gamma \lambda`.

    .. math::

      \psi(x) = \sum_i q(|x_i|), \quad q(u) = \lambda u - u^2 / (2 \gamma)
      \text{ for } u \le \gamma \lambda, \text{ else } \gamma \lambda^2 / 2

    For a step :math:`t < \gamma` the prox is firm thresholding, which keeps large entries:

    .. math:: \mathrm{prox}(v) = \mathrm{soft}(v, t \lambda) / (1 - t / \gamma)
      \text{ for } |v| \le \gamma \lambda, \text{ else } v

    For :math:`t \ge \gamma` it is hard thresholding: v where :math:`|v| > \lambda \sqrt{t
    \gamma}`, else 0. ``scale_max`` is the largest absolute entry of the gradient at zero; for
    larger strengths zero is a stationary point.

    Args:
      reach: gamma, above 0; for large gamma the penalty approaches the l1 norm.

    Example:
      >>> mcp(2.0).prox(jnp.array([0.5, 1.5, 5.0]), step=1.0, scale=1.0).tolist()
      [0.0, 1.0, 5.0]

    References:
      Zhang, "Nearly unbiased variable selection under minimax concave penalty", 2010.
    """

    def value(x, scale):
        def one(leaf):
            level = strength(scale, leaf)
            size = jnp.minimum(jnp.abs(leaf), reach * level)
            return jnp.sum(size * (level - size / (2 * reach)))

        return tree.total(jax.tree.map(one, x))

    def prox(v, step, scale):
        def shrink(leaf, step, level):
            size = jnp.abs(leaf)
            continuous = step < reach
            curvature = jnp.where(continuous, 1 - step / reach, 1.0)
            firm = jnp.where(
                size < reach * level,  # both agree at equality; at scale 0 nothing is shrunk
                soft_threshold(leaf, step * level) / curvature,
                leaf,
            )
            threshold = level * jnp.sqrt(jnp.maximum(step, reach)) * math.sqrt(reach)
            kept = (size > threshold) | (level == 0)
            return jnp.where(continuous, firm, jnp.where(kept, leaf, 0.0))

        return entrywise(shrink, v, step, scale)

    return Penalty(value, prox, tree.max_abs, convex=False, separable=True)


@factory
def scad(reach: AboveTwo) -> Penalty:
    r"""Return the smoothly clipped absolute deviation (SCAD), constant beyond :math:`a \lambda`.

    .. math::

      \psi(x) = \sum_i q(|x_i|), \quad q(u) = \lambda u \text{ for } u \le \lambda, \;
      \frac{2 a \lambda u - u^2 - \lambda^2}{2 (a - 1)} \text{ for } u \le a \lambda, \;
      \frac{(a + 1) \lambda^2}{2} \text{ beyond}

    For a step :math:`t < a - 1` the prox is continuous: soft thresholding by :math:`t \lambda` for
    :math:`|v| \le (1 + t) \lambda`, then a steeper line, then v for :math:`|v| \ge a \lambda`. For
    larger steps it jumps from soft thresholding to v at :math:`\lambda (a + 1 + t) / 2`, or, for
    :math:`t \ge a + 1`, from 0 to v at :math:`\lambda \sqrt{t (a + 1)}`. ``scale_max`` is the
    largest absolute entry of the gradient at zero; for larger strengths zero is a stationary point.

    Args:
      reach: a, above 2; Fan and Li recommend 3.7.

    Example:
      >>> scad(4.0).prox(jnp.array([0.5, 2.0, 3.0, 5.0]), step=1.0, scale=1.0).tolist()
      [0.0, 1.0, 2.5, 5.0]

    References:
      Fan and Li, "Variable selection via nonconcave penalized likelihood and its oracle
      properties", 2001, for t = 1.
    """

    def value(x, scale):
        def one(leaf):
            level = strength(scale, leaf)
            size = jnp.abs(leaf)
            excess = jnp.clip(size - level, 0.0, (reach - 1) * level)
            concave = excess**2 / (2 * (reach - 1))
            return jnp.sum(level * jnp.minimum(size, reach * level) - concave)

        return tree.total(jax.tree.map(one, x))

    def prox(v, step, scale):
        def shrink(leaf, step, level):
            size = jnp.abs(leaf)
            soft = soft_threshold(leaf, step * level)
            continuous = step < reach - 1
            denominator = jnp.where(continuous, reach - 1 - step, 1.0)
            shift = step * reach * level * jnp.sign(leaf)
            middle = ((reach - 1) * leaf - shift) / denominator
            firm = jnp.where(
                size <= (1 + step) * level,
                soft,
                jnp.where(size <= reach * level, middle, leaf),
            )
            jump = jnp.where(
                step <= reach + 1,
                (reach + 1 + step) / 2,
                jnp.sqrt(jnp.maximum(step, reach)) * math.sqrt(reach + 1),
            )
            return jnp.where(continuous, firm, jnp.where(size <= jump * level, soft, leaf))

        return entrywise(shrink, v, step, scale)

    return Penalty(value, prox, tree.max_abs, convex=False, separable=True)


@factory
def l0_ball(num_nonzero: CountOrZero) -> Penalty:
    r"""Return the set of vectors with at most k nonzero entries, over all leaves jointly.

    .. math:: \mathrm{prox}(v) \in \mathrm{argmin}_{|x|_0 \le k} |x - v|^2

    It keeps the k entries of largest absolute value, the earlier one of a tie, and every entry if
    there are at most k. Step and scale have no effect.

    Args:
      num_nonzero: k, at least 0.

    Example:
      >>> l0_ball(1).prox(jnp.array([2.0, -3.0, 3.0]), step=1.0, scale=1.0).tolist()
      [0.0, -3.0, 0.0]

    References:
      Blumensath and Davies, "Iterative hard thresholding for compressed sensing", 2009.
    """

    def value(x, scale):
        del scale
        count = tree.total(jax.tree.map(lambda leaf: jnp.sum(leaf != 0), x))
        zero = tree.total(jax.tree.map(lambda leaf: jnp.zeros((), leaf.dtype), x))
        return jnp.where(count <= num_nonzero, zero, jnp.inf)

    def prox(v, step, scale):
        del step, scale
        flat, unravel = flattened(v)
        if num_nonzero >= flat.size:
            return v
        _, kept = jax.lax.top_k(jnp.abs(flat), num_nonzero)
        return unravel(jnp.zeros_like(flat).at[kept].set(flat[kept]))

    return Penalty(value, prox, convex=False)
