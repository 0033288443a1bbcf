"""The population in flat arrays: made, read, cut and moved on the host."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.arguments import shown
from fcojax.problems import memory
from fcojax.problems.clients import Clients, require_one_device
from fcojax.types import PyTree


@dataclasses.dataclass(frozen=True, repr=False)
class ClientData(Clients):
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

    def __repr__(self) -> str:
        columns = [
            f"{name}: {getattr(leaf, 'dtype', type(leaf).__name__)}{list(np.shape(leaf))}"
            for name, leaf in tree.by_field([self.examples])
        ]
        size = f"{self.num_clients} clients of {self.min_size} to {self.max_size} examples"
        if self.products is not None:
            columns.append("products of rows")
        return f"ClientData({', '.join([size, *columns])})"

    def rows_of(self, members: Sequence[int] | np.ndarray) -> tuple[PyTree, np.ndarray]:
        """Return the examples of some clients, in this order, and how many each has.

        This runs on the host and reads no other rows, even if the population is on disk.
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
        """Return the population of the clients with these indices, with their ids and weights."""
        members = np.sort(np.asarray(members).ravel())
        examples, sizes = self.rows_of(members)
        at = members.astype(np.int64)
        weights = np.asarray(self.weights)[at]
        if not weights.any() or np.unique(at).size < at.size:
            raise ValueError(
                f"members are {shown(members.tolist())}; pass different clients, not all of weight "
                "0."
            )
        if weights.max() < 2.0**-64:  # only ratios matter, and products should not vanish
            weights = np.ldexp(weights, -np.frexp(weights.max())[1])
        return population(examples, sizes, weights, ids_of(self)[at]).to_device()

    def to_device(self) -> "ClientData":
        """Return the population with its examples on the device; use it before several runs."""
        examples = jax.tree.map(lambda leaf: memory.copied(memory.in_memory(leaf)), self.examples)
        on_device = dataclasses.replace(self, examples=jax.device_put(examples))
        return on_device.with_products(self.products)


# A step on less than a page of rows takes as long as one on a page: overhead dominates.
_NEGLIGIBLE_BYTES = 4096
# Every bound is one more branch to compile. For sizes log-uniform from 1 to 5,000, twelve bounds
# give 1.16 padded rows per real row, eight give 1.27, and one, the largest size, gives eight.
_MAX_BOUNDS = 12
_ENOUGH = 1.15  # padded rows per real row
_MAX_CANDIDATES = 256

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
    """Build a population from checked arrays, on disk, on the host or on the device."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError(
            f"the population has {offsets[-1]} rows, more than int32 can index; pass fewer than "
            "2^31, for example in two populations."
        )
    row_bytes = sum(leaf.nbytes // leaf.shape[0] for leaf in jax.tree.leaves(examples))
    return ClientData(
        examples=examples,
        offsets=tree.as_array(offsets, jnp.int32),
        weights=tree.as_array(weights, jnp.result_type(weights)),
        num_clients=sizes.size,
        min_size=int(sizes.min()),
        max_size=int(sizes.max()),
        size_bounds=size_bounds(sizes, row_bytes),
        ids=ids,
    )


def size_bounds(sizes: np.ndarray, row_bytes: int) -> tuple[int, ...]:
    """Choose ascending row counts to pad clients to, the last of them the largest client's.

    A client is padded to the smallest bound that is at least its size. The bounds are the sizes
    that minimise the rows of the population after padding; their number is the smallest with at
    most 1.15 padded rows per real row, but at most twelve. All sizes below one page of rows, of
    ``row_bytes`` each, count as one page.

    Example:
      >>> size_bounds(np.array([10, 11, 12, 900, 1000]), row_bytes=4096)
      (12, 1000)
    """
    least = min(max(_NEGLIGIBLE_BYTES // max(row_bytes, 1), 1), int(sizes.max()))
    rows = np.maximum(sizes, least)
    candidates = np.unique(rows)
    if candidates.size > _MAX_CANDIDATES:
        grid = np.geomspace(candidates[0], candidates[-1], _MAX_CANDIDATES)
        at = np.searchsorted(candidates, grid).clip(max=candidates.size - 1)
        candidates = candidates[np.unique(at)]
    held = np.concatenate([[0], np.searchsorted(np.sort(rows), candidates, side="right")])
    # slots[i, j]: padded rows of the clients larger than candidate i - 1, padded to candidate j.
    slots = np.triu((held[None, 1:] - held[:-1, None]) * candidates[None, :].astype(float))
    slots[np.tril_indices_from(slots, -1)] = np.inf
    # Dynamic programming over the largest bound: with one more bound, the clients up to candidate j
    # cost the least over i of those up to i, with the bounds so far, plus slots[i + 1, j].
    least_slots = slots[0]  # for the clients up to each candidate, with the bounds so far
    previous: list[np.ndarray] = []
    enough = _ENOUGH * rows.sum()
    while least_slots[-1] > enough and len(previous) + 1 < min(_MAX_BOUNDS, candidates.size):
        totals = least_slots[:-1, None] + slots[1:]
        previous.append(np.argmin(totals, axis=0))
        least_slots = np.min(totals, axis=0)
    chosen = [candidates.size - 1]
    for choice in reversed(previous):
        chosen.append(int(choice[chosen[-1]]))
    return tuple(int(candidates[index]) for index in reversed(chosen))
