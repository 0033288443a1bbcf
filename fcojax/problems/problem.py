"""A problem: a loss, the data of the clients, a start point and measures."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import primitives

from fcojax.arguments import validated
from fcojax.problems.client_data import ClientData
from fcojax.problems.loss_kinds import WholeBatchLoss
from fcojax.problems.losses import Loss, losses_of
from fcojax.types import Array, Count, Key, Params, PyTree
from fcojax.xla.jaxprs import bytes_of_results

_MOST_ROWS, _BLOCK_BYTES = 8192, 1 << 25  # limits of a block of population_loss


class Problem(NamedTuple):
    """A federated problem without its penalty.

    Attributes:
      loss: ``(params, examples) -> one loss per example``.
      train: training data.
      validation: validation data, or ``None``.
      init: ``(key) -> params``, a start point.
      measures: ``(params) -> dict`` of scalar measures other than the loss.
      convex: whether the loss is convex in the params; the launcher then solves for the optimum.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> problem = fcojax.problems.Problem(
      ...     loss=lambda w, rows: (w - rows["a"]) ** 2,
      ...     train=fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1]),
      ...     validation=None,
      ...     init=lambda key: jnp.array(0.0),
      ...     measures=lambda w: {"error": jnp.abs(w - 2.0)})
      >>> w = problem.init(jax.random.key(0))
      >>> problem.loss(w, problem.train.examples).tolist(), float(problem.measures(w)["error"])
      ([1.0, 9.0], 2.0)
    """

    loss: Loss
    train: ClientData
    validation: ClientData | None
    init: Callable[[Key], Params]
    measures: Callable[[Params], dict[str, Array]] = lambda params: {}
    convex: bool = True


@validated
def population_loss(
    loss: Loss, params: Params, data: ClientData, rows_at_once: Count | None = None
) -> Array:
    r"""Return F(params), the weighted mean over clients of each client's mean loss.

    .. math:: F(w) = \sum_m p_m F_m(w) / \sum_m p_m, \qquad
              F_m(w) = \tfrac{1}{n_m} \sum_{i \le n_m} f(w; \xi_{m,i})

    The rows are read in blocks, so memory does not grow with the data. On a mesh every device reads
    its own rows and sends one number.

    Args:
      loss: ``(params, examples) -> one loss per example``.
      params: the point.
      data: the clients.
      rows_at_once: rows per block; by default as many as keep each array that the loss computes
        below 32 MiB.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([1.0, 1.0, 3.0])}, [2, 1])
      >>> loss = lambda w, rows: (w - rows["a"]) ** 2
      >>> float(fcojax.problems.population_loss(loss, jnp.array(0.0), data))  # mean of 1 and 9
      5.0
    """
    if rows_at_once is None:
        rows_at_once = _affordable_rows(loss, params, data.examples)

    def share_of_this_shard(shard, params):
        return _weighted_loss_sum(loss, params, shard, rows_at_once), jnp.sum(shard.weights)

    weighted_loss, weight = sum_over_shards(share_of_this_shard, data, params)
    return weighted_loss / weight.astype(weighted_loss.dtype)


def sum_over_shards(term: Callable[..., PyTree], data: ClientData, *replicated: PyTree) -> PyTree:
    """Sum ``term(local data, *replicated)`` over devices; on one device, return the term."""
    if data.num_shards == 1:
        return term(data, *replicated)

    def on_each_device(data, *replicated):
        return jax.lax.psum(term(data.local(), *replicated), "clients")

    everywhere = jax.sharding.PartitionSpec()
    return jax.shard_map(
        on_each_device,
        mesh=data.mesh,
        in_specs=(data.shard_spec, *(everywhere for _ in replicated)),
        out_specs=everywhere,
        # JAX does not infer through a scan that the sum is the same on all devices.
        check_vma=False,
    )(data, *replicated)


def _affordable_rows(loss: Loss, params: Params, examples: PyTree) -> int:
    num_rows = jax.tree.leaves(examples)[0].shape[0]
    sizes = bytes_of_results(functools.partial(losses_of, loss), params, examples)
    return min(_MOST_ROWS, max(1, _BLOCK_BYTES * num_rows // max(1, *sizes)))


def _weighted_loss_sum(loss: Loss, params: Params, data: ClientData, rows_at_once: int) -> Array:
    if isinstance(loss, WholeBatchLoss):
        return _client_by_client(loss, params, data)
    num_rows = jax.tree.leaves(data.examples)[0].shape[0]
    rows_at_once = min(rows_at_once, num_rows)
    # The weight of a row is p_m / n_m, so the rows of all clients are summed together. Clients that
    # pad a mesh have no rows, and the rows that pad a device come after the last offset.
    sizes = jnp.maximum(jnp.diff(data.offsets), 1)
    row_weights = to_rows(data.weights / sizes.astype(data.weights.dtype), data)
    row = jnp.arange(num_rows, dtype=jnp.int32)
    row_weights = jnp.where(row < data.offsets[-1], row_weights, 0)

    def add_block(total, block):
        # The last block starts early enough to fit; the rows it repeats get weight zero.
        first = block * rows_at_once
        start = jnp.minimum(first, num_rows - rows_at_once)
        fresh = jnp.arange(rows_at_once, dtype=jnp.int32) >= first - start
        rows = jax.tree.map(
            lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, rows_at_once), data.examples
        )
        weights = jax.lax.dynamic_slice_in_dim(row_weights, start, rows_at_once)
        losses = losses_of(loss, params, rows)
        weights = jnp.where(fresh, weights, 0).astype(losses.dtype)
        return total + jnp.sum(jnp.where(weights > 0, weights * losses, 0)), None

    num_blocks = -(-num_rows // rows_at_once)
    if num_blocks > 1:  # otherwise the derivative would keep a copy of all rows
        add_block = jax.checkpoint(add_block, prevent_cse=False, policy=_keeps_no_slices)
    dtype = jax.eval_shape(loss, params, data.examples).dtype
    return jax.lax.scan(add_block, jnp.zeros((), dtype), jnp.arange(num_blocks, dtype=jnp.int32))[0]


def _keeps_no_slices(primitive: Any, *_: Any, **__: Any) -> bool:
    return primitive is not primitives.dynamic_slice_p


def to_rows(each: Array, data: ClientData) -> Array:
    """Return, for each row of a population on one device, the entry of its client in ``each``.

    Clients of equal size need no sums of sizes, which take a dozen kernels.
    """
    num_rows = jax.tree.leaves(data.examples)[0].shape[0]
    if data.min_size == data.max_size and num_rows == data.max_size * each.shape[0]:
        return jnp.repeat(each, data.max_size)
    return jnp.repeat(each, jnp.diff(data.offsets), total_repeat_length=num_rows)


def _client_by_client(loss: WholeBatchLoss, params: Params, data: ClientData) -> Array:
    """Return the weighted loss sum by a loop over clients, each with all its examples."""
    num_rows = jax.tree.leaves(data.examples)[0].shape[0]
    place = jnp.arange(data.max_size, dtype=jnp.int32)

    def add_client(total, client):
        first, end, weight = client
        # Padding repeats the client's first example, as in local steps.
        rows = jnp.minimum(jnp.where(first + place < end, first + place, first), num_rows - 1)
        examples = jax.tree.map(lambda leaf: leaf[rows], data.examples)
        real = jnp.where(first + place < end, 1.0, 0.0)
        losses = losses_of(loss, params, examples, real)
        size = jnp.maximum(end - first, 1).astype(losses.dtype)
        mean = jnp.sum(jnp.where(real > 0, losses, 0)) / size
        weight = weight.astype(losses.dtype)
        return total + jnp.where(weight > 0, weight * mean, 0), None

    dtype = jax.eval_shape(loss, params, data.examples).dtype
    clients = data.offsets[:-1], data.offsets[1:], data.weights
    return jax.lax.scan(add_client, jnp.zeros((), dtype), clients)[0]


def second_moment(data: ClientData, left: str = "x", right: str | None = None) -> np.ndarray:
    r"""Return the population mean of the outer products of two fields, which may be the same.

    .. math:: \sum_m p_m \tfrac{1}{n_m} \sum_i a_{m,i} b_{m,i}^T \Big/ \sum_m p_m

    It is computed in float64 on the host. A field with one number per row counts as vectors of
    length 1.

    Example:
      >>> from fcojax.problems.building import from_clients
      >>> data = from_clients([{"x": np.eye(2)}, {"x": np.ones((1, 2))}])
      >>> second_moment(data).tolist()
      [[0.75, 0.5], [0.5, 0.75]]
    """
    a = np.asarray(data.examples[left])
    b = np.asarray(data.examples[right or left])
    a, b = a.reshape(a.shape[0], -1), b.reshape(b.shape[0], -1)
    total = np.zeros((a.shape[1], b.shape[1]))
    weights, offsets = np.asarray(data.weights, np.float64), np.asarray(data.offsets)
    shares = weights / weights.sum() / np.diff(offsets)  # of one row of each client
    for share, start, end in zip(shares, offsets, offsets[1:], strict=False):
        mine = a[start:end].astype(np.float64)
        total += share * mine.T @ (mine if right in (None, left) else b[start:end].astype(float))
    return total
