"""Pooled examples to clients: pure functions of labels, or of a count, and a seed.

Each returns a ``Partition``, in which every example has exactly one client. Luck comes from numpy's
PCG64, whatever the platform.
"""

import hashlib
import json
import os
import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np

from fcojax.problems.clients import ClientData, from_rows
from fcojax.types import PyTree


class Partition(NamedTuple):
    """Who has which example.

    Attributes:
      order: indices of the pooled examples, client after client.
      sizes: examples of each client.
      ids: the name of each client, sorted, where clients have names.
    """

    order: np.ndarray
    sizes: np.ndarray
    ids: np.ndarray | None = None

    def indices(self) -> list[np.ndarray]:
        """The indices of each client's examples."""
        return np.split(self.order, np.cumsum(self.sizes)[:-1])

    def apply(self, examples: PyTree, weights: Any = None) -> ClientData:
        """The population of these examples, with the ids, and weights as in ``from_rows``.

        Example:
          >>> pooled = {"x": np.arange(4.0)}
          >>> data = by_column(["b", "a", "b", "b"]).apply(pooled)
          >>> data.ids.tolist(), data.sizes.tolist(), data.examples["x"].tolist()
          (['a', 'b'], [1, 3], [1.0, 0.0, 2.0, 3.0])
        """
        for leaf in jax.tree.leaves(examples):
            if np.shape(leaf)[:1] != self.order.shape:
                raise ValueError(
                    f"the partition is of {self.order.size} examples but a field has shape "
                    f"{np.shape(leaf)}; pass the examples that were partitioned."
                )
        ordered = jax.tree.map(lambda leaf: np.asarray(leaf)[self.order], examples)
        return from_rows(ordered, self.sizes, weights, ids=self.ids)

    def digest(self) -> str:
        """SHA-256 of what the partition says, in hexadecimal, whatever the platform."""
        content = hashlib.sha256()
        for array in (self.order, self.sizes):
            content.update(array.size.to_bytes(8, "little") + array.astype("<i8").tobytes())
        content.update(json.dumps(None if self.ids is None else self.ids.tolist()).encode())
        return content.hexdigest()

    def save(self, path: str | os.PathLike) -> None:
        """Writes the partition with its digest to an npz file, whole or not at all."""
        path = pathlib.Path(path)
        partial = path.with_name(path.name + ".partial")
        ids = np.array([]) if self.ids is None else self.ids
        try:
            with partial.open("wb") as file:
                np.savez(file, order=self.order, sizes=self.sizes, ids=ids, digest=self.digest())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def load(path: str | os.PathLike) -> Partition:
    """A saved partition, if the file still holds what was saved."""
    path = pathlib.Path(path)
    if not path.is_file():
        raise ValueError(f"there is no partition {path}; write one with Partition.save.")
    try:
        with np.load(path, allow_pickle=False) as file:
            ids = file["ids"] if file["ids"].size else None
            partition = Partition(file["order"], file["sizes"], ids)
            intact = str(file["digest"]) == partition.digest()
    except Exception as error:  # a damaged archive fails in whatever way its readers do
        raise ValueError(f"{path} is no partition, or not all of one; make it anew.") from error
    if not intact:
        raise ValueError(f"{path} does not hold what was saved there; make the partition anew.")
    return partition


def iid(num_examples: int, num_clients: int, *, seed: int = 0) -> Partition:
    """All examples shuffled and dealt out; sizes differ by at most one."""
    _refuse_too_few(num_examples, num_clients)
    return Partition(_rng(seed).permutation(num_examples), _even(num_examples, num_clients))


def label_shards(
    labels: Any, num_clients: int, shards_per_client: int = 2, *, seed: int = 0
) -> Partition:
    """The examples sorted by label, cut into equal shards, and so many shards dealt to each client.

    Shards differ in size by at most one; an example's place among those of its label is random.

    References:
      McMahan, Moore, Ramage, Hampson and Aguera y Arcas, "Communication-efficient learning of deep
      networks from decentralized data", AISTATS 2017, section 3.
    """
    labels = _checked(labels)
    _refuse_count("shards_per_client", shards_per_client)
    num_shards = num_clients * shards_per_client
    _refuse_too_few(labels.size, num_clients, shards_per_client)
    rng = _rng(seed)
    order = _by_label(rng, labels)
    owner_of_shard = rng.permutation(np.repeat(np.arange(num_clients), shards_per_client))
    return _gathered(order, np.repeat(owner_of_shard, _even(labels.size, num_shards)), num_clients)


def dirichlet(
    labels: Any,
    num_clients: int,
    alpha: float,
    *,
    min_size: int = 1,
    max_draws: int = 1000,
    seed: int = 0,
) -> Partition:
    """The examples of each label shared among the clients in Dirichlet proportions.

    For every label independently, the clients' shares are drawn from the symmetric Dirichlet law
    with concentration ``alpha``: near zero a label goes to few clients, at infinity to all alike.
    Shares are rounded to whole examples, up or down at random, so that no client is favoured.
    Draws that leave a client with fewer than ``min_size`` examples are drawn anew, all of them.

    Raises:
      ValueError: if none of ``max_draws`` draws gave every client its ``min_size``.

    References:
      Yurochkin, Agarwal, Ghosh, Greenewald, Hoang and Khazaeni, "Bayesian nonparametric federated
      learning of neural networks", ICML 2019, section 4.
    """
    labels = _checked(labels)
    _refuse_count("max_draws", max_draws)
    _refuse_too_few(labels.size, num_clients, min_size)
    if not (alpha > 0 and np.isfinite(alpha * num_clients)):
        raise ValueError(f"alpha is {alpha}; pass a finite number above 0, 1e9 for even shares.")
    rng = _rng(seed)
    order = _by_label(rng, labels)
    counts = np.unique(labels, return_counts=True)[1]
    most = 0
    for _ in range(max_draws):
        shares = rng.dirichlet(np.full(num_clients, alpha), counts.size)
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
        f"none of {max_draws} draws gave each of {num_clients} clients {min_size} examples, "
        f"the best gave all at least {most}; raise alpha or max_draws, or lower min_size."
    )


def power_law(
    num_examples: int, num_clients: int, exponent: float = 1.0, *, min_size: int = 1, seed: int = 0
) -> Partition:
    """Shuffled examples in shares that fall off as ``rank ** -exponent``, the first client's most.

    Every client has ``min_size`` examples, and the rest is shared out. An exponent of zero is
    ``iid``.
    """
    if not (exponent >= 0 and np.isfinite(exponent)):
        raise ValueError(f"exponent is {exponent}; pass a finite number of at least 0.")
    _refuse_too_few(num_examples, num_clients, min_size)
    shares = np.arange(1.0, num_clients + 1) ** -exponent
    order = _rng(seed).permutation(num_examples)
    return Partition(order, _apportioned(num_examples, shares, min_size))


def log_normal(
    num_examples: int, num_clients: int, sigma: float = 1.0, *, min_size: int = 1, seed: int = 0
) -> Partition:
    """Shuffled examples in shares whose logarithms are normal with deviation ``sigma``.

    Every client has ``min_size`` examples, and the rest is shared out. A deviation of zero is
    ``iid``.
    """
    if not (sigma >= 0 and np.isfinite(sigma)):
        raise ValueError(f"sigma is {sigma}; pass a finite number of at least 0.")
    _refuse_too_few(num_examples, num_clients, min_size)
    rng = _rng(seed)
    order = rng.permutation(num_examples)
    luck = rng.standard_normal(num_clients)
    # Shares are relative, so the largest may be one: no deviation overflows.
    shares = np.exp(sigma * (luck - luck.max()))
    return Partition(order, _apportioned(num_examples, shares, min_size))


def by_column(column: Any) -> Partition:
    """One client for each value of a column, sorted by value; examples keep their order.

    Example:
      >>> partition = by_column([7, 3, 7])
      >>> partition.ids.tolist(), [mine.tolist() for mine in partition.indices()]
      ([3, 7], [[1], [0, 2]])
    """
    ids, client, sizes = np.unique(_checked(column), return_inverse=True, return_counts=True)
    return Partition(np.argsort(client, kind="stable"), sizes, ids)


def similarity(labels: Any, num_clients: int, share: float, *, seed: int = 0) -> Partition:
    """A knob from disjoint to identical: so large a share of the examples is dealt out at random.

    The others are sorted by label, which may be any number, and dealt out in runs. At 0 clients
    have different labels, but for one that a run's end may cut in two; 1 is ``iid``. Sizes differ
    by at most one.

    References:
      Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD: Stochastic controlled averaging
      for federated learning", ICML 2020, section 7.
    """
    labels = _checked(labels)
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}; pass a number from 0, disjoint, to 1, identical.")
    _refuse_too_few(labels.size, num_clients)
    order = _rng(seed).permutation(labels.size)
    num_mixed = round(share * labels.size)
    mixed, rest = order[:num_mixed], order[num_mixed:]
    rest = rest[np.argsort(labels[rest], kind="stable")]
    runs = _even(rest.size, num_clients)
    sizes = np.concatenate([_even(labels.size, num_clients) - runs, runs])
    owner = np.repeat(np.tile(np.arange(num_clients), 2), sizes)
    return _gathered(np.concatenate([mixed, rest]), owner, num_clients)


def _rng(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _gathered(order: np.ndarray, owner: np.ndarray, num_clients: int) -> Partition:
    """The partition in which the example ``order[i]`` is ``owner[i]``'s."""
    mine = np.argsort(owner, kind="stable")
    return Partition(order[mine], np.bincount(owner, minlength=num_clients))


def _by_label(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """Indices sorted by label, in random order within each."""
    order = rng.permutation(labels.size)
    return order[np.argsort(labels[order], kind="stable")]


def _even(total: int, num_parts: int) -> np.ndarray:
    """Parts of a total that differ by at most one, the larger ones first."""
    return total // num_parts + (np.arange(num_parts) < total % num_parts)


def _apportioned(total: int, shares: np.ndarray, min_size: int) -> np.ndarray:
    """``min_size`` for each and the rest by share; the largest remainders are rounded up."""
    quota = (total - min_size * shares.size) * (shares / shares.sum())
    sizes = np.floor(quota).astype(np.int64)
    missing = total - min_size * shares.size - sizes.sum()
    sizes[np.argsort(sizes - quota, kind="stable")[:missing]] += 1
    return sizes + min_size


def _checked(labels: Any) -> np.ndarray:
    given, labels = labels, np.asarray(labels)
    if labels.ndim != 1 or labels.size == 0:
        raise ValueError(f"labels have shape {labels.shape}; pass one for each example.")
    if labels.dtype.kind == "O" or labels.dtype.kind in "US" and not isinstance(given, np.ndarray):
        # numpy would write a missing value among strings as one more string.
        strings = {isinstance(label, str | bytes) for label in np.asarray(given, object)}
        labels = np.array(labels.tolist(), dtype=object if len(strings) > 1 else None)
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8")
    real = labels.dtype.kind == "f"
    if labels.dtype.kind not in "biufU" or real and not np.isfinite(labels).all():
        raise ValueError("labels must be all finite numbers or all strings; clean them first.")
    return labels


def _refuse_count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}; pass a whole number of at least 1.")


def _refuse_too_few(num_examples: int, num_clients: int, each: int = 1) -> None:
    """Raises if there are not enough examples for every client to have so many."""
    _refuse_count("num_clients", num_clients)
    _refuse_count("the least number of examples or shards of a client", each)
    if num_clients * each > num_examples:
        raise ValueError(
            f"{num_clients} clients with at least {each} each need {num_clients * each} examples "
            f"but there are {num_examples}; lower one of the two."
        )
