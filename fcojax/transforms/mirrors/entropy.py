r"""Entropic mirror maps, whose multiplicative steps keep positive points positive.

All h are sums over entries, :math:`h(x) = \sum_i \phi(x_i)`. All but ``entropic_simplex`` are
paired with the l1 norm, for which a ``scale`` of 0 means no penalty. Kivinen and Warmuth,
Exponentiated gradient versus gradient descent, 1997; Beck and Teboulle, Mirror descent, 2003.
"""

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import validated
from fcojax.transforms.constraints.simplex import simplex
from fcojax.transforms.floats import transform
from fcojax.transforms.mirrors.mirror import Mirror, checked
from fcojax.transforms.penalties.l1 import l1
from fcojax.transforms.penalty import weight
from fcojax.types import Params, Positive


@transform
def entropy() -> Mirror:
    r"""Return the negative entropy on the orthant, :math:`h(x) = \sum_i x_i \log x_i`, with l1.

    .. math:: P_t(z)_i = \mathrm{argmin}_{x_i \ge 0}\; x_i \log x_i + t \lambda x_i - z_i x_i
                       = \exp(z_i - 1 - t \lambda)

    h is 1/B-strongly convex in the l1 norm on the points with :math:`\|x\|_1 \le B`, and infinite
    outside the orthant. Its gradient 1 + log x at 0 is computed with the logarithm of the smallest
    normal number (about -87 in float32, -708 in float64). No finite dual point maps to an exact
    zero, so l1 shrinks entries but selects none. A z above the logarithm of the largest number
    overflows to infinity.

    Example:
      >>> mirror = entropy()
      >>> mirror.to_primal(mirror.to_dual(jnp.array([1.0, 2.0])), 0.0, 1.0)
      Array([1., 2.], ...)
    """

    def to_primal(z, step, scale):
        return jax.tree.map(lambda leaf: jnp.exp(leaf - 1 - weight(step, scale, leaf)), z)

    mirror = Mirror(
        potential=_negative_entropy,
        to_dual=lambda x: jax.tree.map(_one_plus_log, x),
        from_dual=lambda z: jax.tree.map(lambda leaf: jnp.exp(leaf - 1), z),
        to_primal=to_primal,
        penalty=l1(),
    )
    return checked("entropy", mirror)


@transform
def entropic_simplex() -> Mirror:
    r"""Return the negative entropy on the simplex :math:`x \ge 0, \sum_i x_i = s`, with s as scale.

    .. math:: P(z) = \mathrm{argmin}_{x \ge 0,\, 1^T x = s}\; h(x) - \langle z, x \rangle
                   = s\, \mathrm{softmax}(z), \qquad h(x) = \sum_i x_i \log x_i

    The sum is over all leaves jointly. h is 1/s-strongly convex in the l1 norm (Pinsker). The
    simplex is the domain of h, so ``from_dual`` returns points of a simplex too: that with sum 1,
    as it has no scale. Adding a constant to z changes nothing. A mirror step is the exponentiated
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
        del step
        return tree.scale(scale, _softmax(z))

    mirror = Mirror(
        potential=_negative_entropy,
        to_dual=lambda x: jax.tree.map(_one_plus_log, x),
        from_dual=_softmax,
        to_primal=to_primal,
        penalty=simplex(),
    )
    return checked("entropic_simplex", mirror)


@transform
@validated
def hypentropy(beta: Positive) -> Mirror:
    r"""Return the hyperbolic entropy with l1, on the whole space.

    .. math:: h(x) = \sum_i x_i\, \mathrm{arsinh}(x_i/\beta) - \sqrt{x_i^2 + \beta^2}, \qquad
              \nabla h(x)_i = \mathrm{arsinh}(x_i/\beta)

    .. math:: P_t(z) = \mathrm{argmin}_x\; h(x) + t \lambda \|x\|_1 - \langle z, x \rangle
                     = \beta \sinh(\mathrm{soft}(z, t\lambda))

    Entries with :math:`|z_i| \le t\lambda` become exactly zero. For large beta this is gradient
    descent, as :math:`h \approx |x|^2 / 2\beta` up to a constant; for small beta it is the
    exponentiated gradient method with signs. In d dimensions h is
    :math:`1/(B + d\beta)`-strongly convex in the l1 norm on the points with
    :math:`\|x\|_1 \le B`.

    Args:
      beta: above 0, the size of entries at which the map changes from linear to logarithmic.

    Example:
      >>> hypentropy(1.0).to_primal(jnp.array([1.0, -0.25]), 0.5, 1.0)
      Array([0.521..., 0. ], ...)

    References:
      Ghai, Hazan and Singer, Exponentiated gradient meets gradient descent, 2020.
    """
    penalty = l1()

    def potential(x):
        def one_leaf(leaf):
            width = jnp.asarray(beta, leaf.dtype)
            return jnp.sum(leaf * jnp.arcsinh(leaf / width) - jnp.hypot(leaf, width))

        return tree.total(jax.tree.map(one_leaf, x))

    def from_dual(z):
        return jax.tree.map(lambda leaf: jnp.asarray(beta, leaf.dtype) * jnp.sinh(leaf), z)

    return Mirror(
        potential=potential,
        to_dual=lambda x: jax.tree.map(
            lambda leaf: jnp.arcsinh(leaf / jnp.asarray(beta, leaf.dtype)), x
        ),
        from_dual=from_dual,
        to_primal=lambda z, step, scale: from_dual(penalty.prox(z, step, scale)),
        penalty=penalty,
    )


@transform
def burg() -> Mirror:
    r"""Return the logarithmic barrier (Burg entropy), :math:`h(x) = -\sum_i \log x_i`, with l1.

    .. math:: P_t(z)_i = \mathrm{argmin}_{x_i > 0}\; -\log x_i + t \lambda x_i - z_i x_i
                       = 1 / (t \lambda - z_i) \quad \text{for } z_i < t \lambda

    Dual points are negative, :math:`\nabla h(x)_i = -1/x_i`. For :math:`z_i \ge t\lambda` the
    objective is unbounded below and the result is infinity: use a smaller step. h is infinite
    outside the open orthant and 1/B^2-strongly convex in the Euclidean norm on the points with
    :math:`\max_i x_i \le B`.

    Example:
      >>> burg().to_primal(jnp.array([-1.0, -3.0]), 1.0, 1.0).tolist()
      [0.5, 0.25]

    References:
      Bauschke, Bolte and Teboulle, A descent lemma beyond Lipschitz gradient continuity, 2017.
    """

    def potential(x):
        def one_leaf(leaf):
            inside = leaf > 0
            return jnp.sum(jnp.where(inside, -jnp.log(jnp.where(inside, leaf, 1)), jnp.inf))

        return tree.total(jax.tree.map(one_leaf, x))

    def inverse(gap):
        bounded = gap > 0  # else there is no minimiser
        return jnp.where(bounded, 1 / jnp.where(bounded, gap, 1), jnp.inf)

    def to_dual(x):
        return jax.tree.map(lambda leaf: -1 / jnp.maximum(leaf, jnp.finfo(leaf.dtype).tiny), x)

    mirror = Mirror(
        potential=potential,
        to_dual=to_dual,
        from_dual=lambda z: jax.tree.map(lambda leaf: inverse(-leaf), z),
        to_primal=lambda z, step, scale: jax.tree.map(
            lambda leaf: inverse(weight(step, scale, leaf) - leaf), z
        ),
        penalty=l1(),
    )
    return checked("burg", mirror)


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
