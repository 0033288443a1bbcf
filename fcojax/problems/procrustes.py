"""The orthogonal Procrustes problem: the rotation between two sets of paired points."""

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.arguments import validated
from fcojax.problems.clients import ClientData, from_stacked
from fcojax.problems.measures import feasibility, random_basis
from fcojax.problems.problem import Problem
from fcojax.problems.second_moments import second_moment
from fcojax.types import Array, Count, NonNegative, Seed


def alignment_loss(rotation, rows) -> Array:
    """Return ``|rotation^T x - y|^2 / 2`` for each pair of rows."""
    return jnp.sum((rows["x"] @ rotation - rows["y"]) ** 2, axis=1) / 2


@validated
def procrustes(train: ClientData, validation: ClientData | None = None) -> Problem:
    r"""Find the orthogonal matrix R that best maps the vectors ``x`` to the vectors ``y``.

    .. math:: \min_{R^T R = I} \sum_m p_m \tfrac{1}{2 n_m} |X_m R - Y_m|_F^2, \qquad
              R^* = U V^T \text{ for } \sum_m p_m X_m^T Y_m / n_m = U \Sigma V^T

    R is square, a point of ``transforms.orthogonal`` and of ``transforms.stiefel``. The measures
    are ``error_fro``, the distance to :math:`R^*`; ``suboptimality``; and ``feasibility``.

    Args:
      train: training data, with fields ``x`` and ``y`` of vectors of one length.
      validation: validation data, or ``None``.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> quarter_turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
      >>> data = fcojax.from_rows({"x": np.eye(2), "y": quarter_turn}, [1, 1])
      >>> problem = fcojax.problems.procrustes(data)
      >>> round(float(problem.measures(jnp.array(quarter_turn))["error_fro"]), 4)
      0.0

    References:
      Schonemann, "A generalized solution of the orthogonal Procrustes problem", Psychometrika 1966.
    """
    dim = train.examples["x"].shape[1]
    cross = second_moment(train, "x", "y")
    u, values, vt = np.linalg.svd(cross)
    if values[-1] <= 1e-12 * values[0]:
        raise ValueError("X^T Y is singular, so the rotation is not unique; pass more examples.")
    best, stretch = u @ vt, vt.T * values @ vt
    dtype = jnp.result_type(train.examples["x"])

    def init(key):
        return random_basis(key, dim, dim, dtype)

    def measures(rotation):
        difference = rotation - jnp.asarray(best, rotation.dtype)
        with jax.default_matmul_precision("highest"):
            # <R* - R, X^T Y> = tr((R - R*)^T (R - R*) H) / 2 with H = V Sigma V^T, no cancellation.
            curved = difference @ jnp.asarray(stretch, rotation.dtype)
        return {
            "error_fro": jnp.linalg.norm(difference),
            "suboptimality": jnp.sum(difference * curved) / 2,
            "feasibility": feasibility(rotation),
        }

    return Problem(alignment_loss, train, validation, init, measures)


@validated
def synthetic_procrustes(
    *,
    num_clients: Count = 10,
    num_examples: Count = 50,
    dim: Count = 5,
    spread: NonNegative = 0.3,
    noise_scale: NonNegative = 0.1,
    num_validation: Count = 20,
    seed: Seed = 0,
) -> Problem:
    r"""Normal x and :math:`y = R_m^T x + \varepsilon`, with a rotation for each client.

    .. math:: R_m = R\, P(I + s A_m), \qquad A_m = (G_m - G_m^T) / 2, \; G_m \sim N(0, I)

    with P the orthogonal polar factor and R common.

    Args:
      num_clients: number of clients M.
      num_examples: training pairs per client.
      dim: length of the vectors.
      spread: s; with zero all clients have the same rotation.
      noise_scale: standard deviation of the noise.
      num_validation: validation pairs per client.
      seed: seed of the data.

    Example:
      >>> import fcojax
      >>> problem = fcojax.problems.synthetic_procrustes(num_clients=2, num_examples=4, dim=3)
      >>> problem.train.examples["x"].shape, problem.train.examples["y"].shape
      ((8, 3), (8, 3))
    """
    rng = np.random.default_rng(seed)
    shared = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    normal = rng.standard_normal((num_clients, dim, dim))
    u, _, vt = np.linalg.svd(np.eye(dim) + spread / 2 * (normal - normal.transpose(0, 2, 1)))
    rotations = shared @ (u @ vt)

    def draw(count: int) -> ClientData:
        x = rng.standard_normal((num_clients, count, dim))
        y = x @ rotations + noise_scale * rng.standard_normal(x.shape)
        return from_stacked(x=x, y=y)

    return procrustes(draw(num_examples), draw(num_validation))
