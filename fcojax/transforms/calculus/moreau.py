r"""What a prox says about duality: the conjugate of a penalty and its Moreau envelope.

.. math:: v = \mathrm{prox}_{t\psi}(v) + t\, \mathrm{prox}_{\psi^*/t}(v/t)

Moreau, Proximité et dualité dans un espace hilbertien, 1965; Parikh and Boyd, Proximal
Algorithms, 2014, sections 2.5 and 3.1.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.memo import memoised
from fcojax.transforms.penalty import Penalty, narrowed, require_penalty, widened
from fcojax.types import Params, PyTree, Scalar


@memoised
def conjugate(
    penalty: Penalty, value: Callable[[Params, Scalar], jax.Array] | None = None
) -> Penalty:
    r"""The convex conjugate, by the prox of psi alone.

    .. math:: \psi^*(y; \lambda) = \sup_x\; \langle x, y \rangle - \psi(x; \lambda)

    .. math:: \mathrm{prox}_{t\psi^*}(v) = v - t\, \mathrm{prox}_{\psi/t}(v/t)

    ``step`` is the t of this prox and ``scale`` is handed to psi: the conjugate of a norm of
    strength lambda is the ball of radius lambda in the dual norm, so ``conjugate(l1())`` projects
    onto the cube ``|y_i| <= scale``, and the conjugate of a set is its support function. At step
    zero, where the formula divides by zero, the answer is that of the step tiny^(1/4) (1e-77 in
    float64, 3e-10 in float32), which for a ball is the projection. The difference rounds like v:
    far outside a small ball it loses the digits that ``linf_ball`` and its like keep.

    A prox alone does not give the value in closed form. Unless ``value`` states it, the answer is
    the gain :math:`\langle x, y \rangle - \psi(x)` at the maximiser x of that gain less
    :math:`|x|^2 / 2T`, where T = 1/sqrt(eps): a lower bound, short of the supremum by at most
    :math:`|x^*|^2/2T`. Where the conjugate is infinite it is finite and large, T times the squared
    distance to the domain.

    Args:
      penalty: psi, convex.
      value: ``(y, scale) -> psi*(y; scale)``, if it is known.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> conjugate(l1()).prox(jnp.array([3.0, 0.5]), 1.0, 1.0).tolist()
      [1.0, 0.5]
    """
    require_penalty(penalty, "conjugate")
    if not penalty.convex:
        raise ValueError(
            "conjugate was given a penalty that is not convex; its prox says nothing about the "
            "conjugate. Pass a convex one."
        )

    def prox(v, step, scale):
        single = widened(v)
        step = jnp.maximum(step, float(_precision(single).tiny) ** 0.25)
        inner = penalty.prox(tree.scale(1 / step, single), 1 / step, scale)
        return narrowed(tree.add_scaled(single, -step, inner), v)

    def nearly(y, scale):
        reach = float(_precision(y).eps) ** -0.5
        x = penalty.prox(tree.scale(reach, y), reach, scale)
        return tree.vdot(x, y) - penalty.value(x, scale)

    return Penalty(value or nearly, prox, None, True)


@memoised
def moreau_envelope(penalty: Penalty) -> Callable[[Params, Scalar, PyTree], jax.Array]:
    r"""The smooth lower neighbour of psi, as a function ``(v, step, scale) -> number``.

    .. math:: M(v; t, \lambda) = \min_x\; \psi(x; \lambda) + \frac{1}{2t} |x - v|^2

    For a convex psi it is differentiable everywhere with a 1/t-Lipschitz gradient and has the
    minimisers of psi. Two derivatives are stated and do not pass through that of the prox:

    .. math::
        \nabla_v M = (v - \mathrm{prox}_{t\psi}(v))/t, \qquad
        \partial_t M = -|v - \mathrm{prox}_{t\psi}(v)|^2 / 2t^2.

    The one in lambda does, since for a ball it is a multiplier that the value does not show; it is
    right wherever the prox is differentiable, so for l1 not at entries of exactly t lambda. The
    envelope of a set is half the squared distance to it over t; Huber is the envelope of l1. At
    step zero the answer is psi(v) and its gradient is answered as zero.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> huber = moreau_envelope(l1())
      >>> float(huber(jnp.array(3.0), 1.0, 1.0))
      2.5
      >>> jax.grad(huber)(jnp.array([3.0, 0.5]), 1.0, 1.0).tolist()
      [1.0, 0.5]
    """
    require_penalty(penalty, "moreau_envelope")

    def at_prox(v, step, scale):
        nearest = penalty.prox(v, step, scale)
        offset = tree.sub(v, nearest)
        square = tree.vdot(offset, offset)
        rate = jnp.where(step > 0, 1 / jnp.where(step > 0, step, 1), 0)  # step zero: rate zero
        return nearest, offset, square, rate.astype(square.dtype)

    def direct(v, step, scale):
        nearest, _, square, rate = at_prox(v, step, scale)
        value = penalty.value(nearest, scale).astype(square.dtype)
        outside = (step == 0) & (square > 0)  # a set that v is not in
        return jnp.where(outside, jnp.inf, value + 0.5 * rate * square)

    @jax.custom_jvp
    def envelope(v, step, scale):
        return direct(v, step, scale)

    @envelope.defjvp
    def envelope_jvp(primals, tangents):
        v, step, scale = primals
        v_dot, step_dot, scale_dot = tangents
        answer, by_scale = jax.jvp(lambda s: direct(v, step, s), (scale,), (scale_dot,))
        _, offset, square, rate = at_prox(v, step, scale)
        by_input = rate * tree.vdot(offset, v_dot)
        by_step = -0.5 * rate**2 * square * step_dot.astype(square.dtype)
        return answer, by_input + by_step + by_scale

    def with_floats(v, step, scale):
        # A strength that is a Python integer has no derivative: make it a float that adapts.
        step, scale = jax.tree.map(
            lambda number: number * 1.0 if isinstance(number, int) else number, (step, scale)
        )
        return envelope(v, *jax.tree.map(jnp.asarray, (step, scale)))

    return with_floats


def _precision(x: PyTree) -> Any:
    """What ``jnp.finfo`` says of the leaves."""
    leaves = jax.tree.leaves(x)
    return jnp.finfo(leaves[0].dtype if leaves else jnp.result_type(float))
