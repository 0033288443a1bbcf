"""Checks of the fields that a loss needs: features, numbers beside them, and labels."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fcojax.problems.fields import locate
from fcojax.types import PyTree

_SPLITS = ("the training data", "the validation data")


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
    for data, owner in zip((train, validation), _SPLITS, strict=True):
        if data is None:
            continue
        check_fields(data.examples, "x", *beside)
        shape, features = data.examples["x"].shape, train.examples["x"].shape[1:]
        if len(shape) != 2 or shape[1:] != features:
            raise ValueError(
                f"x of {owner} has shape {shape}; pass [rows, features], with as many features "
                f"as in {_SPLITS[0]}."
            )
        for name in beside:
            if (found := np.shape(data.examples[name])) != shape[:1]:
                raise ValueError(
                    f"{name} of {owner} has shape {found}; pass one number per row, shape "
                    f"{shape[:1]}."
                )


def check_labels(
    labels: Any, num_classes: int, owner: str, place: Callable[[int], str] = "row {}".format
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
            f"label {labels[row]} in {place(row)} of {owner} is not one of {num_classes} classes; "
            f"pass whole numbers from 0 to {num_classes - 1}."
        )


def check_splits(train: Any, validation: Any, num_classes: int) -> None:
    """Check the field ``y`` of a training and, if there is one, a validation set for labels."""
    for data, owner in zip((train, validation), _SPLITS, strict=True):
        if data is None:
            continue
        check_fields(data.examples, "x", "y")

        def place(row, data=data):
            if data.mesh is not None or data.ids is None:
                return f"row {row}"
            client, row = locate(row, np.asarray(data.offsets), data.ids)
            return f"row {row} of client {client}"

        check_labels(data.examples["y"], num_classes, owner, place)
