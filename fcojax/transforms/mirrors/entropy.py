r"""Entropic mirror maps, whose multiplicative steps keep positive points positive.

All h are sums over entries, :math:`h(x) = \sum_i \phi(x_i)`. All but ``entropic_simplex`` are
paired with the l1 norm, for which a ``scale`` of 0 means no penalty. Kivinen and Warmuth,
"Exponentiated gradient versus gradient descent", 1997; Beck and Teboulle, "Mirror descent", 2003.
"""

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.constraints.simplex import simplex
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.transforms.penalties.l1 import l1
from fcojax.transforms.penalty import entrywise, strength
from fcojax.types import Params


@factory
def entropy() -> Mirror:
    r"""Return the negative entropy on the orthant, :math:`h(x) = \sum_i x_i \log x_i`, with l1.

    .. math:: P_t(z)_i = \mathrm{argmin}_{x_i \ge 0}\; x_i \log x_i + t \lambda x_i - z_i x_i
                       = \exp(z_i - 1 - t \lambda)

    h is 1/B-strongly convex in the l1 norm on the points with :math:`\|x\|_1 \le B`, and infinite
    outside the orthant. Its gradient 1 + log x at 0 is computed with the logarithm of the smallest
    normal number (about -87 in float32, -708 in float64). No finite dual point maps to an exact
    zero, so l1 shrinks entries but sets none to zero. A z above the logarithm of the largest number
    overflows to infinity.

    Example:
      >>> mirror = entropy()
      >>> mirror.to_primal(mirror.to_dual(jnp.array([1.0, 2.0])), 0.0, 1.0)
      Array([1., 2.], ...)
    """

    def to_primal(z, step, scale):
        return entrywise(lambda leaf, step, scale: jnp.exp(leaf - 1 - step * scale), z, step, scale)

    return Mirror(
        potential=_negative_entropy,
        to_dual=lambda x: jax.tree.map(_one_plus_log, x),
        from_dual=lambda z: jax.tree.map(lambda leaf: jnp.exp(leaf - 1), z),
        to_primal=to_primal,
        penalty=l1(),
    )


@factory
def entropic_simplex() -> Mirror:
    r"""Return the negative entropy on the simplex :math:`x \ge 0, \sum_i x_i = s`, with s as scale.

    .. math:: P(z) = \mathrm{argmin}_{x \ge 0,\, 1^T x = s}\; h(x) - \langle z, x \rangle
                   = s\, \mathrm{softmax}(z), \qquad h(x) = \sum_i x_i \log x_i

    The sum is over all leaves jointly. h is 1/s-strongly convex in the l1 norm (Pinsker). The
    simplex is the domain of h, so ``from_dual`` returns points of a simplex too, with sum 1, as it
    has no scale. Adding a constant to z changes nothing. A mirror step is the exponentiated
    gradient step, x exp(-step * gradient) normalised to sum s. ``step`` has no effect, and an l1
    penalty would have none. ``to_dual`` treats zeros as ``entropy`` does. No finite z overflows.

    In ``fed_mid_osp`` and ``fed_dual_avg_osp`` clients map dual points back with ``from_dual``, so
    with this mirror they evaluate gradients on the simplex with sum 1 for every s (in
    ``fed_mid_osp``, from the second local step on), and only the server's model has sum s. For s
    other than 1 use ``fed_mid`` or ``fed_dual_avg``, or write the loss in terms of x / s.

    Example:
      >>> entropic_simplex().to_primal(jnp.array([7.0, 7.0, -1e30]), 1.0, 2.0).tolist()
      [1.0, 1.0, 0.0]
    """

    def to_primal(z, step, scale):
        wide = tree.floats(z)
        parts = jax.tree.map(lambda leaf: strength(scale, leaf) * leaf, _softmax(wide))
        return tree.cast_like(parts, z)

    return Mirror(
        potential=_negative_entropy,
        to_dual=lambda x: jax.tree.map(_one_plus_log, x),
        from_dual=_softmax,
        to_primal=to_primal,
        penalty=simplex(),
    )


def _one_plus_log(leaf: jax.Array) -> jax.Array:
    return 1 + jnp.log(jnp.maximum(leaf, jnp.finfo(leaf.dtype).tiny))


def _negative_entropy(x: Params) -> jax.Array:
    def one_leaf(leaf):
        inside = leaf > 0
        terms = jnp.where(inside, leaf * jnp.log(jnp.where(inside, leaf, 1)), 0)
        return jnp.sum(jnp.where(leaf < 0, jnp.inf, terms))

    return tree.total(jax.tree.map(one_leaf, x))


def _softmax(z: Params) -> Params:
    """The softmax over all leaves jointly, without overflow."""
    largest = [jnp.max(leaf) for leaf in jax.tree.leaves(z) if leaf.size]
    if not largest:
        return z
    top = jax.lax.stop_gradient(jnp.max(jnp.stack(largest)))
    powers = jax.tree.map(lambda leaf: jnp.exp(leaf - top), z)
    total = tree.total(jax.tree.map(jnp.sum, powers))
    return jax.tree.map(lambda leaf: leaf / total, powers)
