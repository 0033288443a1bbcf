"""Sparse feature matrices: the nonzero entries of each row and their columns, padded to one width.

A linear model uses its features only in products ``x @ w``, so ``SparseRows`` replace a dense
matrix without a change of the loss. A product reads, and its gradient writes, only the weights of
the columns that occur.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fcojax.arguments import checked_value, validated
from fcojax.types import Array, Count


@dataclasses.dataclass(frozen=True)
class SparseRows:
    r"""A matrix whose row i has ``value[i, k]`` in the columns ``index[i, k]``.

    .. math:: (X w)_i = \sum_k v_{ik}\, w_{j_{ik}}

    A column that occurs twice in a row counts twice. Padding has the value 0, in any column. The
    memory is rows x width x 8 bytes in float32, where the width is the largest number of nonzero
    entries of a row: this suits rows of similar density. ``sparse_rows`` converts from SciPy.

    Columns outside of 0, ..., num_features - 1 are refused. Inside of a JAX transformation, where
    their values are unknown, products of rows with such a column are NaN.

    Attributes:
      index: columns, integers below ``num_features``, of shape [rows, width].
      value: entries in these columns, of the same shape.
      num_features: number of columns of the matrix.

    Example:
      >>> x = SparseRows(jnp.array([[0, 4], [2, 0]]), jnp.array([[1.0, 2.0], [3.0, 0.0]]), 5)
      >>> (x @ jnp.arange(5.0)).tolist(), x.shape
      ([8.0, 6.0], (2, 5))
      >>> jax.grad(lambda w: jnp.sum(x @ w))(jnp.zeros(5)).tolist()
      [1.0, 0.0, 3.0, 0.0, 2.0]
    """

    index: Array | np.ndarray
    value: Array | np.ndarray
    num_features: int

    def __post_init__(self):
        for name in ("index", "value"):
            checked_value(name, getattr(self, name), Array)
        shapes = np.shape(self.index), np.shape(self.value)
        checked_value("num_features", self.num_features, Count)
        whole = jnp.issubdtype(jnp.result_type(self.index), jnp.integer)
        if not whole or not shapes[0] or shapes[0] != shapes[1]:
            raise ValueError(
                f"index has dtype {jnp.result_type(self.index)} and shape {shapes[0]}, and value "
                f"has shape {shapes[1]}; pass integers, and values of the same shape [rows, width]."
            )
        if not isinstance(self.index, Tracer):
            _check_columns(np.asarray(self.index), self.num_features)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the dense matrix."""
        return (*np.shape(self.index)[:-1], self.num_features)

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the values."""
        return self.value.dtype

    def __getitem__(self, rows: Any) -> "SparseRows":
        """Return some of the rows."""
        return unchecked(self.index[rows], self.value[rows], self.num_features)

    def __matmul__(self, weights: Array | np.ndarray) -> Array:
        """Return the product with a vector or a matrix."""
        weights, value = jnp.asarray(weights), jnp.asarray(self.value)
        if weights.ndim not in (1, 2) or weights.shape[0] != self.num_features:
            raise ValueError(
                f"the rows have {self.num_features} features but the weights have shape "
                f"{weights.shape}; pass one weight, or one row of weights, for each feature."
            )
        # A column out of range gives NaN, not the weight of another feature.
        touched = weights.at[self.index].get(mode="fill", wrap_negative_indices=False)
        if weights.ndim == 1:
            return jnp.sum(value * touched, axis=-1)
        return jnp.sum(value[..., None] * touched, axis=-2)

    def to_dense(self) -> np.ndarray:
        """Return the dense matrix, on the host."""
        index, value = np.asarray(self.index), np.asarray(self.value)
        dense = np.zeros(self.shape, value.dtype)
        np.add.at(dense, (np.arange(index.shape[0])[:, None], index), value)
        return dense


def unchecked(index: Any, value: Any, num_features: int) -> SparseRows:
    """Build sparse rows from parts of other sparse rows, without another check of the columns."""
    rows = object.__new__(SparseRows)
    vars(rows).update(index=index, value=value, num_features=num_features)
    return rows


jax.tree_util.register_pytree_with_keys(
    SparseRows,
    lambda rows: (
        [(jax.tree_util.GetAttrKey(name), getattr(rows, name)) for name in ("index", "value")],
        rows.num_features,
    ),
    lambda num_features, parts: unchecked(*parts, num_features=num_features),
    lambda rows: ((rows.index, rows.value), rows.num_features),
)


def _check_columns(columns: np.ndarray, num_features: int) -> None:
    if columns.size and not 0 <= columns.min() <= columns.max() < num_features:
        raise ValueError(
            f"there are columns from {columns.min()} to {columns.max()} for {num_features} "
            f"features; pass columns from 0 to {num_features - 1}."
        )


@validated
def sparse_rows(matrix: Any) -> SparseRows:
    """Convert a matrix in compressed rows to padded rows, on the host.

    Args:
      matrix: a ``scipy.sparse.csr_array``, or an object with its ``shape``, ``indptr``,
        ``indices`` and ``data``.

    Example:
      >>> import scipy.sparse
      >>> x = sparse_rows(scipy.sparse.csr_array([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]]))
      >>> x.index.tolist(), x.value.tolist()
      ([[1, 2], [0, 0]], [[1.0, 2.0], [3.0, 0.0]])
    """
    num_rows, num_features = (int(size) for size in matrix.shape)
    columns, starts = np.asarray(matrix.indices), np.asarray(matrix.indptr).astype(np.int64)
    # Columns are stored in int32.
    _check_columns(columns, min(num_features, np.iinfo(np.int32).max))
    counts = np.diff(starts)
    width = max(1, int(counts.max(initial=0)))
    row = np.repeat(np.arange(num_rows), counts)
    place = np.arange(row.size) - np.repeat(starts[:-1] - starts[0], counts)
    index = np.zeros((num_rows, width), np.int32)
    value = np.zeros((num_rows, width), np.asarray(matrix.data).dtype)
    stored = slice(starts[0], starts[-1])
    index[row, place], value[row, place] = columns[stored], np.asarray(matrix.data)[stored]
    return unchecked(index, value, num_features)
