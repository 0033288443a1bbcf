r"""Mirror maps: the geometry in which a step is taken, together with the penalty it carries.

.. math:: P_t(z) = \mathrm{argmin}_x\; h(x) + t \psi(x; \lambda) - \langle z, x \rangle

The argmin over :math:`h + t \psi` does not in general split into one for h and one for psi, so a
mirror is built for a pair.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax

from fcojax import tree
from fcojax.memo import memoised
from fcojax.transforms import penalty as penalties
from fcojax.transforms.calculus.predicates import PathPredicate, require_predicate, split_leaves
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
      separable: whether all maps treat each entry by itself and alike, so that they may be asked
        for some entries alone.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> mirror = fcojax.transforms.euclidean(fcojax.transforms.l1())
      >>> z = mirror.to_dual(jnp.array([3.0, 0.25]))
      >>> mirror.from_dual(z).tolist(), mirror.to_primal(z, step=0.5, scale=1.0).tolist()
      ([3.0, 0.25], [2.5, 0.0])
    """

    potential: Callable[[Params], jax.Array]
    to_dual: Callable[[Params], Params]
    from_dual: Callable[[Params], Params]
    to_primal: Callable[[Params, Scalar, Scalar], Params]
    penalty: Penalty
    separable: bool = False


@memoised
def euclidean(penalty: Penalty) -> Mirror:
    """``h(x) = |x|^2 / 2``, 1-strongly convex in the Euclidean norm: the mirror step is the prox.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> euclidean(l1()).to_primal(jnp.array([3.0, -0.5]), 0.5, 2.0).tolist()
      [2.0, 0.0]
    """
    penalties.require_penalty(penalty, "euclidean")
    return Mirror(
        potential=lambda x: 0.5 * tree.vdot(x, x),
        to_dual=lambda x: x,
        from_dual=lambda z: z,
        to_primal=penalty.prox,
        penalty=penalty,
        separable=penalty.separable,
    )


def checked(name: str, mirror: Mirror) -> Mirror:
    """The same mirror, which refuses a negative step or scale where it can see one."""
    guarded = penalties.checked(name, Penalty(mirror.penalty.value, mirror.to_primal))
    return mirror._replace(to_primal=guarded.prox)


@memoised
def side_by_side(touches: PathPredicate, chosen: Mirror, rest: Mirror) -> Mirror:
    r"""One mirror on some leaves and another on the rest, :math:`h(x) = h_1(x_S) + h_2(x_{S^c})`.

    .. math:: P_t(z) = (P^1_t(z_S), P^2_t(z_{S^c})), \qquad
              \psi(x; \lambda) = \psi_1(x_S; \lambda) + \psi_2(x_{S^c}; \lambda)

    Kernels may live in a geometry of their own while biases stay Euclidean and free. h is strongly
    convex in the sum of the two norms squared, with the lesser of the two constants.

    Args:
      touches: a predicate on the key path and the leaf, as for ``on_subtree``.
      chosen: for the touched leaves, which it sees as a list in tree order.
      rest: for the others, likewise.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms.calculus.predicates import named
      >>> from fcojax.transforms.penalties.l1 import l1, zero
      >>> mirror = side_by_side(named("kernel"), euclidean(l1()), euclidean(zero()))
      >>> mirror.to_primal({"bias": jnp.array(0.5), "kernel": jnp.array([3.0, 0.5])}, 1.0, 1.0)
      {'bias': Array(0.5, ...), 'kernel': Array([2., 0.], ...)}
    """
    require_predicate(touches, "side_by_side")

    def value(x, scale):
        ours, others, _ = split_leaves(x, touches)
        found = chosen.penalty.value(ours, scale)
        return found + rest.penalty.value(others, scale).astype(found.dtype)

    def potential(x):
        ours, others, _ = split_leaves(x, touches)
        found = chosen.potential(ours)
        return found + rest.potential(others).astype(found.dtype)

    def each(first, second):
        def both(x, *numbers):
            ours, others, join = split_leaves(x, touches)
            return join(first(ours, *numbers), second(others, *numbers))

        return both

    convex = chosen.penalty.convex and rest.penalty.convex
    return Mirror(
        potential=potential,
        to_dual=each(chosen.to_dual, rest.to_dual),
        from_dual=each(chosen.from_dual, rest.from_dual),
        to_primal=each(chosen.to_primal, rest.to_primal),
        penalty=Penalty(value, each(chosen.penalty.prox, rest.penalty.prox), None, convex),
        separable=chosen.separable and rest.separable,
    )


def divergence(mirror: Mirror, u: Params, v: Params) -> jax.Array:
    r"""The Bregman divergence of h, :math:`h(u) - h(v) - \langle \nabla h(v), u - v \rangle`.

    It is not negative, zero only for u = v, and at least ``m/2 |u - v|^2`` where h is m-strongly
    convex in that norm. For points closer than the square root of the machine precision, rounding
    is larger than the answer.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms.penalties.l1 import zero
      >>> float(divergence(euclidean(zero()), jnp.array([3.0, 4.0]), jnp.zeros(2)))
      12.5
    """
    slope = tree.vdot(mirror.to_dual(v), tree.sub(u, v))
    return mirror.potential(u) - mirror.potential(v) - slope
