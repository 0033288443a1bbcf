"""The Bregman divergence of a mirror map."""

from fcojax import tree
from fcojax.arguments import validated
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.transforms.shapes import require_same_shapes
from fcojax.types import Array, Params


@validated
def divergence(mirror: Mirror, u: Params, v: Params) -> Array:
    r"""Return the Bregman divergence :math:`h(u) - h(v) - \langle \nabla h(v), u - v \rangle`.

    It is at least 0, and at least ``m/2 |u - v|^2`` if h is m-strongly convex in that norm. For
    points closer than the square root of the machine precision, rounding errors dominate.

    Args:
      mirror: the mirror with h.
      u: the first point.
      v: the second point, at which the gradient is taken.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms import euclidean, zero
      >>> float(divergence(euclidean(zero()), jnp.array([3.0, 4.0]), jnp.zeros(2)))
      12.5
    """
    require_same_shapes(u, v, "v")
    u, v = tree.floats((u, v))
    slope = tree.vdot(mirror.to_dual(v), tree.sub(u, v))
    return mirror.potential(u) - mirror.potential(v) - slope
