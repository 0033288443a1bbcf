r"""Second moments of a population, from which F of least squares is computed without all rows.

.. math:: F(w) = \tfrac12 w^T G w - c^T w + e, \qquad
          G = \sum_i \omega_i x_i x_i^T, \quad c = \sum_i \omega_i y_i x_i, \quad
          e = \tfrac12 \sum_i \omega_i y_i^2

with :math:`\omega_i` the weight of example i in the population.
"""

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fcojax import ClientData
from fcojax.extend import memoised
from fcojax.problems import LinearLoss, Problem, SparseRows
from fcojax.problems.least_squares import half_squared_error
from fcojax.problems.linear_models import half_square
from fcojax.problems.losses import Loss
from fcojax.types import Array, Params

_SQUARES = (half_squared_error, half_square)
_BLOCKS = 4  # blocks of a symmetric product along each axis
_PIECE = 1024  # rows transposed at a time, so that they stay in the cache


class SecondMoments(NamedTuple):
    """The moments G, c and e as one row: each has a leading axis of one.

    Attributes:
      gram: G.
      cross: c.
      constant: e.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_rows({"x": np.eye(2), "y": np.array([1.0, 3.0])}, [1, 1])
      >>> problem, at = on_moments(fcojax.problems.least_squares(data)), jnp.array([0.0, 1.0])
      >>> [round(float(fcojax.problems.population_loss(problem.loss, at, clients)), 5)
      ...  for clients in (data, summary()(data))]
      [1.25, 1.25]
    """

    gram: Array
    cross: Array
    constant: Array

    def loss(self, params: Params) -> Array:
        """Return F, with the parameters as one vector."""
        w, _ = ravel_pytree(params)
        return (_quadratic(w, self.gram[0], self.cross[0]) + self.constant[0])[None]


def on_moments(problem: Problem) -> Problem:
    """Return the same problem; squared errors of a linear model also take ``SecondMoments``."""
    loss = problem.loss
    if not isinstance(loss, LinearLoss) or loss.function not in _SQUARES:
        return problem
    return problem._replace(loss=LinearLoss(_of_rows_or_moments(loss.function), loss.ridge))


def summary_of(problem: Problem) -> Callable[[ClientData], ClientData] | None:
    """Return the ``summary`` of a problem from ``on_moments``; ``None`` if there is none."""
    function = getattr(problem.loss, "function", None)
    found = [square for square in _SQUARES if function is _of_rows_or_moments(square)]
    dense = found and not isinstance(problem.train.examples["x"], SparseRows)
    return summary(bias=found[0] is half_square) if dense else None


@memoised
def _of_rows_or_moments(square: Loss) -> Loss:
    def either(params, rows, ridge=0.0):
        if not isinstance(rows, SecondMoments):
            return square(params, rows, **({"ridge": ridge} if ridge else {}))
        losses = rows.loss(params)
        return losses + ridge / 2 * jnp.sum(params**2) if ridge else losses

    return either


@memoised
def summary(*, bias: bool = False) -> Callable[[ClientData], ClientData]:
    """Return the ``summary`` of a least-squares problem on the fields ``x`` and ``y``.

    Its one client has ``SecondMoments`` as its example, on which losses evaluate ``rows.loss``.

    Args:
      bias: whether the parameters are ``{"bias": ..., "kernel": ...}`` instead of one vector.
    """
    return functools.partial(_one_client, bias=bias)


def _one_client(data: ClientData, bias: bool) -> ClientData:
    x, y = data.examples["x"], data.examples["y"]
    floats = [a.dtype for a in (x, y) if jnp.issubdtype(a.dtype, jnp.floating)]
    dtype = jnp.promote_types(floats[0], floats[-1]) if floats else jnp.result_type(float)
    roots = jnp.sqrt(row_weights(data)).astype(dtype)

    def moments(x, y, roots):
        y = y.astype(dtype) * roots
        # Make the columns contiguous: products of long rows are twice as fast.
        columns = jax.lax.optimization_barrier((roots[:, None] * x.astype(dtype)).T)
        gram, cross = _products_of_rows(columns), columns @ y
        if bias:
            mean, one = columns @ roots, roots @ roots
            gram = jnp.block([[one[None, None], mean[None]], [mean[:, None], gram]])
            cross = jnp.concatenate([(roots @ y)[None], cross])
        return SecondMoments(gram, cross, 0.5 * (y @ y))

    row = _summed_over_pieces(moments, (x, y, roots))
    row = jax.tree.map(lambda leaf: leaf[None], row)
    offsets = jnp.arange(2, dtype=jnp.int32)
    return ClientData(row, offsets, jnp.ones(1, data.weights.dtype), 1, 1, 1, (1,))


def _summed_over_pieces(function, rows: tuple[Array, ...]):
    """Evaluate ``function(*rows)``, a sum over rows, on pieces of the rows."""
    num_rows = rows[0].shape[0]
    piece = min(_PIECE, num_rows)
    first = num_rows % piece or piece

    def value(start, size):
        return function(*(jax.lax.dynamic_slice_in_dim(a, start, size) for a in rows))

    def add(number, total):
        return jax.tree.map(jnp.add, total, value(first + number * piece, piece))

    return jax.lax.fori_loop(0, (num_rows - first) // piece, add, value(0, first))


def _products_of_rows(a: Array) -> Array:
    """Return ``a @ a.T``, computing only the blocks on and above the diagonal."""
    bounds = [a.shape[0] * i // _BLOCKS for i in range(_BLOCKS + 1)]
    parts = [a[start:end] for start, end in itertools.pairwise(bounds)]
    above = {(i, j): parts[i] @ parts[j].T for i in range(_BLOCKS) for j in range(i, _BLOCKS)}
    return jnp.block(
        [[above[i, j] if i <= j else above[j, i].T for j in range(_BLOCKS)] for i in range(_BLOCKS)]
    )


@jax.custom_jvp
def _quadratic(w: Array, gram: Array, cross: Array) -> Array:
    return 0.5 * w @ _product(gram, w) - cross @ w


@_quadratic.defjvp
def _quadratic_jvp(primals, tangents):
    """Value and derivative with one product: the gradient of a symmetric form would take two."""
    w, gram, cross = primals
    image = _product(gram, w)
    return 0.5 * w @ image - cross @ w, (image - cross) @ tangents[0]


def _product(gram: Array, w: Array) -> Array:
    """Return ``gram @ w`` of a symmetric matrix, reading only the rows where w is nonzero.

    The derivative reads the rows where the tangent is nonzero, so JAX must know that the product is
    linear in w. JAX 0.10 drops custom rules inside ``grad`` of a scan, and 0.12 cannot lower
    ``linear_call``. ``custom_linear_solve`` works in both: its ``solve`` is the product, and its
    matrix, needed only for derivatives with respect to gram, is a placeholder. So gram has no
    derivative.
    """

    def solve(_, side):
        return _sum_of_rows(jax.lax.stop_gradient(gram), side)

    return jax.lax.custom_linear_solve(lambda x: x, w, solve, symmetric=True)


def _sum_of_rows(gram: Array, w: Array) -> Array:
    count = jnp.sum(w != 0, dtype=jnp.int32)

    def row_by_row():
        (nonzero,) = jnp.nonzero(w, size=w.size, fill_value=0)

        def add_row(k, total):
            return total + w[nonzero[k]] * gram[nonzero[k]]

        return jax.lax.fori_loop(0, count, add_row, jnp.zeros_like(w))

    return jax.lax.cond(2 * count < w.size, row_by_row, lambda: gram @ w)


def row_weights(data: ClientData) -> Array:
    """Return the weight of each row in F."""
    sizes = jnp.diff(data.offsets)
    each = data.weights / jnp.sum(data.weights) / sizes.astype(data.weights.dtype)
    num_rows = jax.tree.leaves(data.examples)[0].shape[0]
    weights = jnp.repeat(each, sizes, total_repeat_length=num_rows)
    # Rows behind the last client's are padding.
    return jnp.where(jnp.arange(num_rows, dtype=jnp.int32) < data.offsets[-1], weights, 0)
