"""The population: the examples of all clients in flat arrays, with the first row of each client."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.arguments import checked_value, shown
from fcojax.problems import fields, memory
from fcojax.problems.padding import size_bounds
from fcojax.types import Array, PyTree


class Held(NamedTuple):
    """The clients of a larger population whose rows are loaded, and the sizes and weights of all.

    Attributes:
      members: indices of the loaded clients in the whole population, ascending; unused slots last.
      sizes: number of examples of each client of the whole population.
      weights: weight p_m of each client of the whole population.
    """

    members: Array
    sizes: Array
    weights: Array


@dataclasses.dataclass(frozen=True)
class ClientData:
    """The data of all clients: their examples one client after the other, sizes and weights.

    Client m owns the rows ``offsets[m]`` to ``offsets[m + 1] - 1``. On a mesh the clients are cut
    into equal runs, one per device; each device holds the rows of its clients, and its offsets
    count from its own first row. Build one with ``from_clients``, ``from_rows`` or
    ``open_clients``.

    Attributes:
      examples: a pytree of arrays with a common leading axis, one row per example. NumPy arrays
        stay on the host until they are used.
      offsets: first row of each client, and the end; on a mesh one such list per device.
      weights: the p_m of the objective ``sum_m p_m F_m / sum_m p_m``; need not sum to one.
      num_clients: number of clients M, without those that pad a mesh.
      min_size: number of examples of the smallest client.
      max_size: number of examples of the largest client.
      size_bounds: the few row counts that clients are padded to, ascending up to ``max_size``.
      mesh: the devices that the clients are spread over; ``None`` for one device.
      held: if only some clients are loaded, which ones; ``examples``, ``offsets`` and ``weights``
        then belong to these, and ``num_clients`` still counts all.
      ids: names of the clients, ascending, integers or strings. They stay on the host and are not
        part of the pytree: other names cause no recompilation, and the result of a JAX
        transformation has ``None``.
      products: inner products of the features ``x`` of each row with those of its client's rows, of
        shape ``[rows, max_size]``, if the population has them. They belong to these examples:
        ``dataclasses.replace`` drops them.

    Example:
      >>> import fcojax, numpy as np
      >>> x = np.array([[1, 1], [2, 2], [3, 3], [0, 0]], np.float32)
      >>> data = fcojax.from_clients([{"x": x[:3]}, {"x": x[3:]}])
      >>> data
      ClientData(2 clients of 1 to 3 examples, x: float32[4, 2])
      >>> data.offsets.tolist(), data.weights.tolist()
      ([0, 3, 4], [1.0, 1.0])
      >>> rows, sizes = data.rows_of([1])
      >>> rows["x"].tolist()
      [[0.0, 0.0]]
    """

    example: ClassVar[str] = "fcojax.from_rows(rows, sizes)"

    examples: PyTree
    offsets: Array
    weights: Array
    num_clients: int
    min_size: int
    max_size: int
    size_bounds: tuple[int, ...]
    mesh: jax.sharding.Mesh | None = None
    held: Held | None = None
    ids: np.ndarray | None = None
    # Not a parameter, so that a population made from this one with other rows has none.
    products: Array | None = dataclasses.field(default=None, init=False)

    def __repr__(self) -> str:
        columns = [
            f"{name}: {getattr(leaf, 'dtype', type(leaf).__name__)}{list(np.shape(leaf))}"
            for name, leaf in fields.by_field([self.examples])
        ]
        size = f"{self.num_clients} clients of {self.min_size} to {self.max_size} examples"
        if self.products is not None:
            columns.append("products of rows")
        return f"ClientData({', '.join([size, *columns])})"

    @property
    def num_shards(self) -> int:
        """Number of devices that the clients are spread over."""
        return 1 if self.mesh is None else self.mesh.shape["clients"]

    @property
    def num_sweep_shards(self) -> int:
        """Number of parts that a grid of points is cut into; each has a copy of all clients."""
        return 1 if self.mesh is None else self.mesh.shape.get("sweep", 1)

    @property
    def clients_per_shard(self) -> int:
        """Number of clients that one device owns or has loaded, including padding."""
        if self.held is not None:
            return self.held.members.shape[0]
        return -(-self.num_clients // self.num_shards)

    @property
    def shard_spec(self) -> jax.sharding.PartitionSpec:
        """Partition of the arrays on the mesh: along their first axis."""
        return jax.sharding.PartitionSpec(None if self.mesh is None else "clients")

    def local(self) -> "ClientData":
        """Return one device's part as a population of its own, inside ``shard_map``."""
        part = dataclasses.replace(
            self, num_clients=self.clients_per_shard, mesh=None, held=None, ids=None
        )
        return part.with_products(self.products)

    def with_products(self, products: Array | None) -> "ClientData":
        """Return the same population with these products of its rows."""
        data = dataclasses.replace(self)
        object.__setattr__(data, "products", products)
        return data

    @property
    def sizes(self) -> Array:
        """Number of examples of each client."""
        if self.held is not None:
            return self.held.sizes
        sizes = jnp.diff(self.offsets.reshape(self.num_shards, -1), axis=1)
        return sizes.reshape(-1)[: self.num_clients]

    def rows_of(self, members: Sequence[int] | np.ndarray) -> tuple[PyTree, np.ndarray]:
        """Return the examples of some clients, and how many each has.

        This runs on the host and reads no other rows, even if the population is on disk.

        Args:
          members: indices of the clients; their rows are returned in this order.
        """
        require_one_device(self)
        members, offsets = np.asarray(members), np.asarray(self.offsets)
        whole = members.dtype.kind in "iu" or not members.size
        members = members.astype(np.int64) if whole else members
        if not whole or ((members < 0) | (members >= self.num_clients)).any():
            raise ValueError(
                f"members are {shown(members.tolist())}; pass whole numbers from 0 to "
                f"{self.num_clients - 1}."
            )
        sizes = offsets[members + 1] - offsets[members]
        # Row k is k plus its client's first row, minus the number of rows of the clients before.
        shift = np.cumsum(sizes) - sizes
        rows = np.arange(sizes.sum()) + np.repeat(offsets[members] - shift, sizes)
        return jax.tree.map(lambda leaf: memory.taken(leaf, rows), self.examples), sizes

    def select(self, members: Sequence[int] | np.ndarray) -> "ClientData":
        """Return the population of some clients, with their ids and weights.

        Args:
          members: indices of the clients, in any order; at least one.
        """
        members = np.sort(np.asarray(members).ravel())
        examples, sizes = self.rows_of(members)
        at = members.astype(np.int64)
        return from_rows(examples, sizes, np.asarray(self.weights)[at], ids=ids_of(self)[at])

    def to_device(self) -> "ClientData":
        """Return the population with its examples on the device; use it before several runs."""
        examples = jax.tree.map(lambda leaf: memory.copied(memory.in_memory(leaf)), self.examples)
        on_device = dataclasses.replace(self, examples=jax.device_put(examples))
        return on_device.with_products(self.products)


# Names of the parts that are traced, and of those that are static.
_TRACED = ("examples", "offsets", "weights", "held", "products")
_STATIC = ("num_clients", "min_size", "max_size", "size_bounds", "mesh")


def _flattened(data: ClientData) -> tuple[list[Any], tuple[Any, ...]]:
    return [getattr(data, name) for name in _TRACED], tuple(getattr(data, s) for s in _STATIC)


def _with_names(data: ClientData) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
    parts, static = _flattened(data)
    return list(zip(map(jax.tree_util.GetAttrKey, _TRACED), parts, strict=True)), static


def _unflattened(static: tuple[Any, ...], parts: Iterable[Any]) -> ClientData:
    data = object.__new__(ClientData)
    vars(data).update(zip(_TRACED + _STATIC, (*parts, *static), strict=True), ids=None)
    return data


jax.tree_util.register_pytree_with_keys(ClientData, _with_names, _unflattened, _flattened)


def from_clients(
    clients: Iterable[PyTree], weights: Any = None, *, ids: Sequence[int | str] | None = None
) -> ClientData:
    """Build a population from one pytree of arrays per client, rows first.

    Args:
      clients: one pytree per client; all have the same structure, trailing shapes and dtypes.
      weights: the p_m, one per client or a number a for weights ``size ** a``; equal by default.
        ``"examples"`` is the power 1. Weights whose sums would leave the range of the floats are
        scaled by a power of two: only their ratios matter.
      ids: names of the clients, integers or strings; 0 to M - 1 by default. The population is
        sorted by them, so it does not depend on the order in which clients were read.

    Example:
      >>> data = from_clients([{"x": np.ones((3, 2))}, {"x": np.zeros((1, 2))}], ids=["b", "a"])
      >>> data.num_clients, data.sizes.tolist(), data.ids.tolist()
      (2, [1, 3], ['a', 'b'])
    """
    clients = list(clients)
    names = fields.checked_ids(ids, len(clients))
    fields.require_same(clients, names)
    sizes = [
        fields.num_rows(client, f"client {name}")
        for name, client in zip(names, clients, strict=True)
    ]
    flat = jax.tree.map(lambda *leaves: memory.joined(leaves), *clients)
    return from_rows(flat, sizes, weights, ids=names)


def from_rows(
    examples: PyTree,
    sizes: Sequence[int] | np.ndarray,
    weights: Any = None,
    *,
    ids: Sequence[int | str] | np.ndarray | None = None,
    on_host: bool = False,
) -> ClientData:
    """Build a population from flat arrays in which client m owns the next ``sizes[m]`` rows.

    The arrays are copied to the device once and may be deleted afterwards. On a CPU, an array
    aligned to 64 bytes is used without a copy: do not write to it.

    Args:
      examples: a pytree of arrays with a common leading axis, one row per example.
      sizes: number of rows of each client, at least 1.
      weights: the p_m, one per client in the order of ``sizes``, or a number a for weights
        ``size ** a``; equal by default. ``"examples"`` is the power 1.
      ids: names of the clients in the order of ``sizes``, integers or strings; 0 to M - 1 by
        default. The population is sorted by them.
      on_host: whether the arrays stay where they are until ``devices.spread`` or
        ``devices.shard_clients`` reads each device's rows from them, or ``to_device`` all. Use it
        for a population that is larger than one device's memory.

    Raises:
      ValueError: if sizes and rows do not agree, a client is empty, an id occurs twice, or a value
        is not finite, or out of the range of the 32 bits it has without ``jax_enable_x64``.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(5.0)}, [2, 3], weights="examples", ids=["x", "y"])
      >>> data.num_clients, data.weights.tolist(), data.ids.tolist()
      (2, [2.0, 3.0], ['x', 'y'])
    """
    checked_value("on_host", on_host, bool)
    num_rows, sizes = fields.num_rows(examples, "the population"), fields.checked_sizes(sizes)
    names = fields.checked_ids(ids, sizes.size)
    if (empty := np.flatnonzero(sizes < 1)).size:
        raise ValueError(
            f"client {names[empty[0]]} has {sizes[empty[0]]} examples; every client needs at "
            "least 1, so drop the empty ones."
        )
    total = sum(sizes.tolist())  # Python's integers do not overflow
    if total != num_rows:
        raise ValueError(f"the sizes add up to {total} but there are {num_rows} rows; correct one.")
    weights = fields.in_range(fields.checked_weights(weights, sizes), names)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    fields.check_numbers(examples, offsets, names)
    if (names[1:] < names[:-1]).any():
        order = np.argsort(names)
        starts = (np.cumsum(sizes[order]) - sizes[order]).repeat(sizes[order])
        rows = np.arange(num_rows) - starts + offsets[order].repeat(sizes[order])
        examples = jax.tree.map(lambda leaf: memory.taken(leaf, rows), examples)
        sizes, weights, names = sizes[order], weights[order], names[order]
    data = population(examples, sizes, weights, names)
    return data if on_host else data.to_device()


def from_stacked(**columns: np.ndarray) -> ClientData:
    """Build a population from arrays of shape [clients, examples, ...], in single precision."""
    num_clients, num_examples = next(iter(columns.values())).shape[:2]
    kinds = {"f": np.float32, "i": np.int32, "b": np.float32}
    examples = {
        name: values.reshape(-1, *values.shape[2:]).astype(kinds[values.dtype.kind], copy=False)
        for name, values in columns.items()
    }
    return from_rows(examples, [num_examples] * num_clients)


def require_one_device(data: ClientData) -> None:
    """Raise ``ValueError`` for a population on a mesh, whose offsets count per device."""
    if data.mesh is not None:
        raise ValueError("the population is on a mesh; pass the one it was made from.")


def ids_of(data: ClientData) -> np.ndarray:
    """Return the ids of the clients; raise ``ValueError`` if a transformation has dropped them."""
    if data.ids is None:
        raise ValueError(
            "the population has no ids, which JAX transformations drop; pass the one it came from."
        )
    return data.ids


def population(
    examples: PyTree, sizes: np.ndarray, weights: np.ndarray, ids: np.ndarray
) -> ClientData:
    """Build a population from checked arrays, on disk, on the host or on the device.

    Args:
      examples: a pytree of arrays, one row per example.
      sizes: number of rows of each client, at least 1.
      weights: the p_m.
      ids: names of the clients, ascending.
    """
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError(
            f"the population has {offsets[-1]} rows, more than int32 can index; pass fewer than "
            "2^31, for example in two populations."
        )
    return ClientData(
        examples=examples,
        offsets=tree.as_array(offsets, jnp.int32),
        weights=tree.as_array(weights, jnp.result_type(weights)),
        num_clients=sizes.size,
        min_size=int(sizes.min()),
        max_size=int(sizes.max()),
        size_bounds=size_bounds(sizes, fields.row_bytes(examples)),
        ids=ids,
    )
