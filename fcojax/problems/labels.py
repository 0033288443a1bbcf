"""Checks of the fields that a loss needs: features, numbers beside them, and labels."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fcojax.problems.fields import locate


def check_features(train: Any, validation: Any, beside: Sequence[str] = ("y",)) -> None:
    """Check the fields of a linear model.

    Raises:
      ValueError: unless both populations have a matrix ``x`` with the same features, and one number
        per row in each field of ``beside``.
    """
    for data, owner in _splits(train, validation, "x", *beside):
        shape, features = data.examples["x"].shape, train.examples["x"].shape[1:]
        if len(shape) != 2 or shape[1:] != features:
            raise ValueError(
                f"x of {owner} has shape {shape}; pass [rows, features], with as many features "
                "as in the training data."
            )
        for name in beside:
            if (found := np.shape(data.examples[name])) != shape[:1]:
                raise ValueError(
                    f"{name} of {owner} has shape {found}; pass one number per row, shape "
                    f"{shape[:1]}."
                )


def check_splits(train: Any, validation: Any, num_classes: int) -> None:
    """Check the field ``y`` of a training and, if there is one, a validation set for labels."""
    for data, owner in _splits(train, validation, "x", "y"):
        check_labels(data.examples["y"], num_classes, owner, data)


def check_labels(labels: Any, num_classes: int, owner: str, data: Any = None) -> None:
    """Raise ``ValueError`` unless every label is one of 0, ..., num_classes - 1.

    Args:
      labels: one per example.
      num_classes: number of classes.
      owner: name of the data in the message.
      data: the population of the labels, to name the client of a row in the message.
    """
    labels = np.asarray(labels)
    if labels.ndim != 1:
        raise ValueError(f"the labels of {owner} have shape {labels.shape}; pass one per example.")
    wrong = (labels < 0) | (labels >= num_classes) | (labels != np.floor(labels))
    if wrong.any():
        row = int(np.argmax(wrong))
        label, place = labels[row], f"row {row}"
        if data is not None and data.mesh is None and data.ids is not None:
            client, row = locate(row, np.asarray(data.offsets), data.ids)
            place = f"row {row} of client {client}"
        raise ValueError(
            f"label {label} in {place} of {owner} is not one of {num_classes} classes; pass whole "
            f"numbers from 0 to {num_classes - 1}."
        )


def _splits(train: Any, validation: Any, *needed: str) -> Iterator[tuple[Any, str]]:
    """Yield the populations that there are, each with its name, if they have the fields needed."""
    for data, owner in ((train, "the training data"), (validation, "the validation data")):
        if data is None:
            continue
        known = data.examples if isinstance(data.examples, Mapping) else {}
        if any(name not in known for name in needed):
            has = f"fields {', '.join(map(str, known))}" if known else "no fields by name"
            raise ValueError(f"the population has {has}; the problem needs {' and '.join(needed)}.")
        yield data, owner
