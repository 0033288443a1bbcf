"""The Moreau envelope of a penalty.

Moreau, Proximité et dualité dans un espace hilbertien, 1965; Parikh and Boyd, Proximal
Algorithms, 2014, section 3.1.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.penalty import Penalty
from fcojax.types import Params, PyTree, Scalar


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
