"""Rows of mostly zeros: what is not zero and where, padded to one width.

A linear model needs of its features nothing but products ``x @ w``, so ``SparseRows`` stand where
a dense matrix stood and no loss has to know. A product reads only the weights it touches, and its
gradient adds to these alone.
"""

import dataclasses
import functools
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.problems.fields import shown
from fcojax.types import Array


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["index", "value"],
    meta_fields=["num_features"],
)
@dataclasses.dataclass(frozen=True)
class SparseRows:
    r"""A matrix whose row i has ``value[i, k]`` in the columns ``index[i, k]``.

    .. math:: (X w)_i = \sum_k v_{ik}\, w_{j_{ik}}

    A column that occurs twice in a row counts twice. Padding has the value 0, in any column. It
    takes rows x width x 8 bytes in float32, and the width is that of the fullest row: rows that
    are all about as full are what this is for. ``sparse_rows`` makes them from a matrix of scipy.

    Attributes:
      index: columns, whole numbers below ``num_features``; [rows, width].
      value: what stands there, of the same shape.
      num_features: columns of the matrix.

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

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the dense matrix."""
        return (*np.shape(self.index)[:-1], self.num_features)

    @property
    def dtype(self) -> np.dtype:
        """That of the values."""
        return self.value.dtype

    def __getitem__(self, rows: Any) -> "SparseRows":
        """Some of the rows."""
        return SparseRows(self.index[rows], self.value[rows], self.num_features)

    def __matmul__(self, weights: Array | np.ndarray) -> Array:
        """The product with a vector, or with a matrix of a column for each output."""
        weights, value = jnp.asarray(weights), jnp.asarray(self.value)
        if weights.ndim not in (1, 2) or weights.shape[0] != self.num_features:
            raise ValueError(
                f"the rows have {self.num_features} features but the weights have shape "
                f"{weights.shape}; pass one weight, or one row of weights, for each feature."
            )
        # An index out of range makes NaN, which is noticed, and not another feature's weight.
        touched = weights.at[self.index].get(mode="fill")
        if weights.ndim == 1:
            return jnp.sum(value * touched, axis=-1)
        return jnp.sum(value[..., None] * touched, axis=-2)

    def to_dense(self) -> np.ndarray:
        """The matrix, on the host."""
        index, value = np.asarray(self.index), np.asarray(self.value)
        dense = np.zeros(self.shape, value.dtype)
        np.add.at(dense, (np.arange(index.shape[0])[:, None], index), value)
        return dense


class Compressed(Protocol):
    """A matrix row by row, as ``scipy.sparse.csr_array`` has it."""

    shape: Any
    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray


def sparse_rows(matrix: Compressed) -> SparseRows:
    """Padded rows, on the host, from a matrix in compressed rows (``scipy.sparse.csr_array``).

    Example:
      >>> import scipy.sparse
      >>> x = sparse_rows(scipy.sparse.csr_array([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]]))
      >>> x.index.tolist(), x.value.tolist()
      ([[1, 2], [0, 0]], [[1.0, 2.0], [3.0, 0.0]])
    """
    if not all(hasattr(matrix, name) for name in ("indptr", "indices", "data", "shape")):
        raise ValueError(
            f"the matrix is {shown(matrix)}; pass one in compressed rows, as "
            "scipy.sparse.csr_array makes it."
        )
    num_rows, num_features = (int(size) for size in matrix.shape)
    columns, starts = np.asarray(matrix.indices), np.asarray(matrix.indptr).astype(np.int64)
    if columns.size and not 0 <= columns.min() <= columns.max() < num_features:
        raise ValueError(
            f"there are columns from {columns.min()} to {columns.max()} but {num_features} "
            "features; columns count from 0."
        )
    if num_features > np.iinfo(np.int32).max:
        raise ValueError(
            f"there are {num_features} features; at most {np.iinfo(np.int32).max} can be numbered."
        )
    counts = np.diff(starts)
    width = max(1, int(counts.max(initial=0)))
    row = np.repeat(np.arange(num_rows), counts)
    place = np.arange(row.size) - np.repeat(starts[:-1] - starts[0], counts)
    index = np.zeros((num_rows, width), np.int32)
    value = np.zeros((num_rows, width), np.asarray(matrix.data).dtype)
    stored = slice(starts[0], starts[-1])
    index[row, place], value[row, place] = columns[stored], np.asarray(matrix.data)[stored]
    return SparseRows(index, value, num_features)
