"""Cross-validation folds as weights of clients and rows, with equal shapes, so that they vmap."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import ClientData
from fcojax.extend import memoised, validated
from fcojax.problems import WholeBatchLoss
from fcojax.problems.losses import Loss
from fcojax.types import Array, Fraction, Key, Numbers, PyTree

_Several = Annotated[int, Numbers("a whole number of at least 2", lambda count: count >= 2, True)]


class Part(NamedTuple):
    """The training or the held-out part of every fold.

    Attributes:
      clients: [folds, clients], the clients' weights, 0 outside the part.
      rows: [folds, rows], weights, scaled so that the weighted mean over all rows of a client is
        the mean over its rows in the part; ``None`` if clients are not split.
    """

    clients: Array
    rows: Array | None


class Folds(NamedTuple):
    """Folds of a population: the part that models are fitted to, and the part that is held out.

    Example:
      >>> import fcojax, fcojax_sites, jax, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(4.0)}, [2, 2])
      >>> folds = fcojax_sites.selection.by_example(2)(data, jax.random.key(0))
      >>> folds.train.rows.shape, (folds.train.rows * folds.held.rows).max().tolist()  # folds, rows
      ((2, 4), 0.0)
    """

    train: Part
    held: Part


Split = Callable[[ClientData, Key], Folds]


@validated
def by_client(num_folds: _Several | None = None) -> Split:
    """Hold out groups of clients, drawn at random; each client is held out once.

    Args:
      num_folds: the number of groups; ``None`` leaves one client out, without randomness.

    Example:
      >>> import fcojax, fcojax_sites, jax, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(3.0)}, [1, 1, 1])
      >>> folds = fcojax_sites.selection.by_client()(data, jax.random.key(0))
      >>> folds.held.clients.tolist()  # the clients that each of the three folds holds out
      [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    def split(data, key):
        count = num_folds or data.num_clients
        if not 2 <= count <= data.num_clients:
            raise ValueError(
                f"num_folds is {count} but there are {data.num_clients} clients; pass at least 2 "
                "and at most as many folds as clients, or split by_example."
            )
        position = np.arange(data.num_clients)
        if num_folds is not None:
            position = np.argsort(np.asarray(jax.random.permutation(key, data.num_clients)))
        return _split_clients(data, position[None, :] % count == np.arange(count)[:, None])

    return split


@validated
def by_example(num_folds: _Several) -> Split:
    """Hold out groups of the rows of every client, drawn at random; each row is held out once.

    Args:
      num_folds: the number of groups.

    Example:
      >>> import fcojax, fcojax_sites, jax, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(6.0)}, [4, 2])
      >>> folds = fcojax_sites.selection.by_example(2)(data, jax.random.key(0))
      >>> (folds.held.rows > 0).sum(axis=1).tolist()  # rows that each of the two folds holds out
      [3, 3]
    """

    def split(data, key):
        position = _shuffled_positions(data, key)
        return _split_rows(data, position[None, :] % num_folds == np.arange(num_folds)[:, None])

    return split


@validated
def hold_out(share: Fraction, *, clients: bool = False) -> Split:
    """Hold out a share of the rows of every client, or of the clients, in a single fold.

    A client with two or more rows keeps at least one of them and holds out at least one; the same
    holds for clients.

    Args:
      share: the share that is held out, strictly between 0 and 1.
      clients: whether to hold out whole clients in place of rows.

    Example:
      >>> import fcojax, fcojax_sites, jax, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(12.0)}, [8, 4])
      >>> folds = fcojax_sites.selection.hold_out(0.25)(data, jax.random.key(0))
      >>> (folds.held.rows > 0).sum(axis=1).tolist()  # 2 of 8, and 1 of 4
      [3]
    """

    def num_held(total):
        return np.clip(np.rint(share * total), np.minimum(1, total - 1), total - 1)

    def split(data, key):
        if clients:
            order = np.asarray(jax.random.permutation(key, data.num_clients))
            return _split_clients(data, (np.argsort(order) < num_held(data.num_clients))[None, :])
        sizes = np.asarray(data.sizes)
        held = np.repeat(num_held(sizes), sizes)
        return _split_rows(data, (_shuffled_positions(data, key) < held)[None, :])

    return split


def stacked(folds: list[Folds]) -> Folds:
    """Concatenate the folds of several draws."""
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *folds)


def _shuffled_positions(data: ClientData, key: Key) -> np.ndarray:
    """Return the position of every row in a random order of its client's rows."""
    sizes = np.asarray(data.sizes)
    # For all rows of the arrays, also behind the last client's, so that few lengths are compiled.
    uniform = np.asarray(jax.random.uniform(key, (_num_rows(data),)))[: sizes.sum()]
    owner = np.repeat(np.arange(sizes.size), sizes)
    order = np.lexsort((uniform, owner))
    position = np.empty(order.size, int)
    position[order] = np.arange(order.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return position


def _num_rows(data: ClientData) -> int:
    return jax.tree.leaves(data.examples)[0].shape[0]


def _split_clients(data: ClientData, held: np.ndarray) -> Folds:
    weights = np.asarray(data.weights)
    parts = (np.where(chosen, weights, 0.0) for chosen in (~held, held))
    return Folds(*(_not_empty(Part(jnp.asarray(part), None)) for part in parts))


def _split_rows(data: ClientData, held: np.ndarray) -> Folds:
    sizes, weights = np.asarray(data.sizes), np.asarray(data.weights)
    starts = np.cumsum(sizes) - sizes

    def part(chosen):
        counts = np.add.reduceat(chosen.astype(float), starts, axis=1)
        scale = np.where(counts > 0, sizes / np.maximum(counts, 1), 0.0)
        rows = chosen * np.repeat(scale, sizes, axis=1)
        rows = np.pad(rows, ((0, 0), (0, _num_rows(data) - rows.shape[1])))
        return _not_empty(Part(jnp.asarray(np.where(counts > 0, weights, 0.0)), jnp.asarray(rows)))

    return Folds(part(~held), part(held))


def _not_empty(part: Part) -> Part:
    if not (np.asarray(part.clients) > 0).any(axis=1).all():
        raise ValueError("a fold has no client of positive weight in one part; pass fewer folds.")
    return part


class Weighted(NamedTuple):
    """Examples and their weights."""

    examples: PyTree
    weight: Array


def all_data(data: ClientData, folds: Folds) -> Part:
    """Return all data as a part, with an axis of one fold."""
    weights, like = data.weights[None], folds.train
    rows = None if like.rows is None else jnp.ones_like(like.rows[:1])
    return Part(weights.astype(like.clients.dtype), rows)


def part_of_data(part: Part, data: ClientData) -> ClientData:
    """Return the population reweighted to one part of one fold."""
    examples = data.examples
    if part.rows is not None:
        examples = Weighted(examples, part.rows)
    weights = part.clients.astype(data.weights.dtype)
    return dataclasses.replace(data, weights=weights, examples=examples)


@memoised
def weighted_loss(loss: Loss) -> Loss:
    """Return the loss of ``Weighted`` examples: the loss of each times its weight."""

    def weighted(params, rows):
        losses = loss(params, rows.examples)
        return jnp.where(rows.weight > 0, rows.weight.astype(losses.dtype) * losses, 0)

    def whole_batch(params, rows, weights):
        weights = jnp.where(rows.weight > 0, weights, jnp.zeros_like(weights))
        losses = loss.function(params, rows.examples, weights)  # pyright: ignore
        return jnp.where(weights > 0, rows.weight.astype(losses.dtype) * losses, 0)

    return WholeBatchLoss(whole_batch) if isinstance(loss, WholeBatchLoss) else weighted
