"""Populations from arrays in memory, which are checked and sorted by the clients' names."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from fcojax.arguments import checked_value
from fcojax.problems import fields, memory
from fcojax.problems.client_data import ClientData, population
from fcojax.types import PyTree


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
