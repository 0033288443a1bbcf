"""The population: every client's examples in flat arrays, and where each client's rows lie."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.problems.padding import size_bounds
from fcojax.types import Array, PyTree


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["examples", "offsets", "weights"],
    meta_fields=["num_clients", "min_size", "max_size", "size_bounds", "mesh"],
)
@dataclasses.dataclass(frozen=True)
class ClientData:
    """Examples of all clients, client after client; client m owns rows ``offsets[m:m+2]``.

    On a mesh the clients are cut into as many equal runs as there are devices; each device then
    holds the rows of its own clients, with offsets that count from its own first row.

    Attributes:
      examples: a pytree of arrays with a common leading axis, one row an example.
      offsets: first row of each client, and the end; one such list per device.
      weights: the p_m of the objective ``sum_m p_m F_m / sum_m p_m``; need not sum to one.
      num_clients: M, not counting clients that pad a mesh.
      min_size: examples of the smallest client.
      max_size: examples of the largest client.
      size_bounds: the few row counts that clients are padded to, ascending up to ``max_size``.
      mesh: the devices that the clients are spread over, or ``None`` for one device.
    """

    examples: PyTree
    offsets: Array
    weights: Array
    num_clients: int
    min_size: int
    max_size: int
    size_bounds: tuple[int, ...]
    mesh: jax.sharding.Mesh | None = None

    @property
    def num_shards(self) -> int:
        """How many devices the clients are spread over."""
        return 1 if self.mesh is None else self.mesh.shape["clients"]

    @property
    def clients_per_shard(self) -> int:
        """Clients that one device owns, padding included."""
        return -(-self.num_clients // self.num_shards)

    @property
    def shard_spec(self) -> jax.sharding.PartitionSpec:
        """How the arrays lie on the mesh: cut along their first axis."""
        return jax.sharding.PartitionSpec(None if self.mesh is None else "clients")

    def local(self) -> "ClientData":
        """What one device sees of the population, as a population of its own."""
        return dataclasses.replace(self, num_clients=self.clients_per_shard, mesh=None)

    @property
    def sizes(self) -> Array:
        """Examples of each client."""
        sizes = jnp.diff(self.offsets.reshape(self.num_shards, -1), axis=1)
        return sizes.reshape(-1)[: self.num_clients]


def from_clients(clients: Sequence[PyTree], weights: Any = None) -> ClientData:
    """A population from one pytree of arrays per client, rows first.

    Args:
      clients: one pytree per client; all have the same structure, trailing shapes and dtypes.
      weights: the p_m; equal by default. ``"examples"`` weighs a client by its number of rows.

    Example:
      >>> data = from_clients([{"x": np.ones((3, 2))}, {"x": np.zeros((1, 2))}])
      >>> data.num_clients, data.sizes.tolist()
      (2, [3, 1])
    """
    if not clients:
        raise ValueError("the population has no clients; pass at least one.")
    structures = {jax.tree.structure(client) for client in clients}
    if len(structures) > 1:
        raise ValueError(f"clients differ in their fields: {sorted(map(str, structures))}.")
    sizes = [_rows(client, f"client {index}") for index, client in enumerate(clients)]
    for name, *leaves in _by_field(clients):
        shapes = {leaf.shape[1:] for leaf in leaves}
        if len(shapes) > 1:
            raise ValueError(
                f"field {name} has rows of shapes {sorted(shapes)}; all clients need the same."
            )
    flat = jax.tree.map(lambda *leaves: np.concatenate(leaves), *clients)
    return from_rows(flat, sizes, weights)


def from_rows(examples: PyTree, sizes: Sequence[int] | np.ndarray, weights: Any = None):
    """A population from flat arrays in which client m owns the next ``sizes[m]`` rows.

    Raises:
      ValueError: if sizes and rows do not agree, a client is empty, or a value is not finite.
    """
    sizes = np.asarray(sizes, np.int64)
    num_rows = _rows(examples, "the population")
    if sizes.ndim != 1 or sizes.size == 0:
        raise ValueError(f"sizes has shape {sizes.shape}; pass one count per client.")
    if (sizes < 1).any():
        empty = int(np.argmax(sizes < 1))
        raise ValueError(
            f"client {empty} has {sizes[empty]} examples; every client needs at least 1, so drop "
            "the empty ones."
        )
    if sizes.sum() != num_rows:
        raise ValueError(
            f"the sizes add up to {sizes.sum()} but there are {num_rows} rows; they must agree."
        )
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    _refuse_non_finite(examples, offsets)
    return ClientData(
        examples=jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)), examples),
        offsets=jnp.asarray(offsets, jnp.int32),
        weights=jnp.asarray(_weights(weights, sizes)),
        num_clients=sizes.size,
        min_size=int(sizes.min()),
        max_size=int(sizes.max()),
        size_bounds=size_bounds(sizes, _row_bytes(examples)),
    )


def sum_over_shards(term, data: ClientData, *replicated: PyTree) -> PyTree:
    """The sum over devices of ``term(local data, *replicated)``; on one device, just the term."""
    if data.mesh is None:
        return term(data, *replicated)

    def on_each_device(data, *replicated):
        return jax.lax.psum(term(data.local(), *replicated), "clients")

    everywhere = jax.sharding.PartitionSpec()
    return jax.shard_map(
        on_each_device,
        mesh=data.mesh,
        in_specs=(data.shard_spec, *(everywhere for _ in replicated)),
        out_specs=everywhere,
    )(data, *replicated)


def _weights(weights: Any, sizes: np.ndarray) -> np.ndarray:
    if weights is None:
        return np.ones(sizes.size)
    if isinstance(weights, str):
        if weights != "examples":
            raise ValueError(f'weights is "{weights}"; pass None, "examples" or an array.')
        return sizes.astype(float)
    weights = np.asarray(weights, float)
    if weights.shape != sizes.shape:
        raise ValueError(
            f"weights has shape {weights.shape} but there are {sizes.size} clients; pass one each."
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise ValueError("weights must be finite, not negative, and not all zero.")
    return weights


def _rows(examples: PyTree, whose: str) -> int:
    fields = list(_by_field([examples]))
    counts = {name: np.shape(leaf)[0] if np.ndim(leaf) else 0 for name, leaf in fields}
    if not counts or 0 in counts.values() or len(set(counts.values())) > 1:
        raise ValueError(
            f"the fields of {whose} have {counts} rows; all need the same number, at least one."
        )
    return next(iter(counts.values()))


def _by_field(trees: Sequence[PyTree]):
    """Pairs a field's name with its array in each of the trees."""
    columns = [jax.tree_util.tree_flatten_with_path(tree)[0] for tree in trees]
    for entries in zip(*columns, strict=True):
        name = jax.tree_util.keystr(entries[0][0], simple=True, separator=".") or "examples"
        yield name, *(leaf for _, leaf in entries)


def _refuse_non_finite(examples: PyTree, offsets: np.ndarray) -> None:
    for name, leaf in _by_field([examples]):
        leaf = np.asarray(leaf)
        if not np.issubdtype(leaf.dtype, np.inexact) or leaf.size == 0:
            continue
        # NaN and infinity survive max and min, which need no copy of the array.
        if np.isfinite(leaf.max()) and np.isfinite(leaf.min()):
            continue
        finite = np.isfinite(leaf).reshape(leaf.shape[0], -1).all(axis=1)
        row = int(np.argmin(finite))
        client = int(np.searchsorted(offsets, row, side="right")) - 1
        raise ValueError(
            f"field {name} of client {client} is not finite in its row {row - offsets[client]}; "
            "clean the data before building the population."
        )


def _row_bytes(examples: PyTree) -> int:
    return sum(leaf.nbytes // leaf.shape[0] for leaf in jax.tree.leaves(examples))
