r"""Averaged coordinate descent, the baseline of the study, as an algorithm of the engine.

Each client runs cyclic coordinate descent on its own lasso from the server's model, and the server
averages the results. Friedman, Hastie and Tibshirani, "Regularization paths for
generalized linear models via coordinate descent", J. Stat. Software 2010, covariance updates.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax.algorithms import Algorithm, ClientResult, takes
from fcojax.types import Array, Scalar

_MOST_IN_BLOCK = 60  # so that a block's moments fit into a core's first-level cache


class Strength(NamedTuple):
    """``penalty_scale`` is lambda."""

    penalty_scale: Scalar = 0.1


@takes(Strength)
def averaged_coordinate_descent() -> Algorithm:
    r"""Average the models after K sweeps of coordinate descent on every client's own lasso.

    A client has one example, its moments: ``gram`` :math:`G = X^T X / n` and ``cross``
    :math:`c = X^T y / n`. In each of K sweeps it updates the coordinates in turn,

    .. math:: w_j \leftarrow \mathrm{soft}(G_{jj} w_j - (G w - c)_j, \lambda) / G_{jj}

    and sends the difference; the weighted mean is the server's step. No diagonal entry of G may be
    zero. With one client this is coordinate descent.

    Example:
      >>> import fcojax, numpy as np
      >>> moments = {"gram": np.diag([1.0, 2.0])[None], "cross": np.array([[3.0, 0.5]])}
      >>> data = fcojax.from_rows(moments, [1])
      >>> algorithm = averaged_coordinate_descent()
      >>> w, _ = fcojax.run(
      ...     algorithm, algorithm.hparams_type(penalty_scale=1.0), jnp.zeros(2), data,
      ...     jax.random.key(0), fcojax.local_steps(1), num_rounds=1)
      >>> w.tolist()
      [2.0, 0.0]
    """

    def client_update(hparams, message, client, local, key):
        rows = local.full().examples
        slope = rows["gram"][0] @ message - rows["cross"][0]

        def sweep(point, batch):
            return _sweep(batch.examples["gram"][0], point, hparams.penalty_scale)

        end, _ = local.scan(sweep, (message, slope))
        return ClientResult(client, end - message, {})

    return Algorithm(
        init=lambda hparams, params: (params, ()),
        broadcast=lambda hparams, server: server,
        client_update=client_update,
        server_update=lambda hparams, server, mean_upload, fraction, key: server + mean_upload,
        model=lambda hparams, server: server,
    )


@functools.partial(jax.jit, static_argnames="max_sweeps")
def lasso_path(
    gram: Array,
    cross: Array,
    energy: Scalar,
    strengths: Array,
    *,
    tolerance: Scalar,
    max_sweeps: int,
) -> Array:
    r"""Return the lasso solution for each strength, by coordinate descent with warm starts.

    Args:
      gram: :math:`X^T X / n`.
      cross: :math:`X^T y / n`.
      energy: :math:`y^T y / n`.
      strengths: lambda, in the order of the path.
      tolerance: a solution is accepted once its duality gap is at most this share of ``energy``.
      max_sweeps: the largest number of passes over the coordinates for one strength.

    Example:
      >>> strengths = jnp.array([2.0, 1.0])
      >>> lasso_path(jnp.diag(jnp.array([1.0, 2.0])), jnp.array([3.0, 0.5]), 9.5, strengths,
      ...            tolerance=1e-6, max_sweeps=10).tolist()
      [[1.0, 0.0], [2.0, 0.0]]
    """

    def gap(point, strength):
        w, slope = point
        square = jnp.vdot(slope - cross, w) + energy
        shrink = jnp.minimum(1.0, strength / jnp.max(jnp.abs(slope)))
        dual = shrink * (energy - jnp.vdot(cross, w)) - shrink**2 * square / 2
        return square / 2 + strength * jnp.sum(jnp.abs(w)) - dual

    def one_strength(w, strength):
        def unfinished(state):
            sweeps, point = state
            return (sweeps < max_sweeps) & (gap(point, strength) > tolerance * energy)

        def advance(state):
            sweeps, point = state
            return sweeps + 1, _sweep(gram, point, strength)

        _, (w, _) = jax.lax.while_loop(unfinished, advance, (0, (w, gram @ w - cross)))
        return w, w

    return jax.lax.scan(one_strength, jnp.zeros_like(cross), strengths)[1]


def _sweep(gram: Array, point: tuple[Array, Array], scale: Scalar) -> tuple[Array, Array]:
    """Return w and its gradient ``gram @ w - cross`` after one pass over the coordinates.

    Within a block only the block's part of the gradient is updated; the rest follows by one product
    after the block. The steps are the same as in a loop over single coordinates.
    """
    dim = gram.shape[0]
    size = next(size for size in range(_MOST_IN_BLOCK, 0, -1) if dim % size == 0)
    blocks = gram.reshape(dim // size, size, dim)

    def one_block(index, point):
        first, rows = index * size, blocks[index]
        square = jax.lax.dynamic_slice_in_dim(rows, first, size, axis=1)
        before, own = (jax.lax.dynamic_slice_in_dim(x, first, size) for x in point)

        def one_coordinate(own, at):
            j, row, curvature, value = at
            target = curvature * value - own[j]
            new = jnp.sign(target) * jax.nn.relu(jnp.abs(target) - scale) / curvature
            return own + row * (new - value), new

        each = jnp.arange(size, dtype=jnp.int32), square, jnp.diagonal(square), before
        _, after = jax.lax.scan(one_coordinate, own, each)
        w, slope = point
        w = jax.lax.dynamic_update_slice_in_dim(w, after, first, axis=0)
        return w, slope + (after - before) @ rows

    return jax.lax.fori_loop(0, dim // size, one_block, point)
