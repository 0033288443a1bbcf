"""Checks of the fields of a pytree of examples: names, rows, numbers and labels."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.arguments import shown
from fcojax.types import PyTree

SPLITS = ("the training data", "the validation data")


def by_field(trees: Sequence[PyTree]):
    """Yield each field's name with its array in every tree."""
    columns = [jax.tree_util.tree_flatten_with_path(tree)[0] for tree in trees]
    for entries in zip(*columns, strict=True):
        name = jax.tree_util.keystr(entries[0][0], simple=True, separator=".") or "examples"
        yield name, *(leaf for _, leaf in entries)


def require_floats(params: PyTree) -> None:
    """Raise ``ValueError`` unless all parameters are floating-point numbers."""
    for name, leaf in by_field([params]):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
            field = "params" if name == "examples" else f"params.{name}"
            raise ValueError(
                f"{field} has dtype {jnp.result_type(leaf)}; pass floats, which a gradient step "
                "can move."
            )


def num_rows(examples: PyTree, owner: str) -> int:
    """Return the number of rows that all fields have; raise ``ValueError`` if they differ."""
    shapes = {name: np.shape(leaf) for name, leaf in by_field([examples])}
    counts = {shape[:1] for shape in shapes.values()}
    if len(counts) != 1 or counts & {(), (0,)}:
        raise ValueError(
            f"the fields of {owner} have shapes {shown(shapes)}; pass arrays with the same number "
            "of rows, at least one."
        )
    return counts.pop()[0]


def check_fields(examples: PyTree, *needed: str) -> None:
    """Raise ``ValueError`` unless the examples have these fields."""
    known = examples if isinstance(examples, Mapping) else {}
    if any(name not in known for name in needed):
        has = f"fields {', '.join(map(str, known))}" if known else "no fields by name"
        raise ValueError(f"the population has {has}; the problem needs {' and '.join(needed)}.")


def check_features(train: Any, validation: Any, beside: Sequence[str] = ("y",)) -> None:
    """Check the fields of a linear model.

    Raises:
      ValueError: unless both populations have a matrix ``x`` with the same features, and one number
        per row in each field of ``beside``.
    """
    for data, owner in zip((train, validation), SPLITS, strict=True):
        if data is None:
            continue
        check_fields(data.examples, "x", *beside)
        shape, features = data.examples["x"].shape, train.examples["x"].shape[1:]
        if len(shape) != 2 or shape[1:] != features:
            raise ValueError(
                f"x of {owner} has shape {shape}; pass [rows, features], with as many features "
                f"as in {SPLITS[0]}."
            )
        for name in beside:
            if (found := np.shape(data.examples[name])) != shape[:1]:
                raise ValueError(
                    f"{name} of {owner} has shape {found}; pass one number per row, shape "
                    f"{shape[:1]}."
                )


def row_bytes(examples: PyTree) -> int:
    """Return the bytes of one row of all fields."""
    return sum(leaf.nbytes // leaf.shape[0] for leaf in jax.tree.leaves(examples))


def check_numbers(examples: PyTree, offsets: np.ndarray, ids: np.ndarray) -> None:
    """Raise ``ValueError`` if an entry is not finite, or cannot be held in the precision in use.

    Without ``jax_enable_x64`` numbers have 32 bits. Arrays that are not numeric pass: JAX refuses
    them when it stores them.
    """
    for name, leaf in by_field([examples]):
        leaf = np.asarray(leaf)
        if leaf.size == 0 or not jnp.issubdtype(leaf.dtype, jnp.number):
            continue
        # NaN and infinity survive max and min, which need no copy of the array.
        low, high = leaf.min(), leaf.max()
        if not (np.isfinite(low) and np.isfinite(high)):
            finite = np.isfinite(leaf).reshape(leaf.shape[0], -1).all(axis=1)
            client, row = locate(int(np.argmin(finite)), offsets, ids)
            raise ValueError(
                f"field {name} of client {client} is not finite in its row {row}; clean the data "
                "before building the population."
            )
        used = jax.dtypes.canonicalize_dtype(leaf.dtype)
        if used != leaf.dtype and leaf.dtype.kind in "iuf":
            index = np.argmax(leaf) if float(high) >= -float(low) else np.argmin(leaf)
            largest = leaf.reshape(-1)[index]
            limits = jnp.finfo(used) if leaf.dtype.kind == "f" else jnp.iinfo(used)
            vanishes = leaf.dtype.kind == "f" and 0 < abs(largest) < jnp.finfo(used).tiny
            if vanishes or not (limits.min <= low and high <= limits.max):
                client, row = locate(int(index) // (leaf.size // leaf.shape[0]), offsets, ids)
                raise ValueError(
                    f"field {name} of client {client} is {largest} in its row {row}, out of the "
                    f"range of {used}; scale the data, drop the row, or set jax_enable_x64."
                )


def locate(row: int, offsets: np.ndarray, ids: np.ndarray) -> tuple[Any, int]:
    """Return the id of the client that has this row of the population, and the row within it."""
    client = int(np.searchsorted(offsets, row, side="right")) - 1
    return ids[client], row - int(offsets[client])


def check_labels(
    labels, num_classes: int, owner: str, place: Callable[[int], str] = "row {}".format
) -> None:
    """Raise ``ValueError`` unless every label is one of 0, ..., num_classes - 1.

    Args:
      labels: one per example.
      num_classes: number of classes.
      owner: name of the data in the message.
      place: ``(row) -> str``, the name of a row in the message.
    """
    labels = np.asarray(labels)
    if labels.ndim != 1:
        raise ValueError(f"the labels of {owner} have shape {labels.shape}; pass one per example.")
    wrong = (labels < 0) | (labels >= num_classes) | (labels != np.floor(labels))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"label {labels[row]} in {place(row)} of {owner} is none of the {num_classes} classes; "
            f"pass whole numbers from 0 to {num_classes - 1}."
        )


def check_splits(train: Any, validation: Any, num_classes: int) -> None:
    """Check the field ``y`` of a training and, if there is one, a validation set for labels."""
    for data, owner in zip((train, validation), SPLITS, strict=True):
        if data is None:
            continue
        check_fields(data.examples, "x", "y")

        def place(row, data=data):
            if data.mesh is not None or data.ids is None:
                return f"row {row}"
            client, row = locate(row, np.asarray(data.offsets), data.ids)
            return f"row {row} of client {client}"

        check_labels(data.examples["y"], num_classes, owner, place)
