"""Who trains and who judges, as weights: all folds have the same shapes and run side by side."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.algorithms.work import checked_count
from fcojax.memo import memoised
from fcojax.problems.clients import ClientData
from fcojax.problems.problem import Loss, WholeBatchLoss
from fcojax.types import Array, Key, PyTree


class Part(NamedTuple):
    """One side of every fold: weights of the clients, and of the rows where rows are split.

    Attributes:
      clients: [folds, clients], 0 for a client that has no part in it.
      rows: [folds, rows], scaled so that a mean over a client's rows is one over those that count;
        ``None`` where clients are whole.
    """

    clients: Array
    rows: Array | None


class Folds(NamedTuple):
    """What the models are fitted to, and what they are judged by.

    Example:
      >>> import fcojax, jax, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(4.0)}, [2, 2])
      >>> folds = fcojax.selection.by_example(2)(data, jax.random.key(0))
      >>> folds.train.rows.shape, (folds.train.rows * folds.held.rows).max().tolist()  # folds, rows
      ((2, 4), 0.0)
    """

    train: Part
    held: Part


Split = Callable[[ClientData, Key], Folds]


def by_client(num_folds: int | None = None) -> Split:
    """Clients fall into ``num_folds`` groups at random, each of which judges once.

    ``None`` for as many as there are clients: leave one site out, with no luck in it.

    Example:
      >>> import fcojax, jax, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(3.0)}, [1, 1, 1])
      >>> folds = fcojax.selection.by_client()(data, jax.random.key(0))
      >>> folds.held.clients.tolist()  # who judges in each of the three folds
      [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    num_folds = checked_count("num_folds", num_folds, optional=True, least=2)

    def split(data, key):
        count = num_folds or data.num_clients
        if not 2 <= count <= data.num_clients:
            raise ValueError(
                f"num_folds is {count} but there are {data.num_clients} clients; pass at least 2 "
                "and at most as many folds as clients, or split by_example."
            )
        place = np.arange(data.num_clients)
        if num_folds is not None:
            place = np.argsort(np.asarray(jax.random.permutation(key, data.num_clients)))
        return _whole_clients(data, place[None, :] % count == np.arange(count)[:, None])

    return split


def by_example(num_folds: int) -> Split:
    """The rows of every client fall into ``num_folds`` groups, each of which judges once.

    Example:
      >>> import fcojax, jax, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(6.0)}, [4, 2])
      >>> folds = fcojax.selection.by_example(2)(data, jax.random.key(0))
      >>> (folds.held.rows > 0).sum(axis=1).tolist()  # rows that judge in each of the two folds
      [3, 3]
    """
    num_folds = checked_count("num_folds", num_folds, least=2)

    def split(data, key):
        place = _places_at_random(data, key)
        return _rows(data, place[None, :] % num_folds == np.arange(num_folds)[:, None])

    return split


def hold_out(share: float, *, clients: bool = False) -> Split:
    """One fold, in which a share of the rows of every client judges, or of the clients.

    At least one row of a client with two or more is on either side, and at least one client.

    Example:
      >>> import fcojax, jax, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(12.0)}, [8, 4])
      >>> folds = fcojax.selection.hold_out(0.25)(data, jax.random.key(0))
      >>> (folds.held.rows > 0).sum(axis=1).tolist()  # 2 of 8, and 1 of 4
      [3]
    """
    if not 0 < share < 1:
        raise ValueError(f"share is {share}; pass a number strictly between 0 and 1.")

    def split(data, key):
        if clients:
            if data.num_clients < 2:
                raise ValueError("there is 1 client; holding out clients needs at least 2.")
            num_held = int(np.clip(np.rint(share * data.num_clients), 1, data.num_clients - 1))
            order = np.asarray(jax.random.permutation(key, data.num_clients))
            return _whole_clients(data, (np.argsort(order) < num_held)[None, :])
        sizes = np.asarray(data.sizes)
        num_held = np.clip(np.rint(share * sizes), np.minimum(1, sizes - 1), sizes - 1)
        return _rows(data, (_places_at_random(data, key) < np.repeat(num_held, sizes))[None, :])

    return split


def stacked(folds: list[Folds]) -> Folds:
    """The folds of several draws, one after the other."""
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *folds)


def _places_at_random(data: ClientData, key: Key) -> np.ndarray:
    """The place of every row in a random order of its client's rows."""
    sizes = np.asarray(data.sizes)
    luck = np.asarray(jax.random.uniform(key, (int(sizes.sum()),)))
    owner = np.repeat(np.arange(sizes.size), sizes)
    order = np.lexsort((luck, owner))
    place = np.empty(order.size, int)
    place[order] = np.arange(order.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return place


def _whole_clients(data: ClientData, held: np.ndarray) -> Folds:
    weights = np.asarray(data.weights)
    sides = (np.where(side, weights, 0.0) for side in (~held, held))
    return Folds(*(_checked(Part(jnp.asarray(side), None)) for side in sides))


def _rows(data: ClientData, held: np.ndarray) -> Folds:
    sizes, weights = np.asarray(data.sizes), np.asarray(data.weights)
    starts = np.cumsum(sizes) - sizes

    def part(side):
        counts = np.add.reduceat(side.astype(float), starts, axis=1)
        stretch = np.where(counts > 0, sizes / np.maximum(counts, 1), 0.0)
        rows = side * np.repeat(stretch, sizes, axis=1)
        return _checked(Part(jnp.asarray(np.where(counts > 0, weights, 0.0)), jnp.asarray(rows)))

    return Folds(part(~held), part(held))


def _checked(part: Part) -> Part:
    if not (np.asarray(part.clients) > 0).any(axis=1).all():
        raise ValueError("a fold has nobody with a weight on one of its sides; take fewer folds.")
    return part


class Weighted(NamedTuple):
    """Examples with a weight each."""

    examples: PyTree
    weight: Array


def fold_of(part: Part, data: ClientData) -> ClientData:
    """The population as one fold's side sees it; ``part`` is that of one fold."""
    examples = data.examples
    if part.rows is not None:
        examples = Weighted(examples, part.rows)
    weights = part.clients.astype(data.weights.dtype)
    return dataclasses.replace(data, weights=weights, examples=examples)


@memoised
def weighted_loss(loss: Loss) -> Loss:
    """The loss of ``Weighted`` examples: each times its weight."""

    def weighed(params, rows):
        losses = loss(params, rows.examples)
        return jnp.where(rows.weight > 0, rows.weight.astype(losses.dtype) * losses, 0)

    def whole(params, rows, weights):
        there = jnp.where(rows.weight > 0, weights, jnp.zeros_like(weights))
        losses = loss.function(params, rows.examples, there)  # pyright: ignore
        return jnp.where(there > 0, rows.weight.astype(losses.dtype) * losses, 0)

    return WholeBatchLoss(whole) if isinstance(loss, WholeBatchLoss) else weighed
