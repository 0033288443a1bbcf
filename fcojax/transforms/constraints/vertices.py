r"""Linear minimisation over a ball, for methods that do not project.

.. math:: s \in \mathrm{argmin}_{\|s\| \le r} \langle g, s \rangle

has a solution at a vertex of the ball: one entry for the l1 norm, one pair of singular vectors for
the nuclear norm. It costs less than a projection, and d numbers of it are sent as one or two
vectors. Jaggi, Revisiting Frank-Wolfe: projection-free sparse convex optimization, ICML 2013.
"""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fcojax.factorisations import thin_svd
from fcojax.transforms.penalty import strength
from fcojax.types import Params, Scalar


def l1_vertex(g: Params, radius: Scalar) -> Params:
    r"""The vertex :math:`-r\,\mathrm{sign}(g_j) e_j` of the l1 ball, j the largest of all leaves.

    Of equal entries it takes the first; for g = 0 it is still a vertex.

    Example:
      >>> l1_vertex(jnp.array([1.0, -3.0, 2.0]), 0.5).tolist()
      [0.0, 0.5, 0.0]
    """
    flat, unravel = ravel_pytree(g)
    steepest = jnp.argmax(jnp.abs(flat))
    height = jnp.where(flat[steepest] > 0, -1, 1).astype(flat.dtype) * strength(radius, flat)
    return unravel(jnp.zeros_like(flat).at[steepest].set(height))


def nuclear_vertex(g: Params, radius: Scalar) -> Params:
    r"""The vertex :math:`-r u_1 w_1^T` of the nuclear ball, of the first singular vectors of g.

    Leaves are matrices, each with a ball of its own. The pair is the first of a full decomposition,
    which is exact, and no cheaper than a projection; the vertex is what is cheap to send.

    Example:
      >>> nuclear_vertex(jnp.array([[0.0, 2.0], [1.0, 0.0]]), 3.0) + 0.0
      Array([[ 0., -3.], [ 0.,  0.]], ...)
    """

    def one(matrix):
        if matrix.ndim != 2:
            raise ValueError(
                f"nuclear_vertex met a leaf of shape {matrix.shape}; pass a tree of matrices."
            )
        # One that is not finite would have LAPACK print a line each time.
        finite = jnp.all(jnp.isfinite(matrix))
        left, _, right = thin_svd(jnp.where(finite, matrix, 0))
        found = -strength(radius, matrix) * left[:, :1] * right[:1]
        return jnp.where(finite, found, jnp.nan)

    return jax.tree.map(one, g)
