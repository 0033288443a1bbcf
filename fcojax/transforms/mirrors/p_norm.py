r"""The mirror map of a p-norm: Euclidean at p = 2, and kinder to sparse points towards p = 1."""

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.memo import memoised
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.transforms.penalties.l1 import l1
from fcojax.types import Params


@memoised
def p_norm(p: float) -> Mirror:
    r"""The squared p-norm with l1, :math:`h(x) = \frac12 \|x\|_p^2` for :math:`1 < p \le 2`.

    The domain is all of space and the norm is over all leaves together. h is (p - 1)-strongly
    convex in that norm; where a theorem asks for 1, divide the step by p - 1. With
    :math:`1/p + 1/q = 1`,

    .. math::
        \nabla h(x)_i = \mathrm{sign}(x_i) |x_i|^{p-1} \|x\|_p^{2-p}, \qquad
        \nabla h^*(z)_i = \mathrm{sign}(z_i) |z_i|^{q-1} \|z\|_q^{2-q},

    .. math:: P_t(z) = \mathrm{argmin}_x\; h(x) + t \lambda \|x\|_1 - \langle z, x \rangle
                     = \nabla h^*(\mathrm{soft}(z, t\lambda)),

    since the gradient of h keeps zeros and signs. A ``scale`` of 0 means no penalty. Both maps send
    zero to zero. For p < 2 the slope of the first is infinite at a zero entry; its derivative is
    answered as zero there. p = 2 ln d / (2 ln d - 1) makes h behave like the entropy in d
    dimensions, up to constants.

    Example:
      >>> p_norm(1.5).to_primal(jnp.array([2.0, -0.5]), 1.0, 1.0).tolist()
      [1.0, 0.0]

    References:
      Gentile, The robustness of the p-norm algorithms, 2003; Yuan, Zaheer and Reddi, Federated
      composite optimization, 2021, section 2.
    """
    if not 1 < p <= 2:
        raise ValueError(
            f"p_norm was given p = {p}, which has to satisfy 1 < p <= 2; "
            "use entropy() for the limit p = 1."
        )
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
    """The largest entry in absolute value, and x over it: no power of it can overflow."""
    largest = [jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(x) if leaf.size]
    if not largest:
        return jnp.ones(()), x
    size = jnp.max(jnp.stack(largest))
    size = jax.lax.stop_gradient(jnp.where(size > 0, size, 1))  # at zero: divide by one
    return size, jax.tree.map(lambda leaf: leaf / size, x)


def _absolute_power(leaf: jax.Array, exponent: float) -> jax.Array:
    """``|u|^exponent`` with a finite derivative at 0; of 0 it is 1 if the exponent is 0, else 0."""
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
