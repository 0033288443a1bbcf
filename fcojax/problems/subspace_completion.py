r"""A matrix from some of its entries, over subspaces: the coefficients are solved out.

The form of matrix completion that Zhang, Hu, So and Johansson, "Nonconvex federated learning on
compact smooth submanifolds with heterogeneous data", NeurIPS 2024, minimise over a manifold.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.problems.clients import ClientData, from_rows
from fcojax.problems.matrix_completion import draw_columns, draw_factors
from fcojax.problems.measures import feasibility, principal_angles, stiefel_gradient_norm
from fcojax.problems.problem import Problem, population_loss
from fcojax.types import Array


def projected_loss(basis, rows, ridge: float = 1e-6) -> Array:
    r"""How far a column is from the span of ``basis``, seen through its mask.

    .. math:: \min_v \tfrac12 |w \odot (B v - a)|^2 + \tfrac{\rho}{2} |v|^2

    with a = ``value`` and w = ``mask``, zero or one. Its gradient in B is that of the formula with
    v held at the minimiser (the envelope theorem), and v is held there: do not differentiate twice.
    """
    masked = rows["mask"] * rows["value"]
    gram = jnp.einsum("dk,nd,dl->nkl", basis, rows["mask"], basis)
    gram = gram + ridge * jnp.eye(basis.shape[1], dtype=basis.dtype)[None]
    solve = jax.vmap(lambda a, b: jax.scipy.linalg.solve(a, b, assume_a="pos"))
    v = jax.lax.stop_gradient(solve(gram, masked @ basis))
    residual = rows["mask"] * (v @ basis.T) - masked
    return (jnp.sum(residual**2, axis=1) + ridge * jnp.sum(v**2, axis=1)) / 2


def subspace_completion(
    train: ClientData,
    validation: ClientData | None = None,
    *,
    num_components: int = 5,
    solution: np.ndarray | None = None,
) -> Problem:
    r"""The subspace that best explains columns of which only some entries are seen.

    .. math:: \min_{B^T B = I} \sum_m p_m \tfrac{1}{n_m} \sum_i \min_v \tfrac12
              |w_{m,i} \odot (B v - a_{m,i})|^2

    An example is one column: fields ``value`` and ``mask``, both of length dim;
    ``as_columns`` makes them of single entries. Params are B, of shape (dim, num_components). Only
    its span matters, so ``transforms.grassmann`` and ``transforms.stiefel`` both fit. A ridge of
    1e-6 on v keeps columns with fewer entries than components well defined.

    The measures are ``grad_norm``, that of the Riemannian gradient of F, ``feasibility``, and
    ``angle_sum``, the sum of the principal angles to ``solution`` if there is one.

    Args:
      train: the clients.
      validation: columns that only judge.
      num_components: columns of B.
      solution: a basis to compare with, with orthonormal columns.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> rows = {"value": np.array([[2.0, 0.0, 1.0]]), "mask": np.array([[1.0, 1.0, 0.0]])}
      >>> data = fcojax.from_rows(rows, [1])
      >>> problem = fcojax.problems.subspace_completion(data, num_components=1)
      >>> basis = jnp.array([[0.0], [1.0], [0.0]])  # which explains none of the 2 that is seen
      >>> round(float(problem.loss(basis, problem.train.examples)[0]), 3)
      2.0
    """
    dim = train.examples["value"].shape[1]
    if not 0 < num_components < dim:
        raise ValueError(f"num_components is {num_components} of {dim}; pass 1 to {dim - 1}.")
    if not np.isin(np.asarray(train.examples["mask"]), (0, 1)).all():
        raise ValueError("field mask has entries other than 0 and 1; 1 marks an observed entry.")
    slope = jax.grad(lambda basis: population_loss(projected_loss, basis, train))

    def init(key):
        dtype = train.examples["value"].dtype
        normal = jax.random.normal(key, (dim, num_components), dtype)
        u, _, vt = jnp.linalg.svd(normal, full_matrices=False)
        return u @ vt

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
    """Single entries as one example per column of the matrix, ``{"value", "mask"}``.

    Both have shape (columns, rows): an example is a column.

    Example:
      >>> as_columns(np.array([0, 2]), np.array([1, 1]), np.array([5.0, 7.0]), (3, 2))["value"]
      array([[0., 0., 0.], [5., 0., 7.]], dtype=float32)
    """
    result = {name: np.zeros(shape[::-1], np.float32) for name in ("value", "mask")}
    result["value"][column, row] = value
    result["mask"][column, row] = 1
    return result


def synthetic_subspace_completion(
    *,
    num_clients: int = 10,
    shape: tuple[int, int] = (100, 1000),
    true_rank: int = 5,
    share_seen: float | None = None,
    own_scale: float = 0.0,
    noise_scale: float = 0.0,
    num_validation: int = 20,
    seed: int = 0,
) -> Problem:
    r"""Columns of a matrix of low rank, each entry of them seen with the same probability.

    .. math:: A_m = (L + s E_m) R_m + \varepsilon

    with normal L, E_m and R_m; the columns are dealt to the clients evenly. With s = 0 and no
    noise, every client's loss is zero at the span of L and heterogeneity harms no method: to see
    its harm, take s = 0.3 and noise 0.1. ``angle_sum`` is measured to the span of L.

    Args:
      num_clients: M, by which the number of columns is to be divisible.
      shape: rows d and columns T of the matrix.
      true_rank: k, the columns of L and of the basis.
      share_seen: probability with which an entry is seen; by default 6 k (d + T - k) / (d T), six
        entries for each degree of freedom.
      own_scale: s, how much the clients' column spaces differ.
      noise_scale: standard deviation of the noise on an entry.
      num_validation: further columns that a client is judged on.
      seed: what the data are drawn from.

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
    if not 0 < share_seen <= 1 or noise_scale < 0:
        raise ValueError(
            f"share_seen is {share_seen} and noise_scale {noise_scale}; pass a share above 0 and "
            "at most 1, and a scale of zero or more."
        )

    def draw(count: int) -> ClientData:
        columns = draw_columns(rng, left, count).reshape(-1, shape[0])
        columns = columns + noise_scale * rng.standard_normal(columns.shape)
        mask = rng.random(columns.shape) < share_seen
        examples = {"value": np.where(mask, columns, 0.0), "mask": mask}
        return from_rows(
            {name: values.astype(np.float32) for name, values in examples.items()},
            [count] * num_clients,
        )

    return subspace_completion(
        draw(shape[1] // num_clients),
        draw(num_validation) if num_validation else None,
        num_components=true_rank,
        solution=np.linalg.qr(common)[0],
    )
