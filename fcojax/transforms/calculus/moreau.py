r"""Duality by proxes: the conjugate of a penalty and its Moreau envelope.

.. math:: v = \mathrm{prox}_{t\psi}(v) + t\, \mathrm{prox}_{\psi^*/t}(v/t)

Moreau, Proximité et dualité dans un espace hilbertien, 1965; Parikh and Boyd, Proximal
Algorithms, 2014, sections 2.5 and 3.1.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.penalty import Penalty
from fcojax.types import Params, PyTree, Scalar


@factory
def conjugate(
    penalty: Penalty, value: Callable[[Params, Scalar], jax.Array] | None = None
) -> Penalty:
    r"""Return the convex conjugate, computed from the prox of psi.

    .. math:: \psi^*(y; \lambda) = \sup_x\; \langle x, y \rangle - \psi(x; \lambda)

    .. math:: \mathrm{prox}_{t\psi^*}(v) = v - t\, \mathrm{prox}_{\psi/t}(v/t)

    ``step`` is the t of this prox and ``scale`` is the lambda of psi. The conjugate of a norm with
    strength lambda is the ball of radius lambda in the dual norm, so ``conjugate(l1())`` projects
    onto the cube ``|y_i| <= scale``; the conjugate of a set is its support function. A step of
    zero, by which the formula would divide, is replaced by tiny^(1/4) (1e-77 in float64, 3e-10 in
    float32). The prox is a difference of numbers of the size of v, so far outside a small ball it
    is less accurate than ``linf_ball`` and the other projections.

    Unless ``value`` is given, the value is approximated by :math:`\langle x, y \rangle - \psi(x)`
    at the x that maximises it minus :math:`|x|^2 / 2T`, with T = 1/sqrt(eps). This is a lower bound
    with an error of at most :math:`|x^*|^2/2T`. Where the conjugate is infinite, it is T times the
    squared distance to the domain.

    Args:
      penalty: psi, convex.
      value: ``(y, scale) -> psi*(y; scale)`` in closed form, or ``None``.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> conjugate(l1()).prox(jnp.array([3.0, 0.5]), 1.0, 1.0).tolist()
      [1.0, 0.5]
    """
    if not penalty.convex:
        raise ValueError(
            "the penalty is not convex, so that its prox does not determine its conjugate; pass a "
            "convex one."
        )

    def prox(v, step, scale):
        single = tree.floats(v)
        step = jnp.maximum(step, float(_precision(single).tiny) ** 0.25)
        inner = penalty.prox(tree.scale(1 / step, single), 1 / step, scale)
        return tree.cast_like(tree.add_scaled(single, -step, inner), v)

    def approximate_value(y, scale):
        y = tree.floats(y)
        t = float(_precision(y).eps) ** -0.5
        x = penalty.prox(tree.scale(t, y), t, scale)
        return tree.vdot(x, y) - penalty.value(x, scale)

    return Penalty(value or approximate_value, prox)


@factory
def moreau_envelope(penalty: Penalty) -> Callable[[Params, Scalar, PyTree], jax.Array]:
    r"""Return the Moreau envelope of psi, a smooth lower bound ``(v, step, scale) -> number``.

    .. math:: M(v; t, \lambda) = \min_x\; \psi(x; \lambda) + \frac{1}{2t} |x - v|^2

    For a convex psi it is differentiable everywhere with a 1/t-Lipschitz gradient, and it has the
    same minimisers. Two of its derivatives are in closed form:

    .. math::
        \nabla_v M = (v - \mathrm{prox}_{t\psi}(v))/t, \qquad
        \partial_t M = -|v - \mathrm{prox}_{t\psi}(v)|^2 / 2t^2.

    The derivative in lambda is that of the prox by the chain rule, and correct wherever the prox is
    differentiable (for l1, not at entries equal to t lambda). The envelope of a set is half the
    squared distance to it over t; that of l1 is the Huber function. At step zero the value is
    psi(v) and the gradient is returned as zero.

    Args:
      penalty: psi.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> huber = moreau_envelope(l1())
      >>> float(huber(jnp.array(3.0), 1.0, 1.0))
      2.5
      >>> jax.grad(huber)(jnp.array([3.0, 0.5]), 1.0, 1.0).tolist()
      [1.0, 0.5]
    """

    def at_prox(v, step, scale):
        nearest = penalty.prox(v, step, scale)
        offset = tree.sub(v, nearest)
        square = tree.vdot(offset, offset)
        rate = jnp.where(step > 0, 1 / jnp.where(step > 0, step, 1), 0)
        return nearest, offset, square, rate.astype(square.dtype)

    def direct(v, step, scale):
        nearest, _, square, rate = at_prox(v, step, scale)
        value = penalty.value(nearest, scale).astype(square.dtype)
        outside = (step == 0) & (square > 0)  # psi is the indicator of a set without v
        return jnp.where(outside, jnp.inf, value + 0.5 * rate * square)

    @jax.custom_jvp
    def envelope(v, step, scale):
        return direct(v, step, scale)

    @envelope.defjvp
    def envelope_jvp(primals, tangents):
        v, step, scale = primals
        v_dot, step_dot, scale_dot = tangents
        value, by_scale = jax.jvp(lambda s: direct(v, step, s), (scale,), (scale_dot,))
        _, offset, square, rate = at_prox(v, step, scale)
        by_input = rate * tree.vdot(offset, v_dot)
        by_step = -0.5 * rate**2 * square * step_dot.astype(square.dtype)
        return value, by_input + by_step + by_scale

    def of_numbers(v, step, scale):
        if jnp.ndim(step):
            raise ValueError(f"step is an array of shape {jnp.shape(step)}; pass one number.")
        # JAX does not differentiate integers: convert them to weakly typed floats.
        step, scale = jax.tree.map(
            lambda number: number * 1.0 if isinstance(number, int) else number, (step, scale)
        )
        return envelope(tree.floats(v), *jax.tree.map(jnp.asarray, (step, scale)))

    return of_numbers


def _precision(x: PyTree) -> Any:
    """``jnp.finfo`` of the first leaf."""
    leaves = jax.tree.leaves(x)
    return jnp.finfo(leaves[0].dtype if leaves else jnp.result_type(float))
