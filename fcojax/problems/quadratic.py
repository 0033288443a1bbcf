r"""Clients with quadratic losses, diagonalised so that the prox of a loss is a scaling."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fcojax.arguments import validated
from fcojax.problems.building import from_rows
from fcojax.problems.client_data import ClientData
from fcojax.problems.clients import require_one_device
from fcojax.problems.losses import Loss
from fcojax.types import Array, Params, PyTree

# Distances from zero at which gradients are compared: a loss such as Huber's is quadratic near
# zero and not far away.
_PROBES = (1.0, 30.0, 1000.0)
# Relative to the terms of the gradient at a probe; both sides use the same rounded data.
_TOLERANCE = 1e-8


class Factored(NamedTuple):
    r"""One client's mean loss, :math:`\tfrac12 \sum_j h_j z_j^2 - \sum_j b_j z_j + c`.

    The coordinates are :math:`z = Q^T w`, with w the concatenated leaves of the parameters.

    Attributes:
      axes: Q, the eigenvectors of the Hessian in its columns.
      curvatures: h, its eigenvalues.
      slopes: b, the linear term in the same coordinates.
      constant: c.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.problems import factored_loss
      >>> client = Factored(
      ...     axes=jnp.eye(2)[None], curvatures=jnp.array([[1.0, 4.0]]),
      ...     slopes=jnp.array([[1.0, 0.0]]), constant=jnp.array([3.0]))
      >>> factored_loss(jnp.array([2.0, 1.0]), client).tolist()  # (4 + 4) / 2 - 2 + 3
      [5.0]
    """

    axes: Array
    curvatures: Array
    slopes: Array
    constant: Array


@validated
def factored_loss(params: Params, rows: Factored) -> Array:
    """Return the loss of clients made by ``factored``: one number per row, a client's mean loss.

    Args:
      params: the point.
      rows: the eigendecompositions, one row per client.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> from fcojax.problems import factored, factored_loss
      >>> loss = lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2
      >>> data = fcojax.from_rows({"x": np.diag([1.0, 2.0]), "y": np.ones(2)}, [2])
      >>> w = jnp.array([1.0, 1.0])
      >>> clients = factored(loss, data, w)
      >>> round(float(factored_loss(w, clients.examples)[0]), 5)  # the mean of 0 and 1
      0.5
    """
    z = jnp.einsum("nij,i->nj", rows.axes, ravel_pytree(params)[0])
    return jnp.sum((0.5 * rows.curvatures * z - rows.slopes) * z, axis=1) + rows.constant


@validated
def factored(loss: Loss, data: ClientData, params: Params) -> ClientData:
    r"""Replace each client's examples by one row, the eigendecomposition of its mean loss.

    With ``factored_loss`` this is the same problem up to rounding: same objective, gradients and
    weights. The prox of a client's loss with step eta is then a scaling by
    :math:`1 / (1 + \eta h_j)` along its axes, so one factorisation serves every eta.

    Memory per client is the square of the number of parameters. The factorisation is computed in
    float64 and stored in the dtype of ``params``.

    Args:
      loss: one loss per example, quadratic in the parameters for every example.
      data: the clients, on one device.
      params: any point, for its structure and dtype.

    Raises:
      ValueError: if a client's gradient is not an affine function of the parameters.

    Example:
      >>> from fcojax import from_clients
      >>> loss = lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2
      >>> data = from_clients([{"x": np.diag([1.0, 2.0]), "y": np.ones(2)}])
      >>> factored(loss, data, jnp.zeros(2)).examples.curvatures.tolist()
      [[1.0, 4.0]]
    """
    require_one_device(data)
    dtype = ravel_pytree(params)[0].dtype
    with jax.enable_x64(True):
        wide, (zero, unravel) = in_float64(data), ravel_pytree(in_float64(params))
        zero = jnp.zeros_like(zero)
        directions = np.random.default_rng(0).standard_normal((len(_PROBES), zero.size))
        probes = np.array(_PROBES)[:, None] * directions
        expand = jax.jit(functools.partial(_expansion, loss, unravel))
        value, gradient, hessian, probed = map(np.asarray, expand(wide, zero, probes))
    _check_quadratic(gradient, hessian, probes, probed)
    curvatures, axes = np.linalg.eigh((hessian + hessian.swapaxes(1, 2)) / 2)
    slopes = -np.einsum("mij,mi->mj", axes, gradient)
    rows = Factored(*(jnp.asarray(x.astype(dtype)) for x in (axes, curvatures, slopes, value)))
    return from_rows(rows, np.ones(data.num_clients, int), np.asarray(data.weights))


def _expansion(loss, unravel, data: ClientData, zero, probes):
    """Value, gradient and Hessian at zero, and gradients at the probes, of every client's loss."""

    def one_client(bounds):
        first, size = bounds
        place = jnp.arange(data.max_size, dtype=jnp.int32)
        own = place < size
        # Padding repeats the client's first row, so that it is finite.
        rows = jax.tree.map(lambda leaf: leaf[first + jnp.where(own, place, 0)], data.examples)

        def mean(w):
            return jnp.mean(loss(unravel(w), rows), where=own)

        value, gradient = jax.value_and_grad(mean)(zero)
        return value, gradient, jax.hessian(mean)(zero), jax.lax.map(jax.grad(mean), probes)

    return jax.lax.map(one_client, (data.offsets[:-1], jnp.diff(data.offsets)))


def _check_quadratic(gradient, hessian, probes, probed) -> None:
    """Raise ``ValueError`` if a gradient differs from the one that the Hessian at zero implies."""
    expected = gradient[:, None] + np.einsum("mij,pj->mpi", hessian, probes)
    terms = np.abs(gradient)[:, None] + np.einsum("mij,pj->mpi", np.abs(hessian), np.abs(probes))
    scale = np.maximum(terms, np.abs(probed)).max(axis=2)
    with np.errstate(invalid="ignore"):
        off = np.abs(probed - expected).max(axis=2) / np.maximum(scale, np.finfo(float).tiny)
    worst = np.where(np.isnan(off), np.inf, off).max(axis=1)
    if worst.max() > _TOLERANCE:
        client = int(worst.argmax())
        raise ValueError(
            f"the loss is not quadratic: the Hessian of client {client} changes between points, "
            f"and its gradient has relative error {worst[client]:.2g} where rounding allows "
            f"{_TOLERANCE:g}; use a solver that takes gradient steps, such as gd()."
        )


def in_float64(x: PyTree) -> PyTree:
    """Return arrays whose floating-point ones are in double precision."""

    def widen(leaf):
        leaf = jnp.asarray(leaf)
        return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(widen, x)
