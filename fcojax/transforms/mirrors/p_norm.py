r"""The mirror map of a squared p-norm, between Euclidean (p = 2) and entropy (p near 1)."""

from typing import Annotated

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.transforms.penalties.l1 import l1
from fcojax.types import Numbers, Params

Exponent = Annotated[float, Numbers("a number above 1 and at most 2", lambda p: (p > 1) & (p <= 2))]


@factory
def p_norm(p: Exponent) -> Mirror:
    r"""Return the squared p-norm, :math:`h(x) = \frac12 \|x\|_p^2`, with l1.

    The domain is the whole space, and the norm is over all leaves jointly. h is (p - 1)-strongly
    convex in that norm; a theorem that assumes 1 holds for :math:`h / (p - 1)`, whose step times
    p - 1 is the step here. With :math:`1/p + 1/q = 1`,

    .. math::
        \nabla h(x)_i = \mathrm{sign}(x_i) |x_i|^{p-1} \|x\|_p^{2-p}, \qquad
        \nabla h^*(z)_i = \mathrm{sign}(z_i) |z_i|^{q-1} \|z\|_q^{2-q},

    .. math:: P_t(z) = \mathrm{argmin}_x\; h(x) + t \lambda \|x\|_1 - \langle z, x \rangle
                     = \nabla h^*(\mathrm{soft}(z, t\lambda)),

    since the gradient of h preserves zeros and signs. A ``scale`` of 0 means no penalty. For p < 2
    the derivative of the first map is infinite at a zero entry and is returned as zero. With
    p = 2 ln d / (2 ln d - 1), h is like the entropy in d dimensions, up to constants.

    Args:
      p: the exponent, above 1 and at most 2.

    Example:
      >>> p_norm(1.5).to_primal(jnp.array([2.0, -0.5]), 1.0, 1.0).tolist()
      [1.0, 0.0]

    References:
      Gentile, "The robustness of the p-norm algorithms", 2003; Yuan, Zaheer and Reddi, "Federated
      composite optimization", ICML 2021, section 2.
    """
    q = p / (p - 1)
    penalty = l1()

    def to_primal(z, step, scale):
        return _power_map(penalty.prox(z, step, scale), q)

    return Mirror(
        potential=lambda x: _half_square(x, p),
        to_dual=lambda x: _power_map(x, p),
        from_dual=lambda z: _power_map(z, q),
        to_primal=to_primal,
        penalty=penalty,
    )


def _normalised(x: Params) -> tuple[jax.Array, Params]:
    """Return the largest absolute entry, and x divided by it, whose powers do not overflow."""
    largest = [jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(x) if leaf.size]
    if not largest:
        return jnp.ones(()), x
    size = jnp.max(jnp.stack(largest))
    size = jax.lax.stop_gradient(jnp.where(size > 0, size, 1))
    return size, jax.tree.map(lambda leaf: leaf / size, x)


def _absolute_power(leaf: jax.Array, exponent: float) -> jax.Array:
    """``|u|^exponent`` with a finite derivative at 0, where it is 1 for exponent 0 and else 0."""
    nonzero = leaf != 0
    safe = jnp.where(nonzero, jnp.abs(leaf), 1)
    return jnp.where(nonzero, safe**exponent, 1 if exponent == 0 else 0)


def _power_sum(x: Params, exponent: float) -> jax.Array:
    return tree.total(jax.tree.map(lambda leaf: jnp.sum(_absolute_power(leaf, exponent)), x))


def _half_square(x: Params, exponent: float) -> jax.Array:
    size, small = _normalised(x)
    total = _power_sum(small, exponent)
    safe = jnp.where(total > 0, total, 1)
    root = jnp.where(total > 0, safe ** (2 / exponent), 0)
    return 0.5 * jax.lax.stop_gradient(size) ** 2 * root


def _power_map(x: Params, exponent: float) -> Params:
    """The gradient of half the squared norm with this exponent; homogeneous of degree one."""
    size, small = _normalised(x)
    total = _power_sum(small, exponent)
    factor = size * jnp.where(total > 0, total, 1) ** (2 / exponent - 1)
    return jax.tree.map(lambda leaf: factor * leaf * _absolute_power(leaf, exponent - 2), small)
