r"""Quadratic mirror maps: Euclidean geometry with a metric, :math:`h(x) = x^T Q x / 2`.

By the change of variables :math:`u = Q^{1/2} x`, :math:`y = Q^{-1/2} z` they equal the Euclidean
map with the penalty :math:`\psi(Q^{-1/2} u)`. The mirror step has a closed form for a diagonal Q
with a separable penalty, and for a full Q with the squared norm.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.calculus.compose import is_concrete
from fcojax.transforms.calculus.per_entry import sum_over_entries
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.transforms.penalties.separable import l2_squared
from fcojax.transforms.penalty import Penalty, strength
from fcojax.transforms.shapes import filled, flattened
from fcojax.types import FiniteTree, Matrix


@factory
def diagonal(weights: FiniteTree, penalty: Penalty) -> Mirror:
    r"""Return a diagonal metric, :math:`h(x) = \frac12 \sum_i q_i x_i^2`, with a separable penalty.

    h is 1-strongly convex in the norm :math:`|x|_Q = (\sum_i q_i x_i^2)^{1/2}`.

    .. math:: P_t(z)_i = \mathrm{argmin}_u\; \tfrac12 q_i u^2 + t \psi(u; \lambda) - z_i u
                       = \mathrm{prox}_{(t/q_i) \psi}(z_i / q_i)

    With l1 this is soft(z, t lambda) / q, with a box clip(z / q, a, b), with the squared norm
    z / (q + 2 t lambda). The penalty is a sum over entries (l1, elastic net, a power, a box, the
    orthant). The prox of others has no known form in this metric; they raise an error.

    Args:
      weights: q, above 0: one number for all entries, or a pytree of arrays (or numbers) like x.
      penalty: psi.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> mirror = diagonal(jnp.array([1.0, 4.0]), l1())
      >>> mirror.to_primal(jnp.array([3.0, 3.0]), 1.0, 1.0).tolist()
      [2.0, 0.5]
    """
    for leaf in jax.tree.leaves(weights):
        if is_concrete(leaf) and not np.all(np.asarray(leaf) > 0):
            raise ValueError(
                f"the smallest weight is {np.min(np.asarray(leaf))}; pass weights above 0."
            )
    prox = sum_over_entries(penalty, "diagonal").prox

    def broadcast(x):
        return filled(weights, x, "weights")

    def to_dual(x):
        x = tree.floats(x)
        return jax.tree.map(jnp.multiply, broadcast(x), x)

    def from_dual(z):
        z = tree.floats(z)
        return jax.tree.map(jnp.divide, z, broadcast(z))

    def to_primal(z, step, scale):
        z = tree.floats(z)
        steps = jax.tree.map(lambda q: jnp.asarray(step, q.dtype) / q, broadcast(z))
        return prox(from_dual(z), steps, scale)

    return Mirror(lambda x: 0.5 * tree.vdot(x, to_dual(x)), to_dual, from_dual, to_primal, penalty)


@factory
def quadratic(matrix: Matrix) -> Mirror:
    r"""Return a full metric, :math:`h(x) = \frac12 x^T Q x`, with the squared norm.

    x is the vector of all leaves in tree order. h is 1-strongly convex in
    :math:`|x|_Q = (x^T Q x)^{1/2}`. With :math:`\psi(x; \lambda) = \lambda |x|^2`, without 1/2,

    .. math:: P_t(z) = \mathrm{argmin}_x\; \tfrac12 x^T Q x + t \lambda |x|^2 - z^T x
                     = (Q + 2 t \lambda I)^{-1} z.

    The factory computes the eigendecomposition of Q once; each map is then two products with a
    matrix, for any traced step and scale. Other penalties have no closed form: use ``diagonal`` for
    l1 or a box, or ``euclidean`` on a whitened problem.

    Args:
      matrix: Q, symmetric positive definite, with as many rows as x has entries.

    Example:
      >>> mirror = quadratic(jnp.array([[2.0, 0.0], [0.0, 4.0]]))
      >>> mirror.to_primal(jnp.array([8.0, 8.0]), 1.0, 1.0).tolist()
      [2.0, 1.3333...]
    """
    curvatures, basis = jnp.linalg.eigh(matrix)
    if is_concrete(matrix):
        symmetric = np.allclose(matrix, matrix.T, rtol=1e-5, atol=0.0)
        if not (symmetric and float(curvatures[0]) > 0):
            raise ValueError(
                f"the matrix is {'' if symmetric else 'not '}symmetric and its smallest "
                f"eigenvalue is "
                f"{float(curvatures[0]):.2e}; pass (Q + Q.T) / 2, plus a multiple of the identity."
            )

    def spectral(x, function):
        """``V function(eigenvalues, V^T x)``, as a pytree like x."""
        flat, unravel = flattened(x)
        axes = basis.astype(flat.dtype)
        return unravel(axes @ function(curvatures.astype(flat.dtype), axes.T @ flat))

    def to_dual(x):
        return spectral(x, lambda q, u: q * u)

    def to_primal(z, step, scale):
        def shrink(q, y):
            return y / (q + 2 * strength(step, y) * strength(scale, y))

        return spectral(z, shrink)

    return Mirror(
        potential=lambda x: 0.5 * tree.vdot(x, to_dual(x)),
        to_dual=to_dual,
        from_dual=lambda z: spectral(z, lambda q, y: y / q),
        to_primal=to_primal,
        penalty=l2_squared(),
    )
