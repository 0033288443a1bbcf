"""Inner products of the rows of a client, which full-batch steps of linear models need.

``fcojax.algorithms.linear_steps`` takes such steps without passing the features in each of them.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fcojax.arguments import validated
from fcojax.problems.client_data import ClientData
from fcojax.types import Array, PyTree

# Features per row of the largest client from which products are kept: they take at most 1 / 16 of
# the memory of the features.
_FEATURES_PER_ROW = 16
# Entries of the largest client. Passing fewer takes no longer than the scalars of a step.
_MIN_ENTRIES = 1 << 14


@validated
def with_products(data: ClientData) -> ClientData:
    """Return the population with the products of the rows ``x`` of each client, where they pay.

    That is for clients with few rows of many features, dense and on one device. The products are
    computed once.

    Args:
      data: the clients, with features ``x`` of shape ``[rows, features]``.

    Example:
      >>> import fcojax
      >>> wide = fcojax.from_rows({"x": np.ones((3, 20_000)), "y": np.zeros(3)}, [2, 1])
      >>> with_products(wide).products.tolist()
      [[20000.0, 20000.0], [20000.0, 20000.0], [20000.0, 0.0]]
    """
    x, size = data.examples["x"], data.max_size
    if data.mesh is not None or data.held is not None or not _pay(x, size):
        return data
    offsets = np.asarray(data.offsets)
    # The slices of the last clients would run past the end: start early.
    starts = np.minimum(offsets[:-1], len(x) - size)
    blocks = np.asarray(_products(x, starts, size))
    client = np.repeat(np.arange(data.num_clients), np.diff(offsets))[:, None]
    row = np.arange(len(x))[:, None] - starts[client]
    # Columns are counted from the client's first row.
    column = np.arange(size) + offsets[client] - starts[client]
    real = offsets[client] + np.arange(size) < offsets[client + 1]
    products = np.where(real, blocks[client, row, np.minimum(column, size - 1)], 0)
    return data.with_products(jax.device_put(products))


def _pay(x: PyTree, size: int) -> bool:
    """Return whether products of these features are worth their memory."""
    if isinstance(x, Tracer) or not isinstance(x, jax.Array):
        return False
    dim, floats = x.shape[1], x.dtype in (jnp.float32, jnp.float64)
    return floats and dim >= _FEATURES_PER_ROW * size and dim * size >= _MIN_ENTRIES


@jax.jit(static_argnames="size")
def _products(x: Array, starts: Array, size: int) -> Array:
    """Return the products of ``size`` rows from each start, client by client.

    Not with numpy: on a busy machine the threads of its BLAS take a hundred times as long.
    """

    def of_client(start):
        rows = jax.lax.dynamic_slice_in_dim(x, start, size)
        return jnp.matmul(rows, rows.T, precision=jax.lax.Precision.HIGHEST)

    return jax.lax.map(of_client, starts)
