"""Partitions of pooled examples into clients: functions of labels, or of a count, and a seed.

Each returns a ``Partition``, in which every example belongs to exactly one client. Random numbers
come from NumPy's PCG64, the same on every platform.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from fcojax.arguments import checked_array, validated
from fcojax.problems import memory
from fcojax.problems.building import from_rows
from fcojax.problems.client_data import ClientData
from fcojax.types import Count, Positive, PyTree, Seed


class Partition(NamedTuple):
    """An assignment of pooled examples to clients.

    Attributes:
      order: indices of the pooled examples, client after client.
      sizes: number of examples of each client.
      ids: names of the clients, sorted; ``None`` if they have none.
    """

    order: np.ndarray
    sizes: np.ndarray
    ids: np.ndarray | None = None

    def indices(self) -> list[np.ndarray]:
        """Return the indices of each client's examples."""
        return np.split(self.order, np.cumsum(self.sizes)[:-1])

    def apply(self, examples: PyTree, weights: Any = None) -> ClientData:
        """Build the population of the examples that were partitioned.

        Args:
          examples: a pytree of arrays, one row per example, in the order that was partitioned.
          weights: the weights p_m, as in ``from_rows``.

        Example:
          >>> pooled = {"x": np.arange(4.0)}
          >>> data = by_column(["b", "a", "b", "b"]).apply(pooled)
          >>> data.ids.tolist(), data.sizes.tolist(), data.examples["x"].tolist()
          (['a', 'b'], [1, 3], [1.0, 0.0, 2.0, 3.0])
        """
        for leaf in jax.tree.leaves(examples):
            if np.shape(leaf)[:1] != self.order.shape:
                raise ValueError(
                    f"the partition has {self.order.size} examples but a field has shape "
                    f"{np.shape(leaf)}; pass the examples that were partitioned."
                )
        ordered = jax.tree.map(lambda leaf: memory.taken(leaf, self.order), examples)
        return from_rows(ordered, self.sizes, weights, ids=self.ids)


@validated
def iid(num_examples: Count, num_clients: Count, *, seed: Seed = 0) -> Partition:
    """Shuffle the examples and give each client equally many; sizes differ by at most one.

    Args:
      num_examples: number of pooled examples.
      num_clients: number of clients.
      seed: seed of the partition.
    """
    _check_enough(num_examples, num_clients)
    return Partition(_rng(seed).permutation(num_examples), _even(num_examples, num_clients))


@validated
def label_shards(
    labels: Any, num_clients: Count, shards_per_client: Count = 2, *, seed: Seed = 0
) -> Partition:
    """Sort the examples by label, cut them into equal shards, and give each client some shards.

    Shards differ in size by at most one; an example's place among those of its label is random.

    Args:
      labels: one number or string per example.
      num_clients: number of clients.
      shards_per_client: number of shards per client.
      seed: seed of the partition.

    References:
      McMahan, Moore, Ramage, Hampson and Aguera y Arcas, "Communication-efficient learning of deep
      networks from decentralized data", AISTATS 2017, section 3.
    """
    labels = _checked(labels)
    num_shards = num_clients * shards_per_client
    _check_enough(labels.size, num_clients, shards_per_client)
    rng = _rng(seed)
    order = _by_label(rng, labels)
    owner_of_shard = rng.permutation(np.repeat(np.arange(num_clients), shards_per_client))
    return _gathered(order, np.repeat(owner_of_shard, _even(labels.size, num_shards)), num_clients)


@validated
def dirichlet(
    labels: Any,
    num_clients: Count,
    alpha: Positive,
    *,
    min_size: Count = 1,
    max_draws: Count = 1000,
    seed: Seed = 0,
) -> Partition:
    """Distribute the examples of each label over the clients in Dirichlet proportions.

    For every label independently, the clients' shares are drawn from the symmetric Dirichlet
    distribution with concentration ``alpha``: near zero a label goes to few clients, towards
    infinity shares become equal. Shares are rounded to whole examples, up or down at random, so
    that no client is favoured. A draw that leaves a client with fewer than ``min_size`` examples
    is repeated as a whole.

    Args:
      labels: one number or string per example.
      num_clients: number of clients.
      alpha: concentration of the Dirichlet distribution; 1e9 for equal shares.
      min_size: smallest number of examples of a client.
      max_draws: number of draws before giving up.
      seed: seed of the partition.

    Raises:
      ValueError: if none of ``max_draws`` draws gave every client its ``min_size``.

    References:
      Yurochkin, Agarwal, Ghosh, Greenewald, Hoang and Khazaeni, "Bayesian nonparametric federated
      learning of neural networks", ICML 2019, section 4.
    """
    labels = _checked(labels)
    if labels.dtype.kind == "f" and (fractions := labels[labels % 1 != 0]).size:
        raise ValueError(
            f"labels contains {fractions[0]:g}, which is a number to predict, not a label; pass "
            f"labels that have many examples each, or intervals: np.digitize(targets, edges)."
        )
    _check_enough(labels.size, num_clients, min_size)
    rng = _rng(seed)
    order = _by_label(rng, labels)
    counts = np.unique(labels, return_counts=True)[1]
    most = 0
    for _ in range(max_draws):
        # Their sum must not overflow; shares are equal long before 1e300.
        shares = rng.dirichlet(np.full(num_clients, min(alpha, 1e300)), counts.size)
        cuts = np.cumsum(shares, axis=1) * counts[:, None] + rng.random((counts.size, 1))
        cuts = np.minimum(np.floor(cuts).astype(np.int64), counts[:, None])
        cuts[:, -1] = counts
        sizes = np.diff(cuts, axis=1, prepend=0)
        smallest = sizes.sum(axis=0).min()
        most = max(most, int(smallest))
        if smallest >= min_size:
            clients = np.tile(np.arange(num_clients), counts.size)
            return _gathered(order, np.repeat(clients, sizes.reshape(-1)), num_clients)
    raise ValueError(
        f"none of {max_draws} draws gave each of {num_clients} clients {min_size} examples; the "
        f"best draw gave all at least {most}; raise alpha or max_draws, or lower min_size."
    )


@validated
def by_column(column: Any) -> Partition:
    """Make one client of each value of a column, sorted by value; examples keep their order.

    Args:
      column: one number or string per example.

    Example:
      >>> partition = by_column([7, 3, 7])
      >>> partition.ids.tolist(), [mine.tolist() for mine in partition.indices()]
      ([3, 7], [[1], [0, 2]])
    """
    ids, client, sizes = np.unique(_checked(column), return_inverse=True, return_counts=True)
    return Partition(np.argsort(client, kind="stable"), sizes, ids)


def _rng(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _gathered(order: np.ndarray, owner: np.ndarray, num_clients: int) -> Partition:
    """Build the partition in which the example ``order[i]`` belongs to client ``owner[i]``."""
    mine = np.argsort(owner, kind="stable")
    return Partition(order[mine], np.bincount(owner, minlength=num_clients))


def _by_label(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """Return indices sorted by label, in random order within each."""
    order = rng.permutation(labels.size)
    return order[np.argsort(labels[order], kind="stable")]


def _even(total: int, num_parts: int) -> np.ndarray:
    """Split a total into parts that differ by at most one, the larger ones first."""
    return total // num_parts + (np.arange(num_parts) < total % num_parts)


def _checked(labels: Any) -> np.ndarray:
    given, labels = labels, checked_array("labels", labels)
    if labels.ndim != 1 or labels.size == 0:
        raise ValueError(f"labels have shape {labels.shape}; pass one per example.")
    if labels.dtype.kind == "O" or labels.dtype.kind in "US" and not isinstance(given, np.ndarray):
        # NumPy would convert a missing value among strings to a string.
        strings = {isinstance(label, str | bytes) for label in np.asarray(given, object)}
        labels = np.array(labels.tolist(), dtype=object if len(strings) > 1 else None)
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8")
    real = labels.dtype.kind == "f"
    if labels.dtype.kind not in "biufU" or real and not np.isfinite(labels).all():
        raise ValueError("labels must be all finite numbers or all strings; clean them first.")
    return labels


def _check_enough(num_examples: int, num_clients: int, each: int = 1) -> None:
    if num_clients * each > num_examples:
        raise ValueError(
            f"{num_clients} clients with at least {each} each need {num_clients * each} examples "
            f"but there are {num_examples}; pass fewer clients or a smaller minimum."
        )
