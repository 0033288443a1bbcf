r"""Mirror maps: the geometry of a step, together with a penalty.

.. math:: P_t(z) = \mathrm{argmin}_x\; h(x) + t \psi(x; \lambda) - \langle z, x \rangle

The argmin over :math:`h + t \psi` does not in general split into one for h and one for psi, so a
mirror is a pair of the two.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.penalty import Penalty
from fcojax.types import Params, Scalar


class Mirror(NamedTuple):
    """A distance-generating function h, paired with a penalty psi.

    Attributes:
      potential: ``(x) -> h(x)``.
      to_dual: ``(x) -> grad h(x)``.
      from_dual: ``(z) -> grad h*(z)``, the mirror step without psi.
      to_primal: ``(z, step, scale) -> argmin_x h(x) + step * psi(x; scale) - <z, x>``.
      penalty: psi.
      separable: whether every map applies the same function to each entry, so that it may be
        called with some of the entries.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> mirror = fcojax.transforms.euclidean(fcojax.transforms.l1())
      >>> z = mirror.to_dual(jnp.array([3.0, 0.25]))
      >>> mirror.from_dual(z).tolist(), mirror.to_primal(z, step=0.5, scale=1.0).tolist()
      ([3.0, 0.25], [2.5, 0.0])
    """

    example = "euclidean(l1())"  # for error messages

    potential: Callable[[Params], jax.Array]
    to_dual: Callable[[Params], Params]
    from_dual: Callable[[Params], Params]
    to_primal: Callable[[Params, Scalar, Scalar], Params]
    penalty: Penalty
    separable: bool = False


@factory
def euclidean(penalty: Penalty) -> Mirror:
    """Return the Euclidean mirror map, ``h(x) = |x|^2 / 2``, whose mirror step is the prox.

    h is 1-strongly convex in the Euclidean norm.

    Args:
      penalty: psi.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> euclidean(l1()).to_primal(jnp.array([3.0, -0.5]), 0.5, 2.0).tolist()
      [2.0, 0.0]
    """
    return Mirror(
        potential=lambda x: 0.5 * tree.vdot(x, x),
        to_dual=lambda x: x,
        from_dual=lambda z: z,
        to_primal=penalty.prox,
        penalty=penalty,
        separable=penalty.separable,
    )
