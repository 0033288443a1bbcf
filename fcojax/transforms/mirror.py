r"""Mirror maps: the geometry in which a step is taken, together with the penalty it carries.

.. math:: P_t(z) = \mathrm{argmin}_x\; h(x) + t \psi(x; \lambda) - \langle z, x \rangle

The argmin over :math:`h + t \psi` does not in general split into one for h and one for psi, so a
mirror is built for a pair.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax

from fcojax import tree
from fcojax.transforms import penalty as penalties
from fcojax.transforms.penalty import Penalty
from fcojax.types import Params, Scalar


class Mirror(NamedTuple):
    """A distance-generating function h with the penalty psi it is paired with.

    Attributes:
      potential: ``(x) -> h(x)``.
      to_dual: ``(x) -> grad h(x)``.
      from_dual: ``(z) -> grad h*(z)``, the mirror step without psi.
      to_primal: ``(z, step, scale) -> argmin_x h(x) + step * psi(x; scale) - <z, x>``.
      penalty: psi itself, for those who need its value or a subgradient.
    """

    potential: Callable[[Params], jax.Array]
    to_dual: Callable[[Params], Params]
    from_dual: Callable[[Params], Params]
    to_primal: Callable[[Params, Scalar, Scalar], Params]
    penalty: Penalty


def euclidean(penalty: Penalty) -> Mirror:
    """``h(x) = |x|^2 / 2``, 1-strongly convex in the Euclidean norm: the mirror step is the prox.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms.penalty import l1
      >>> euclidean(l1()).to_primal(jnp.array([3.0, -0.5]), 0.5, 2.0).tolist()
      [2.0, 0.0]
    """
    return Mirror(
        potential=lambda x: 0.5 * tree.vdot(x, x),
        to_dual=lambda x: x,
        from_dual=lambda z: z,
        to_primal=penalty.prox,
        penalty=penalty,
    )


def checked(name: str, mirror: Mirror) -> Mirror:
    """The same mirror, which refuses a negative step or scale where it can see one."""
    guarded = penalties.checked(name, Penalty(mirror.penalty.value, mirror.to_primal))
    return mirror._replace(to_primal=guarded.prox)


def divergence(mirror: Mirror, u: Params, v: Params) -> jax.Array:
    r"""The Bregman divergence of h, :math:`h(u) - h(v) - \langle \nabla h(v), u - v \rangle`.

    It is not negative, zero only for u = v, and at least ``m/2 |u - v|^2`` where h is m-strongly
    convex in that norm. For points closer than the square root of the machine precision, rounding
    is larger than the answer.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms.penalty import zero
      >>> float(divergence(euclidean(zero()), jnp.array([3.0, 4.0]), jnp.zeros(2)))
      12.5
    """
    slope = tree.vdot(mirror.to_dual(v), tree.sub(u, v))
    return mirror.potential(u) - mirror.potential(v) - slope
