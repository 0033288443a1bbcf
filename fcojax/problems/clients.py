"""The population: every client's examples in flat arrays, and where each client's rows lie."""

import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.problems import fields, stored
from fcojax.problems.padding import size_bounds
from fcojax.problems.weights import as_array, checked_weights, in_range
from fcojax.types import Array, PyTree


class Held(NamedTuple):
    """Which clients of a larger population are at hand, and what a round needs of the others.

    Attributes:
      members: their numbers in the whole population, ascending; places that are empty come last.
      sizes: examples of each client of the whole population.
      weights: its p_m.
    """

    members: Array
    sizes: Array
    weights: Array


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["examples", "offsets", "weights", "held"],
    meta_fields=["num_clients", "min_size", "max_size", "size_bounds", "mesh"],
    drop_fields=["ids"],
)
@dataclasses.dataclass(frozen=True)
class ClientData:
    """Examples of all clients, client after client; client m owns rows ``offsets[m:m+2]``.

    On a mesh the clients are cut into as many equal runs as there are devices; each device then
    holds the rows of its own clients, with offsets that count from its own first row.

    Attributes:
      examples: a pytree of arrays with a common leading axis, one row an example. Arrays of numpy
        stay on the host until they are used.
      offsets: first row of each client, and the end; one such list per device.
      weights: the p_m of the objective ``sum_m p_m F_m / sum_m p_m``; need not sum to one.
      num_clients: M, not counting clients that pad a mesh.
      min_size: examples of the smallest client.
      max_size: examples of the largest client.
      size_bounds: the few row counts that clients are padded to, ascending up to ``max_size``.
      mesh: the devices that the clients are spread over, or ``None`` for one device.
      held: if only some clients are at hand, whose rows are here and what is known of all; the
        arrays above are then theirs, and ``num_clients`` still counts all.
      ids: the clients' names, ascending, whole numbers or strings. They are for people and stay on
        the host: ``jax`` does not see them, so that names are no reason to compile anew, and what
        a transformation returns has ``None``.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_clients([{"x": np.ones((3, 2))}, {"x": np.zeros((1, 2))}])
      >>> data.offsets.tolist(), data.weights.tolist(), data.examples["x"].shape
      ([0, 3, 4], [1.0, 1.0], (4, 2))
      >>> rows, sizes = data.rows_of([1])
      >>> rows["x"].tolist()
      [[0.0, 0.0]]
    """

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

    @property
    def num_shards(self) -> int:
        """How many devices the clients are spread over."""
        return 1 if self.mesh is None else self.mesh.shape["clients"]

    @property
    def num_sweep_shards(self) -> int:
        """How many parts a grid of points is cut into; each has a copy of all clients."""
        return 1 if self.mesh is None else self.mesh.shape.get("sweep", 1)

    @property
    def clients_per_shard(self) -> int:
        """Clients that one device owns or has at hand, padding included."""
        if self.held is not None:
            return self.held.members.shape[0]
        return -(-self.num_clients // self.num_shards)

    @property
    def shard_spec(self) -> jax.sharding.PartitionSpec:
        """How the arrays lie on the mesh: cut along their first axis."""
        return jax.sharding.PartitionSpec(None if self.mesh is None else "clients")

    def local(self) -> "ClientData":
        """What one device sees of the population, as a population of its own."""
        return dataclasses.replace(
            self, num_clients=self.clients_per_shard, mesh=None, held=None, ids=None
        )

    @property
    def sizes(self) -> Array:
        """Examples of each client."""
        if self.held is not None:
            return self.held.sizes
        sizes = jnp.diff(self.offsets.reshape(self.num_shards, -1), axis=1)
        return sizes.reshape(-1)[: self.num_clients]

    def rows_of(self, members: Sequence[int] | np.ndarray) -> tuple[PyTree, np.ndarray]:
        """The examples of some clients, one client after the other, and how many each has.

        Runs on the host and reads these rows only, also of a population that lies on disk.
        """
        if self.mesh is not None:
            raise ValueError("the population is on a mesh; take rows of the original.")
        members, offsets = np.asarray(members), np.asarray(self.offsets)
        if members.size and members.dtype.kind not in "iu":
            raise ValueError(
                f"members are {fields.shown(members.tolist())}; pass numbers from 0 to "
                f"{self.num_clients - 1}."
            )
        members = members.astype(np.int64)
        if members.size and not 0 <= members.min() <= members.max() < self.num_clients:
            raise ValueError(
                f"members are between {members.min()} and {members.max()} but there are "
                f"{self.num_clients} clients; pass numbers from 0 to {self.num_clients - 1}."
            )
        sizes = offsets[members + 1] - offsets[members]
        shift = np.cumsum(sizes) - sizes
        rows = np.arange(sizes.sum()) + np.repeat(offsets[members] - shift, sizes)
        return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], self.examples), sizes

    def select(self, members: Sequence[int] | np.ndarray) -> "ClientData":
        """The population of some clients only, who keep their ids and weights."""
        members = np.sort(np.asarray(members).ravel())
        if not members.size:
            raise ValueError("there are no members; pass at least one client.")
        examples, sizes = self.rows_of(members)
        return from_rows(
            examples, sizes, np.asarray(self.weights)[members], ids=ids_of(self)[members]
        )

    def to_device(self) -> "ClientData":
        """The same population with its examples on the device, for several runs on it."""
        examples = jax.tree.map(stored.in_memory, self.examples)
        return dataclasses.replace(self, examples=jax.device_put(examples))

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the population to a new folder, which ``open_clients`` reads.

        The folder appears when it is complete; if anything fails, nothing is left behind.
        """
        if self.mesh is not None:
            raise ValueError("the population is on a mesh; save the original.")
        small = {"offsets": self.offsets, "weights": self.weights, "ids": ids_of(self)}
        stored.write(folder, self.examples, {name: np.asarray(x) for name, x in small.items()})


def from_clients(
    clients: Sequence[PyTree], weights: Any = None, *, ids: Sequence[int | str] | None = None
) -> ClientData:
    """A population from one pytree of arrays per client, rows first.

    Args:
      clients: one pytree per client; all have the same structure, trailing shapes and dtypes.
      weights: the p_m: one a client, or a number a for weights of size^a; equal by default.
        ``"examples"`` weighs a client by its number of rows, as 1 does. Weights whose sums would
        leave the range of the floats are scaled by a power of two: only their ratios matter.
      ids: the clients' names, whole numbers or strings; the population is in their order, so that
        it does not depend on the order of the files. By default 0 to M - 1.

    Example:
      >>> data = from_clients([{"x": np.ones((3, 2))}, {"x": np.zeros((1, 2))}], ids=["b", "a"])
      >>> data.num_clients, data.sizes.tolist(), data.ids.tolist()
      (2, [1, 3], ['a', 'b'])
    """
    clients = list(clients) if isinstance(clients, Iterator) else clients
    if not isinstance(clients, Sequence) or isinstance(clients, str):
        raise ValueError(
            f"clients is {fields.shown(clients)}; pass a list with one pytree of arrays a client, "
            "or use from_rows for flat arrays."
        )
    if not clients:
        raise ValueError("the population has no clients; pass at least one.")
    structures = {jax.tree.structure(client) for client in clients}
    if len(structures) > 1:
        raise ValueError(
            f"clients differ in their fields, {sorted(map(str, structures))}; give all the same."
        )
    names = _checked_ids(ids, len(clients))
    sizes = [
        fields.num_rows(client, f"client {name}")
        for name, client in zip(names, clients, strict=True)
    ]
    for name, *leaves in fields.by_field(clients):
        shapes = {leaf.shape[1:] for leaf in leaves}
        if len(shapes) > 1:
            raise ValueError(
                f"field {name} has rows of shapes {sorted(shapes)}; all clients need the same."
            )
    flat = jax.tree.map(lambda *leaves: np.concatenate(leaves), *clients)
    return from_rows(flat, sizes, weights, ids=names)


def from_rows(
    examples: PyTree,
    sizes: Sequence[int] | np.ndarray,
    weights: Any = None,
    *,
    ids: Sequence[int | str] | np.ndarray | None = None,
) -> ClientData:
    """A population from flat arrays in which client m owns the next ``sizes[m]`` rows.

    Weights and ids are as in ``from_clients``, in the order of ``sizes``.

    Raises:
      ValueError: if sizes and rows do not agree, a client is empty, an id occurs twice, or a value
        is not finite, or out of the range of the 32 bits it has without ``jax_enable_x64``.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(5.0)}, [2, 3], weights="examples", ids=["x", "y"])
      >>> data.num_clients, data.weights.tolist(), data.ids.tolist()
      (2, [2.0, 3.0], ['x', 'y'])
    """
    num_rows, sizes = fields.num_rows(examples, "the population"), _checked_sizes(sizes)
    names = _checked_ids(ids, sizes.size)
    if (sizes < 1).any():
        empty = int(np.argmax(sizes < 1))
        raise ValueError(
            f"client {names[empty]} has {sizes[empty]} examples; every client needs at least 1, so "
            "drop the empty ones."
        )
    total = sum(sizes.tolist())  # of Python's integers, which do not overflow
    if total != num_rows:
        raise ValueError(
            f"the sizes add up to {total} but there are {num_rows} rows; they must agree."
        )
    weights = in_range(checked_weights(weights, sizes), names)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    fields.refuse_bad_numbers(examples, offsets, names)
    if (names[1:] < names[:-1]).any():
        order = np.argsort(names)
        starts = (np.cumsum(sizes[order]) - sizes[order]).repeat(sizes[order])
        rows = np.arange(num_rows) - starts + offsets[order].repeat(sizes[order])
        examples = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], examples)
        sizes, weights, names = sizes[order], weights[order], names[order]
    return _population(examples, sizes, weights, names).to_device()


def open_clients(folder: str | os.PathLike, *, verify: bool = False) -> ClientData:
    """The population that ``ClientData.save`` wrote, its examples left on disk until they are used.

    ``run`` moves them to the device each time; call ``to_device`` first if there are several runs.
    ``rows_of`` and ``select`` read no rows but those they return.

    Args:
      folder: where it was saved.
      verify: whether to read all examples and compare them with the hash of what was saved.
        Missing, truncated and foreign files are found in any case.

    Example:
      >>> import fcojax, numpy as np, tempfile
      >>> folder = tempfile.mkdtemp() + "/population"
      >>> fcojax.from_rows({"a": np.arange(5.0)}, [2, 3]).save(folder)
      >>> rows, sizes = fcojax.open_clients(folder).rows_of([1])
      >>> rows["a"].tolist()
      [2.0, 3.0, 4.0]
    """
    examples, small = stored.read(folder, verify)
    return _population(examples, np.diff(small["offsets"]), small["weights"], small["ids"])


def sum_over_shards(term, data: ClientData, *replicated: PyTree) -> PyTree:
    """The sum over devices of ``term(local data, *replicated)``; on one device, just the term."""
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
        # That a sum over devices is the same on all of them is not inferred through a scan.
        check_vma=False,
    )(data, *replicated)


def _population(examples, sizes, weights, ids) -> ClientData:
    """The population of arrays that have been checked, wherever its examples lie."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError(
            f"the population has {offsets[-1]} rows; at most {np.iinfo(np.int32).max} can be "
            "numbered on a device, so cut it in two."
        )
    return ClientData(
        examples=examples,
        offsets=jnp.asarray(offsets, jnp.int32),
        weights=jnp.asarray(weights),
        num_clients=sizes.size,
        min_size=int(sizes.min()),
        max_size=int(sizes.max()),
        size_bounds=size_bounds(sizes, fields.row_bytes(examples)),
        ids=ids,
    )


def _checked_sizes(sizes: Any) -> np.ndarray:
    """The sizes as whole numbers; floats are taken if they are whole."""
    if sizes is None:
        raise ValueError("sizes is None; pass one count per client.")
    counts = as_array(sizes, "sizes are {}; pass one count per client.")
    if counts.ndim != 1 or counts.size == 0:
        raise ValueError(f"sizes has shape {counts.shape}; pass one count per client.")
    if counts.dtype.kind == "f" and (counts == np.floor(counts)).all():
        counts = counts.astype(np.int64) if (np.abs(counts) < 2.0**53).all() else counts
    if counts.dtype.kind not in "iu":
        raise ValueError(
            f"sizes are {fields.shown(counts.tolist())}; pass whole numbers, one per client."
        )
    return counts.astype(np.int64)


def ids_of(data: ClientData) -> np.ndarray:
    """The clients' ids; raises if a transformation has dropped them."""
    if data.ids is None:
        raise ValueError(
            "the population has no ids, which jax transformations drop; pass the one it came from."
        )
    return data.ids


def _checked_ids(ids: Any, num_clients: int) -> np.ndarray:
    if ids is None:
        return np.arange(num_clients)
    ids = as_array(ids, "ids is {}; pass whole numbers or strings, one for each client.")
    if ids.shape != (num_clients,):
        raise ValueError(
            f"ids has shape {ids.shape} but there are {num_clients} clients; pass one each."
        )
    if ids.dtype.kind == "O" and all(isinstance(name, str) for name in ids):
        ids = ids.astype(str)  # as pandas has them
    if ids.dtype.kind in "bf" and (ids == np.floor(ids)).all() and (np.abs(ids) < 2.0**53).all():
        ids = ids.astype(np.int64)  # as files have them in which all columns are real
    if ids.dtype.kind not in "iuU":
        raise ValueError(f"ids have dtype {ids.dtype}; pass whole numbers or strings.")
    names, counts = np.unique(ids, return_counts=True)
    if names.size < ids.size:
        raise ValueError(f"id {names[counts > 1][0]} occurs twice; every client needs its own.")
    return ids
