"""Sparse rows against the dense matrix that they represent."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import fcojax
from fcojax import datasets, problems
from fcojax.problems import SparseRows, sparse_rows
from fcojax.problems.least_squares import half_squared_error
from fcojax.problems.linear_models import (
    half_square,
    huber_loss,
    poisson_loss,
    quantile_loss,
    squared_hinge_loss,
)
from fcojax.problems.logistic import logistic_loss
from fcojax.problems.softmax import cross_entropy


def drawn(num_rows=12, num_features=9, width=4):
    """Return rows with a repeated column, an empty row, and padding."""
    rng = np.random.default_rng(0)
    index = rng.integers(num_features, size=(num_rows, width)).astype(np.int32)
    value = rng.standard_normal((num_rows, width))
    index[0, 1] = index[0, 0]
    index[1:4, 2:], value[1:4, 2:] = 0, 0
    index[5], value[5] = 0, 0
    return SparseRows(index, value, num_features)


def both():
    """Return the same population with sparse and with dense features."""
    x = drawn()
    rng = np.random.default_rng(1)
    y = rng.integers(2, size=12).astype(float)
    return [fcojax.from_rows({"x": x, "y": y}, [5, 4, 3]) for x in (x, x.to_dense())]


def test_products_and_their_gradients_are_those_of_the_matrix():
    x, rng = drawn(), np.random.default_rng(2)
    dense = np.zeros(x.shape)
    for row in range(x.shape[0]):
        for column, value in zip(x.index[row], x.value[row], strict=True):
            dense[row, column] += value
    np.testing.assert_array_equal(x.to_dense(), dense)
    for weights in (rng.standard_normal(9), rng.standard_normal((9, 2))):
        np.testing.assert_allclose(x @ weights, dense @ weights, atol=1e-14)
        each = jax.vmap(lambda row, w: row @ w, in_axes=(0, None))(
            jax.tree.map(jnp.asarray, x), weights
        )
        np.testing.assert_allclose(each, dense @ weights, atol=1e-14)
        slope = jax.grad(lambda w: jnp.sum(jnp.sin(x @ w)))(weights)
        np.testing.assert_allclose(slope, dense.T @ np.cos(dense @ weights), atol=1e-13)


def test_conversion_from_scipy_and_refusals():
    dense = drawn().to_dense()
    x = sparse_rows(scipy.sparse.csr_array(dense))
    np.testing.assert_array_equal(x.to_dense(), dense)
    assert x.index.dtype == np.int32 and x.index.shape[1] == np.count_nonzero(dense, axis=1).max()
    np.testing.assert_array_equal(x[2:4].to_dense(), dense[2:4])
    some = scipy.sparse.csr_array((3, 2))  # an empty row
    np.testing.assert_array_equal(sparse_rows(some).to_dense(), np.zeros((3, 2)))
    some.indices, some.data, some.indptr = np.array([2]), np.ones(1), np.array([0, 1, 1, 1])
    with pytest.raises(ValueError, match="columns from 2 to 2 for 2 features"):
        sparse_rows(some)
    with pytest.raises(ValueError, match="9 features"):
        x @ jnp.zeros(8)


@pytest.mark.parametrize("column", [-1, 9])
def test_a_column_out_of_range_is_refused_or_not_a_number(column):
    """If its value is known it is refused; when traced it gives NaN instead of another weight."""
    index = np.array([[0, 3], [2, column]])
    for known in (index, jnp.asarray(index)):
        with pytest.raises(ValueError, match="pass columns from 0 to 8"):
            SparseRows(known, np.ones((2, 2)), 9)

    def product(index):
        return SparseRows(index, jnp.ones((2, 2)), 9) @ jnp.ones(9)

    np.testing.assert_array_equal(jax.jit(product)(index), [2.0, np.nan])


LINEAR = {
    "half_square": half_square,
    "logistic": logistic_loss,
    "poisson": poisson_loss,
    "huber": huber_loss(1.0),
    "quantile": quantile_loss(0.3, 0.1),
    "squared_hinge": squared_hinge_loss,
}


def test_every_linear_loss_accepts_sparse_rows():
    rng = np.random.default_rng(3)
    w, kernels = rng.standard_normal(9), rng.standard_normal((9, 3))
    params = {"kernel": jnp.asarray(w), "bias": jnp.array(0.3)}
    cases = {name: (loss, params) for name, loss in LINEAR.items()}
    cases |= {"least squares": (half_squared_error, jnp.asarray(w))}
    sparse, dense = (data.examples for data in both())
    found, expected = jax.jit(
        lambda sparse, dense: [
            {name: loss(point, rows) for name, (loss, point) in cases.items()}
            for rows in (sparse, dense)
        ]
    )(sparse, dense)
    several = {"kernel": jnp.asarray(kernels), "bias": jnp.zeros(3)}
    for rows, losses in ((sparse, found), (dense, expected)):
        losses["softmax"] = cross_entropy(several, rows | {"y": rows["y"].astype(int)})
    chex.assert_trees_all_close(found, expected, rtol=1e-7, atol=1e-12)


def test_problems_start_as_on_dense_features():
    sparse, dense = both()
    for make in (problems.linear, problems.logistic, problems.least_squares):
        shapes = [jax.eval_shape(make(data).init, jax.random.key(0)) for data in (sparse, dense)]
        assert shapes[0] == shapes[1]
    assert problems.least_squares(sparse).measures(jnp.zeros(9)) == {}


def test_populations_of_sparse_rows_are_selected_partitioned_and_saved(tmp_path):
    data, dense = both()
    x = dense.examples["x"]
    some = data.select([0, 2])
    np.testing.assert_array_equal(some.examples["x"].to_dense(), np.concatenate([x[:5], x[9:]]))
    fcojax.save_clients(data, tmp_path / "clients")
    again = fcojax.open_clients(tmp_path / "clients", verify=True)
    assert isinstance(again.examples["x"].index, np.ndarray)
    np.testing.assert_array_equal(again.examples["x"].to_dense(), x)
    pooled = datasets.Pooled({"x": drawn(), "y": np.arange(12)}, np.array(["b", "a", "c"] * 4))
    split = datasets.by_client(pooled)
    np.testing.assert_array_equal(split.examples["x"].to_dense()[:4], drawn().to_dense()[1::3])
    shares = problems.partition.iid(12, 3, seed=0).apply(pooled.examples)
    order = np.asarray(shares.examples["y"])
    np.testing.assert_array_equal(shares.examples["x"].to_dense(), drawn().to_dense()[order])
