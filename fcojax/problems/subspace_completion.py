r"""Matrix completion over subspaces: the coefficients are eliminated.

The form of Zhang, Hu, So and Johansson, "Nonconvex federated learning on
compact smooth submanifolds with heterogeneous data", NeurIPS 2024, minimised over a manifold.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.arguments import validated
from fcojax.problems.clients import ClientData, from_stacked
from fcojax.problems.matrix_completion import draw_columns, draw_factors
from fcojax.problems.measures import (
    check_components,
    feasibility,
    principal_angles,
    random_basis,
    stiefel_gradient_norm,
)
from fcojax.problems.problem import Problem, population_loss
from fcojax.types import Array, Count, CountOrZero, NonNegative, Seed, Share


def projected_loss(basis, rows, ridge: float = 1e-6) -> Array:
    r"""Return the squared distance of each column from the span of ``basis``, on observed entries.

    .. math:: \min_v \tfrac12 |w \odot (B v - a)|^2 + \tfrac{\rho}{2} |v|^2

    with a = ``value`` and w = ``mask``, zero or one. By the envelope theorem the gradient in B is
    that of the formula with v fixed at the minimiser. Derivatives do not pass through v, so second
    derivatives are wrong.
    """
    masked = rows["mask"] * rows["value"]
    gram = jnp.einsum("dk,nd,dl->nkl", basis, rows["mask"], basis)
    gram = gram + ridge * jnp.eye(basis.shape[1], dtype=basis.dtype)[None]
    solve = jax.vmap(lambda a, b: jax.scipy.linalg.solve(a, b, assume_a="pos"))
    v = jax.lax.stop_gradient(solve(gram, masked @ basis))
    residual = rows["mask"] * (v @ basis.T) - masked
    return (jnp.sum(residual**2, axis=1) + ridge * jnp.sum(v**2, axis=1)) / 2


@validated
def subspace_completion(
    train: ClientData,
    validation: ClientData | None = None,
    *,
    num_components: Count = 5,
    solution: np.ndarray | None = None,
) -> Problem:
    r"""Find the subspace that best fits columns of which only some entries are observed.

    .. math:: \min_{B^T B = I} \sum_m p_m \tfrac{1}{n_m} \sum_i \min_v \tfrac12
              |w_{m,i} \odot (B v - a_{m,i})|^2

    An example is one column: fields ``value`` and ``mask``, both of length dim;
    ``as_columns`` builds them from single entries. Params are B, of shape (dim, num_components).
    The loss depends on its span alone, so both ``transforms.grassmann`` and ``transforms.stiefel``
    apply. A ridge of 1e-6 on v makes it unique for columns with fewer entries than components.

    The measures are ``grad_norm``, that of the Riemannian gradient of F, ``feasibility``, and
    ``angle_sum``, the sum of the principal angles to ``solution`` if there is one.

    Args:
      train: training data.
      validation: validation data, or ``None``.
      num_components: number of columns of B, fewer than its rows.
      solution: basis with orthonormal columns to measure the angles to, or ``None``.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> rows = {"value": np.array([[2.0, 0.0, 1.0]]), "mask": np.array([[1.0, 1.0, 0.0]])}
      >>> data = fcojax.from_rows(rows, [1])
      >>> problem = fcojax.problems.subspace_completion(data, num_components=1)
      >>> basis = jnp.array([[0.0], [1.0], [0.0]])  # orthogonal to the observed 2
      >>> round(float(problem.loss(basis, problem.train.examples)[0]), 3)
      2.0
    """
    dim = train.examples["value"].shape[1]
    check_components(num_components, dim)
    if not np.isin(np.asarray(train.examples["mask"]), (0, 1)).all():
        raise ValueError("field mask has entries other than 0 and 1; pass 1 for an observed entry.")
    slope = jax.grad(lambda basis: population_loss(projected_loss, basis, train))

    def init(key):
        return random_basis(key, dim, num_components, train.examples["value"].dtype)

    def measures(basis):
        result = {
            "grad_norm": stiefel_gradient_norm(basis, slope(basis)),
            "feasibility": feasibility(basis),
        }
        if solution is not None:
            angles = principal_angles(basis, jnp.asarray(solution, basis.dtype))
            result["angle_sum"] = jnp.sum(angles)
        return result

    return Problem(projected_loss, train, validation, init, measures)


def as_columns(
    row: np.ndarray, column: np.ndarray, value: np.ndarray, shape: tuple[int, int]
) -> dict[str, np.ndarray]:
    """Convert single entries to one example per column of the matrix.

    Args:
      row: row of each entry.
      column: column of each entry.
      value: value of each entry.
      shape: rows and columns of the matrix.

    Returns:
      A dict of ``value`` and ``mask``, both of shape [columns, rows].

    Example:
      >>> as_columns(np.array([0, 2]), np.array([1, 1]), np.array([5.0, 7.0]), (3, 2))["value"]
      array([[0., 0., 0.], [5., 0., 7.]], dtype=float32)
    """
    result = {name: np.zeros(shape[::-1], np.float32) for name in ("value", "mask")}
    result["value"][column, row] = value
    result["mask"][column, row] = 1
    return result


@validated
def synthetic_subspace_completion(
    *,
    num_clients: Count = 10,
    shape: tuple[int, int] = (100, 1000),
    true_rank: Count = 5,
    share_seen: Share | None = None,
    own_scale: NonNegative = 0.0,
    noise_scale: NonNegative = 0.0,
    num_validation: CountOrZero = 20,
    seed: Seed = 0,
) -> Problem:
    r"""Columns of a low-rank matrix whose entries are observed with the same probability.

    .. math:: A_m = (L + s E_m) R_m + \varepsilon

    with normal L, E_m and R_m; the clients have equally many columns. With s = 0 and no noise,
    every client's loss is zero at the span of L and heterogeneity has no effect on any method; it
    has with s = 0.3 and noise 0.1. ``angle_sum`` is measured to the span of L.

    Args:
      num_clients: number of clients M, a divisor of the number of columns.
      shape: rows d and columns T of the matrix.
      true_rank: k, the number of columns of L and of the basis.
      share_seen: probability with which an entry is observed; by default six for each
        degree of freedom, 6 k (d + T - k) / (d T).
      own_scale: s, the spread of the clients' column spaces.
      noise_scale: standard deviation of the noise on an entry.
      num_validation: validation columns per client.
      seed: seed of the data.

    Example:
      >>> import fcojax
      >>> problem = fcojax.problems.synthetic_subspace_completion(
      ...     num_clients=2, shape=(6, 8), true_rank=1, share_seen=0.5)
      >>> problem.train.examples["mask"].shape, problem.train.sizes.tolist()
      ((8, 6), [4, 4])
    """
    rng = np.random.default_rng(seed)
    common, left = draw_factors(rng, num_clients, shape, true_rank, own_scale)
    if share_seen is None:
        share_seen = min(1.0, 6 * true_rank * (sum(shape) - true_rank) / (shape[0] * shape[1]))

    def draw(count: int) -> ClientData:
        columns = draw_columns(rng, left, count)
        columns = columns + noise_scale * rng.standard_normal(columns.shape)
        mask = rng.random(columns.shape) < share_seen
        return from_stacked(value=np.where(mask, columns, 0.0), mask=mask)

    return subspace_completion(
        draw(shape[1] // num_clients),
        draw(num_validation) if num_validation else None,
        num_components=true_rank,
        solution=np.linalg.qr(common)[0],
    )
