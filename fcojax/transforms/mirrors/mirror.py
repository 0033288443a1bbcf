r"""Mirror maps: the geometry of a step, together with a penalty.

.. math:: P_t(z) = \mathrm{argmin}_x\; h(x) + t \psi(x; \lambda) - \langle z, x \rangle

The argmin over :math:`h + t \psi` does not in general split into one for h and one for psi, so a
mirror is a pair of the two.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax

from fcojax import tree
from fcojax.arguments import validated
from fcojax.transforms import penalty as penalties
from fcojax.transforms.calculus.predicates import PathPredicate, split_leaves
from fcojax.transforms.floats import in_floats, transform
from fcojax.transforms.penalty import Penalty, require_same_shapes
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


@transform
@validated
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


def checked(name: str, mirror: Mirror) -> Mirror:
    """Add checks of step and scale to a mirror, and compute half precision in float32."""
    penalty = penalties.checked(name, Penalty(mirror.penalty.value, mirror.to_primal))
    return mirror._replace(to_primal=penalty.prox)


@transform
@validated
def side_by_side(touches: PathPredicate, chosen: Mirror, rest: Mirror) -> Mirror:
    r"""Combine two mirrors on disjoint leaves, :math:`h(x) = h_1(x_S) + h_2(x_{S^c})`.

    .. math:: P_t(z) = (P^1_t(z_S), P^2_t(z_{S^c})), \qquad
              \psi(x; \lambda) = \psi_1(x_S; \lambda) + \psi_2(x_{S^c}; \lambda)

    For example, kernels have a non-Euclidean geometry and biases a Euclidean one without penalty. h
    is strongly convex in the norm whose square is the sum of the two squared norms, with the
    smaller of the two constants.

    Args:
      touches: ``(path, leaf) -> bool``, which leaves belong to ``chosen``, as for ``on_subtree``.
      chosen: a mirror of the list of the selected leaves, in tree order.
      rest: a mirror of the list of the others.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms.calculus.predicates import named
      >>> from fcojax.transforms.penalties.l1 import l1, zero
      >>> mirror = side_by_side(named("kernel"), euclidean(l1()), euclidean(zero()))
      >>> mirror.to_primal({"bias": jnp.array(0.5), "kernel": jnp.array([3.0, 0.5])}, 1.0, 1.0)
      {'bias': Array(0.5, ...), 'kernel': Array([2., 0.], ...)}
    """

    def value(x, scale):
        selected, others, _ = split_leaves(x, touches)
        first = chosen.penalty.value(selected, scale)
        return first + rest.penalty.value(others, scale).astype(first.dtype)

    def potential(x):
        selected, others, _ = split_leaves(x, touches)
        first = chosen.potential(selected)
        return first + rest.potential(others).astype(first.dtype)

    def each(first, second):
        def both(x, *numbers):
            selected, others, join = split_leaves(x, touches)
            return join(first(selected, *numbers), second(others, *numbers))

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


@in_floats
@validated
def divergence(mirror: Mirror, u: Params, v: Params) -> jax.Array:
    r"""Return the Bregman divergence :math:`h(u) - h(v) - \langle \nabla h(v), u - v \rangle`.

    It is at least 0, and at least ``m/2 |u - v|^2`` if h is m-strongly convex in that norm. For
    points closer than the square root of the machine precision, rounding errors dominate.

    Args:
      mirror: the mirror with h.
      u: the first point.
      v: the second point, at which the gradient is taken.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms.penalties.l1 import zero
      >>> float(divergence(euclidean(zero()), jnp.array([3.0, 4.0]), jnp.zeros(2)))
      12.5
    """
    require_same_shapes(u, v, "v")
    slope = tree.vdot(mirror.to_dual(v), tree.sub(u, v))
    return mirror.potential(u) - mirror.potential(v) - slope
