r"""Principal component analysis of the pooled data, on the Stiefel manifold.

Zhang, Hu, So and Johansson, "Nonconvex federated learning on compact smooth submanifolds with
heterogeneous data", NeurIPS 2024, where the problem is called kPCA.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.arguments import at_most, validated
from fcojax.problems.client_data import ClientData
from fcojax.problems.problem import Problem, second_moment
from fcojax.types import Array, Count, PyTree
from fcojax.xla.linalg import singular_values, thin_svd


def variance_loss(basis: Array, rows: PyTree) -> Array:
    """Return ``-|basis^T x|^2 / 2`` for each row."""
    return -jnp.sum((rows["x"] @ basis) ** 2, axis=1) / 2


@validated
def pca(
    train: ClientData, validation: ClientData | None = None, *, num_components: Count = 5
) -> Problem:
    r"""Find the leading eigenvectors of the second moment S of field ``x``, uncentred.

    .. math:: \min_{B^T B = I} F(B) = -\tfrac12 \mathrm{tr}(B^T S B), \qquad
              S = \sum_m p_m X_m^T X_m / n_m

    Params are B itself, of shape (dim, num_components). The loss depends on the span of B alone,
    so both ``transforms.stiefel`` and ``transforms.grassmann`` apply. S is decomposed once, in
    float64, for the measures: ``grad_norm``, the norm of the Riemannian gradient of F;
    ``suboptimality``; ``angle_sum`` and ``angle_max``, the principal angles to the solution in
    radians; and ``feasibility``, ``|B^T B - I|``. All but the first have a small relative error, in
    float32 too; ``grad_norm`` is accurate relative to the largest eigenvalue.

    Args:
      train: training data.
      validation: validation data, or ``None``.
      num_components: number of columns of B, fewer than there are features.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"x": np.diag([2.0, 1.0])}, [2])
      >>> problem = fcojax.problems.pca(data, num_components=1)
      >>> measures = problem.measures(jnp.array([[1.0], [0.0]]))  # the solution
      >>> round(float(measures["angle_max"]), 4), round(float(measures["suboptimality"]), 4)
      (0.0, 0.0)
    """
    dim = train.examples["x"].shape[1]
    at_most("num_components", num_components, dim - 1, f" for {dim} features")
    moment = second_moment(train)
    values, vectors = np.linalg.eigh(moment)
    values, vectors = values[::-1][:num_components], vectors[:, ::-1][:, :num_components]
    dtype = jnp.result_type(train.examples["x"])

    def init(key):  # uniform: the polar factor of a normal matrix
        left, _, right = thin_svd(jax.random.normal(key, (dim, num_components), dtype))
        return left @ right

    def measures(basis):
        s, solution = jnp.asarray(moment, basis.dtype), jnp.asarray(vectors, basis.dtype)
        with jax.default_matmul_precision("highest"):
            gradient = -s @ basis
            inner = basis.T @ gradient
            tangent = gradient - basis @ (inner + inner.T) / 2
            # Near the solution F and F* agree in all digits. Compute F - F* from the parts of each
            # span orthogonal to the other, which are small there.
            missing = solution - basis @ (basis.T @ solution)
            excess = basis - solution @ (solution.T @ basis)
            lost = jnp.sum(missing**2, axis=0) @ jnp.asarray(values, basis.dtype)
            gap = (lost - jnp.sum(excess * (s @ excess))) / 2
        angles = principal_angles(basis, solution)
        return {
            "grad_norm": jnp.linalg.norm(tangent),
            "suboptimality": gap,
            "angle_sum": jnp.sum(angles),
            "angle_max": angles[0],
            "feasibility": feasibility(basis),
        }

    return Problem(variance_loss, train, validation, init, measures, convex=False)


def feasibility(basis: Array) -> Array:
    """Return ``|x^T x - I|`` in Frobenius norm, zero if the columns x are orthonormal."""
    with jax.default_matmul_precision("highest"):
        return jnp.linalg.norm(basis.T @ basis - jnp.eye(basis.shape[1], dtype=basis.dtype))


def principal_angles(basis: Array, reference: Array) -> Array:
    """Return the angles between two subspaces given by orthonormal columns, largest first.

    Each angle is computed from its sine and its cosine, so an angle of 1e-6 is accurate in float32.

    Example:
      >>> x, y = jnp.eye(3)[:, :2], jnp.eye(3)[:, 1:]
      >>> jnp.rad2deg(principal_angles(x, y)).round().tolist()
      [90.0, 0.0]

    References:
      Bjorck and Golub, "Numerical methods for computing angles between linear subspaces", 1973.
    """
    with jax.default_matmul_precision("highest"):
        inner = reference.T @ basis
        sines = singular_values(basis - reference @ inner)
        cosines = singular_values(inner)
    return jnp.arctan2(sines, cosines[::-1])
