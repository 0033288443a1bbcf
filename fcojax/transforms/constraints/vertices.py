r"""Linear minimisation over a ball, for the Frank-Wolfe method.

.. math:: s \in \mathrm{argmin}_{\|s\| \le r} \langle g, s \rangle

has a solution at a vertex of the ball: one entry for the l1 norm, one pair of singular vectors for
the nuclear norm. It needs less computation and communication than a projection. Jaggi, Revisiting
Frank-Wolfe: projection-free sparse convex optimization, ICML 2013.
"""

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import validated
from fcojax.transforms.penalty import strength
from fcojax.transforms.shapes import flattened
from fcojax.transforms.singular_values import require_matrix
from fcojax.types import NonNegative, Params
from fcojax.xla.linalg import thin_svd


@validated
def l1_vertex(g: Params, radius: NonNegative) -> Params:
    r"""Return the vertex :math:`-r\,\mathrm{sign}(g_j) e_j` of the l1 ball.

    Here j is the entry with the largest absolute value, the first of equal ones; for g = 0 the
    result is a vertex too. If g has a NaN, so has the result.

    Args:
      g: the gradient, a pytree; the ball is over all leaves jointly.
      radius: r, at least 0.

    Example:
      >>> l1_vertex(jnp.array([1.0, -3.0, 2.0]), 0.5).tolist()
      [0.0, 0.5, 0.0]
    """
    flat, unravel = flattened(g)
    if not flat.size:
        raise ValueError("g has no entries, so the ball has no vertex; pass a gradient.")
    steepest = jnp.argmax(jnp.abs(flat))
    sign = jnp.where(jnp.isnan(flat[steepest]), jnp.nan, jnp.where(flat[steepest] > 0, -1, 1))
    height = sign.astype(flat.dtype) * strength(radius, flat)
    return unravel(jnp.zeros_like(flat).at[steepest].set(height))


@validated
def nuclear_vertex(g: Params, radius: NonNegative) -> Params:
    r"""Return the vertex :math:`-r u_1 w_1^T` of the nuclear ball, u_1 and w_1 singular vectors.

    The singular vectors come from a full decomposition, so this is exact and as expensive as a
    projection; only communication is cheaper.

    Args:
      g: the gradient, a pytree of matrices, each with a ball of its own.
      radius: r, at least 0.

    Example:
      >>> nuclear_vertex(jnp.array([[0.0, 2.0], [1.0, 0.0]]), 3.0) + 0.0
      Array([[ 0., -3.], [ 0.,  0.]], ...)
    """

    def one(leaf):
        matrix = tree.floats(leaf)
        require_matrix("nuclear_vertex", matrix, least=1)
        finite = jnp.all(jnp.isfinite(matrix))  # LAPACK prints a line for each matrix with NaN
        left, _, right = thin_svd(jnp.where(finite, matrix, 0))
        vertex = -strength(radius, matrix) * left[:, :1] * right[:1]
        return tree.cast_like(jnp.where(finite, vertex, jnp.nan), leaf)

    return jax.tree.map(one, g)
