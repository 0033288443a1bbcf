r"""The orthonormal polar factor: the nearest matrix with orthonormal columns, and its derivative.

Every iteration here has the form ``Y <- Y W`` with W a small matrix that depends on the Gram matrix
``Y^T Y`` only, so tall matrices occur only in matrix products.
"""

import functools
import operator
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import validated
from fcojax.types import Array
from fcojax.xla.conditionals import loop
from fcojax.xla.linalg import symmetric_eigh, thin_svd

Method = Literal["gram", "svd"]

# Up to this number of columns, a product with a small matrix is a sum of outer products, which XLA
# fuses into one pass over the tall factor (784 x 5, batch 64: 0.06 ms; with dot: 0.5 ms).
_MAX_SLICED = 8
_MAX_ITERATIONS = 40
_USUAL_ITERATIONS = 4  # on the Gram matrix: 2 near the manifold, 3 or 4 for tall normal matrices
_MAX_CONDITION = 400  # for Gram matrices; the error is then 5e-5 (1e-13 in float64)


@validated
def polar(y: Array, method: Method | None = None) -> Array:
    r"""Return the matrix with orthonormal columns nearest to ``y``, of shape (d, k) with d >= k.

    .. math:: P(y) = \mathrm{argmin}_{X^T X = I} |X - y|_F = U V^T \quad\text{for } y = U S V^T

    It is unique if y has full rank. Otherwise (up to rounding) it is one of the nearest points,
    from a singular value decomposition; ``polar(0)`` consists of the first k unit vectors.

    The derivative is that of the polar decomposition y = U H, not of the iteration; at a y with
    orthonormal columns it is the orthogonal projection on the tangent space. If y does not have
    full rank, the derivative is set to zero in the directions in which P is discontinuous.

    Args:
      y: a real matrix. Under ``vmap``, iterations stop when all matrices have converged.
      method: one of

        * ``"gram"``: Newton-Schulz for the inverse square root of the k x k Gram matrix, then one
          product, and both again if the condition number of y is above 2. Products only.
        * ``"svd"``: the thin decomposition.

        The first falls back to ``"svd"`` if y is too ill-conditioned: the Gram matrix has no
        accurate root beyond a condition number of about 20. The fallback is skipped if no matrix of
        a batch needs it, and else runs for the whole batch. ``None`` means ``default_method()``.

    Example:
      >>> (100 * polar(jnp.array([[3.0], [4.0]]))).round().tolist()
      [[60.0], [80.0]]

    References:
      Higham, "Functions of Matrices", 2008, chapter 8.
    """
    return _orthonormal(y, method or default_method(), False)


@validated
def special_polar(y: Array, method: Method | None = None) -> Array:
    r"""Return the rotation (orthogonal, determinant 1) nearest to the square matrix ``y``.

    .. math:: U\, \mathrm{diag}(1, \ldots, 1, \det(U V^T))\, V^T \quad\text{for } y = U S V^T

    If the polar factor of y is a reflection and the smallest singular value is not simple, there
    are several nearest rotations, and one of them is returned.

    Args:
      y: a real square matrix.
      method: see ``polar``.

    Example:
      >>> special_polar(jnp.diag(jnp.array([3.0, -1.0]))).round().tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    return _orthonormal(y, method or default_method(), True)


def default_method() -> Method:
    """Return the fastest method measured on a CPU.

    Median milliseconds in float32 on a 2-core x86 CPU, 2026-11-21; "near" is 0.05 off the
    manifold, "normal" a Gaussian matrix; numpy and jax stand for their SVD with the product:

    ==================== ===== ===== ===== =====
    batch x d x k        gram  svd   numpy jax
    ==================== ===== ===== ===== =====
    64 x 784 x 5, near    0.97  3.56  3.60
    64 x 784 x 5, normal  0.83  3.21  3.62
    64 x 784 x 16, near   1.41  14.4        15.1
    64 x 32 x 32, near    0.89  6.41        6.47
    64 x 32 x 32, normal  17.2  8.73        10.5
    ==================== ===== ===== ===== =====

    Only the faster of numpy and jax is given. Square Gaussian matrices are ill-conditioned, so that
    the first falls back to the SVD. Other backends were not measured; they use ``"gram"`` too, as
    matrix products have less latency there than a small SVD.
    """
    return "gram"


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _orthonormal(y, method, special):
    if y.ndim != 2 or y.shape[0] < y.shape[1]:
        raise ValueError(
            f"the matrix has shape {y.shape}; pass one with at least as many rows as columns, or "
            "use vmap over leading axes."
        )
    wide = tree.floats(y)
    if wide.size == 0:
        return y
    x = _svd(wide) if method == "svd" else _by_gram(wide)
    if special:
        x = _fix_where(jnp.linalg.slogdet(x, method="qr")[0] < 0, _nearest_rotation, wide, x)
    return tree.cast_like(x, y)


@_orthonormal.defjvp
def _orthonormal_jvp(method, special, primals, tangents):
    (y,), (dy,) = primals, tangents
    x = _orthonormal(y, method, special)
    if y.size == 0:
        return x, dy
    return x, polar_differential(tree.floats(x), tree.floats(y), tree.floats(dy)).astype(x.dtype)


def polar_differential(x: Array, y: Array, dy: Array) -> Array:
    r"""Return the differential of the polar factor at y in the direction dy, for the factor x.

    With y = x H and H symmetric it is, for the skew solution of the Sylvester equation,

    .. math:: dx = x \Omega + (I - x x^T)\, dy\, H^{-1}, \qquad
              H \Omega + \Omega H = x^T dy - dy^T x.

    Eigenvalues of H may be negative (as for rotations), but not their pairwise sums. Both equations
    are solved with one eigendecomposition of H, but differentiated implicitly, so that second
    derivatives are correct for repeated eigenvalues, which every point of the manifold has.
    """
    inner = matmul(x.T, y)
    h = 0.5 * (inner + inner.T)
    values, vectors = symmetric_eigh(jax.lax.stop_gradient(h))
    floor = jnp.finfo(h.dtype).eps * jnp.max(jnp.abs(values), initial=0)

    def reciprocal(denominators):
        singular = denominators <= floor  # P is discontinuous in this direction
        return jnp.where(singular, 0, 1 / jnp.where(singular, 1, denominators))

    def solve_sylvester(_, right):
        rotated = matmul(matmul(vectors.T, right), vectors)
        rotated = rotated * reciprocal(values[:, None] + values[None, :])
        return matmul(matmul(vectors, rotated), vectors.T)

    def solve_right(_, right):
        return matmul(matmul(right, vectors) * reciprocal(values)[None, :], vectors.T)

    inner_dot = matmul(x.T, dy)
    omega = jax.lax.custom_linear_solve(
        lambda w: matmul(h, w) + matmul(w, h),
        inner_dot - inner_dot.T,
        solve_sylvester,
        symmetric=True,
    )
    if x.shape[0] == x.shape[1]:
        return matmul(x, omega)
    outside = dy - matmul(x, inner_dot)
    outside = jax.lax.custom_linear_solve(
        lambda w: matmul(w, h), outside, solve_right, symmetric=True
    )
    return matmul(x, omega) + outside


def matmul(a: Array, b: Array) -> Array:
    """Return ``a @ b`` in the full precision of the dtype; TF32 has errors of 1e-3."""
    if 0 < b.shape[0] <= _MAX_SLICED and b.shape[0] == b.shape[1]:
        outer = (a[:, i : i + 1] * b[i : i + 1, :] for i in range(b.shape[0]))
        return functools.reduce(operator.add, outer)
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def _fix_where(needed, fix, y, x):
    """``fix(y, x)`` where ``needed``, else x, as a loop of at most one iteration.

    Under vmap a ``cond`` runs both branches for the whole batch; a loop is skipped if no element
    needs it. The iteration overwrites y; otherwise XLA would hoist work on it out of the loop.
    """

    def once(state):
        _, y, x = state
        x = fix(y, x)
        return jnp.zeros_like(needed), x, x

    return jax.lax.while_loop(lambda state: state[0], once, (needed, y, x))[2]


def _nearest_rotation(y, x):
    """The nearest rotation to y if its polar factor x is a reflection."""
    h = matmul(x.T, y)
    least = symmetric_eigh(0.5 * (h + h.T))[1][:, :1]
    return x - 2 * matmul(matmul(x, least), least.T)


def _svd(y):
    left, _, right = thin_svd(y)
    x = matmul(left, right)
    # One cubic step: in float32 and for k = 100, LAPACK's factor is orthonormal to 1e-5 only.
    return 1.5 * x - 0.5 * matmul(x, matmul(x.T, x))


def _by_gram(y: Array) -> Array:
    """Iterate ``y <- y W`` with ``W, error = _gram_step(gram)`` until the error is a few eps.

    ``error`` is the step's own bound for its result. Computing the error from another Gram matrix
    would take a third of the total time.
    """
    tolerance = 3 * jnp.finfo(y.dtype).eps

    def unfinished(state):
        _, error, count = state
        return (error > tolerance) & (count < _MAX_ITERATIONS)  # false for NaN

    def advance(state):
        y, _, count = state
        factor, error = _gram_step(matmul(y.T, y))
        return matmul(y, factor), error, count + 1

    # The first step is before the loop: XLA on a CPU parallelises it, but not a loop body.
    first = advance((y, jnp.full((), jnp.inf, y.dtype), 0))
    x, error, _ = jax.lax.while_loop(unfinished, advance, first)
    return _fix_where(~(error <= tolerance), lambda y, _: _svd(y), y, x)


def _row_sum(matrix):
    """The largest absolute row sum, which bounds the spectral norm."""
    return jnp.max(jnp.sum(jnp.abs(matrix), axis=1))


def _normalising_scale(gram):
    """A factor that brings the singular values into (0, sqrt(2)], 1 if they are already."""
    bound = jnp.minimum(_row_sum(gram), jnp.sqrt(jnp.sum(gram**2)))
    return jnp.where((bound > 0.5) & (bound < 2), 1, jax.lax.rsqrt(bound))


def _quintic(gram):
    """``a I + b G + c G^2``, with the coefficients of Newton-Schulz."""
    a, b, c = 1.875, -1.25, 0.375
    return a * jnp.eye(gram.shape[0], dtype=gram.dtype) + b * gram + c * matmul(gram, gram)


def _distance_to_identity(gram):
    return jnp.sqrt(jnp.sum((gram - jnp.eye(gram.shape[0], dtype=gram.dtype)) ** 2))


def _rounding(gram, root):
    """The rounding error of ``y root``: eps times the condition number of the Gram matrix.

    Above _MAX_CONDITION it is NaN: another iteration would return orthonormal columns, but not the
    nearest ones, as a product of two inexact roots is not symmetric.
    """
    condition = _row_sum(gram) * _row_sum(root) ** 2
    return jnp.finfo(gram.dtype).eps * jnp.where(condition < _MAX_CONDITION, condition, jnp.nan)


def _gram_step(gram):
    scale = _normalising_scale(gram)
    # Convergence is cubic: the step after a distance of eps^(1/3) reaches eps.
    near = jnp.cbrt(jnp.finfo(gram.dtype).eps)

    def unfinished(state):
        _, _, distance, count = state
        return (distance > near) & (count < _MAX_ITERATIONS)

    def advance(state):
        square, root, _, count = state  # coupled: square -> I, root -> gram^(-1/2)
        product = matmul(root, square)
        factor = _quintic(product)
        distance = _distance_to_identity(product)
        return matmul(square, factor), matmul(factor, root), distance, count + 1

    eye = jnp.eye(gram.shape[0], dtype=gram.dtype)
    start = gram * scale**2, eye, jnp.full((), jnp.inf, gram.dtype), 0
    _, root, distance, _ = loop(unfinished, advance, start, usual=_USUAL_ITERATIONS)
    root = scale * root
    return root, jnp.where(distance <= near, _rounding(gram, root), jnp.nan)
