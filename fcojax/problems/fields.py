"""The fields of a pytree of examples: their names, their rows, and what is wrong with them."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.types import PyTree


def by_field(trees: Sequence[PyTree]):
    """Pairs a field's name with its array in each of the trees."""
    columns = [jax.tree_util.tree_flatten_with_path(tree)[0] for tree in trees]
    for entries in zip(*columns, strict=True):
        name = jax.tree_util.keystr(entries[0][0], simple=True, separator=".") or "examples"
        yield name, *(leaf for _, leaf in entries)


def num_rows(examples: PyTree, whose: str) -> int:
    """The rows that all fields have in common; raises if they differ or there are none."""
    fields = list(by_field([examples]))
    counts = {name: np.shape(leaf)[0] if np.ndim(leaf) else 0 for name, leaf in fields}
    if not counts or 0 in counts.values() or len(set(counts.values())) > 1:
        raise ValueError(
            f"the fields of {whose} have {counts} rows; all need the same number, at least one."
        )
    return next(iter(counts.values()))


def row_bytes(examples: PyTree) -> int:
    """Bytes of one row of all fields."""
    return sum(leaf.nbytes // leaf.shape[0] for leaf in jax.tree.leaves(examples))


def refuse_bad_numbers(examples: PyTree, offsets: np.ndarray, ids: np.ndarray) -> None:
    """Raises ``ValueError`` at the first field with an entry that is no finite number."""
    for name, leaf in by_field([examples]):
        leaf = np.asarray(leaf)
        if leaf.dtype.kind in "OSUMm":
            raise ValueError(f"field {name} has dtype {leaf.dtype}; pass numbers.")
        if not jnp.issubdtype(leaf.dtype, jnp.inexact) or leaf.size == 0:
            continue
        # NaN and infinity survive max and min, which need no copy of the array.
        if np.isfinite(leaf.max()) and np.isfinite(leaf.min()):
            continue
        finite = np.isfinite(leaf).reshape(leaf.shape[0], -1).all(axis=1)
        where = place(int(np.argmin(finite)), offsets, ids)
        raise ValueError(
            f"field {name} of {where[0]} is not finite in its row {where[1]}; clean the data "
            "before building the population."
        )


def place(row: int, offsets: np.ndarray, ids: np.ndarray) -> tuple[str, int]:
    """Whose row of the population this is, in words, and which of that client's rows."""
    client = int(np.searchsorted(offsets, row, side="right")) - 1
    return f"client {ids[client]}", row - int(offsets[client])
