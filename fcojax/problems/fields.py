"""The fields of a pytree of examples: their names, their rows, and what is wrong with them."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.types import PyTree

_MOST_LETTERS = 80


def shown(value: Any) -> str:
    """The value in an error message: on one line, and not long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 3] + "..."


def by_field(trees: Sequence[PyTree]):
    """Pairs a field's name with its array in each of the trees."""
    columns = [jax.tree_util.tree_flatten_with_path(tree)[0] for tree in trees]
    for entries in zip(*columns, strict=True):
        name = jax.tree_util.keystr(entries[0][0], simple=True, separator=".") or "examples"
        yield name, *(leaf for _, leaf in entries)


def num_rows(examples: PyTree, whose: str) -> int:
    """The rows that all fields have in common; raises if they differ or there are none."""
    fields = list(by_field([examples]))
    if not fields:
        raise ValueError(f"the fields of {whose} have no arrays; pass at least one, rows first.")
    for name, leaf in fields:
        if not np.ndim(leaf) or not hasattr(leaf, "dtype"):
            raise ValueError(
                f"field {name} of {whose} is {shown(leaf)}; pass arrays, rows first, as "
                "numpy.asarray makes them."
            )
    counts = {name: np.shape(leaf)[0] for name, leaf in fields}
    if 0 in counts.values() or len(set(counts.values())) > 1:
        raise ValueError(
            f"the fields of {whose} have {counts} rows; all need the same number, at least one."
        )
    return next(iter(counts.values()))


def check_fields(examples: PyTree, *needed: str) -> None:
    """Raises ``ValueError`` unless the examples have these fields.

    Example:
      >>> check_fields({"X": np.ones((2, 3)), "y": np.ones(2)}, "x", "y")
      Traceback (most recent call last):
      ValueError: the population has fields X, y; the problem needs x and y.
    """
    known = examples if isinstance(examples, Mapping) else {}
    if any(name not in known for name in needed):
        has = f"fields {', '.join(map(str, known))}" if known else "no fields by name"
        raise ValueError(f"the population has {has}; the problem needs {' and '.join(needed)}.")


def check_features(*populations: Any, beside: Sequence[str] = ("y",)) -> None:
    """Raises ``ValueError`` unless each has a matrix ``x`` and the fields beside it.

    A population may be ``None``.
    """
    for data in populations:
        if data is None:
            continue
        check_population(data)
        check_fields(data.examples, "x", *beside)
        if len(shape := data.examples["x"].shape) != 2:
            raise ValueError(f"x has shape {shape}; pass [rows, features].")


def check_population(data: Any) -> None:
    """Raises ``ValueError`` unless it has examples of clients."""
    if not hasattr(data, "examples"):
        raise ValueError(
            f"the clients are {shown(data)}; pass a population made by fcojax.from_clients, "
            "from_rows or open_clients."
        )


def row_bytes(examples: PyTree) -> int:
    """Bytes of one row of all fields."""
    return sum(leaf.nbytes // leaf.shape[0] for leaf in jax.tree.leaves(examples))


def refuse_bad_numbers(examples: PyTree, offsets: np.ndarray, ids: np.ndarray) -> None:
    """Raises ``ValueError`` at the first field with an entry that the device cannot hold.

    That is one that is no finite number, or none any more in the 32 bits it has without
    ``jax_enable_x64``.
    """
    for name, leaf in by_field([examples]):
        leaf = np.asarray(leaf)
        if not jnp.issubdtype(leaf.dtype, jnp.number) and leaf.dtype != bool:
            raise ValueError(f"field {name} has dtype {leaf.dtype}; pass numbers.")
        if leaf.size == 0 or leaf.dtype == bool:
            continue
        # NaN and infinity survive max and min, which need no copy of the array.
        low, high = leaf.min(), leaf.max()
        if not (np.isfinite(low) and np.isfinite(high)):
            finite = np.isfinite(leaf).reshape(leaf.shape[0], -1).all(axis=1)
            where = place(int(np.argmin(finite)), offsets, ids)
            raise ValueError(
                f"field {name} of {where[0]} is not finite in its row {where[1]}; clean the data "
                "before building the population."
            )
        used = jax.dtypes.canonicalize_dtype(leaf.dtype)
        if used != leaf.dtype and leaf.dtype.kind in "iuf":
            _refuse_what_is_lost(name, leaf, (low, high), used, offsets, ids)


def _refuse_what_is_lost(name, leaf, ends, used, offsets, ids) -> None:
    """Raises if the field's least or largest number is none of the dtype that will be used."""
    limits = jnp.finfo(used) if leaf.dtype.kind == "f" else jnp.iinfo(used)
    for end, index in zip(ends, (np.argmin, np.argmax), strict=True):
        if not limits.min <= end <= limits.max:
            where = place(int(index(leaf)) // (leaf.size // leaf.shape[0]), offsets, ids)
            raise ValueError(
                f"field {name} of {where[0]} is {end} in its row {where[1]}, out of the range of "
                f"{used}; scale the data, drop the row, or set jax_enable_x64."
            )
    largest = max(abs(float(end)) for end in ends)
    if leaf.dtype.kind == "f" and 0 < largest < jnp.finfo(used).tiny:
        raise ValueError(
            f"field {name} is at most {largest} in size, below the range of {used}; pass it "
            "scaled, or set jax_enable_x64."
        )


def place(row: int, offsets: np.ndarray, ids: np.ndarray) -> tuple[str, int]:
    """Whose row of the population this is, in words, and which of that client's rows."""
    client = int(np.searchsorted(offsets, row, side="right")) - 1
    return f"client {ids[client]}", row - int(offsets[client])
