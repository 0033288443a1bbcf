"""Class labels as problems want them: whole numbers from zero."""

from collections.abc import Callable

import numpy as np

from fcojax.problems import fields


def check_labels(
    labels, num_classes: int, whose: str, place: Callable[[int], str] = "row {}".format
) -> None:
    """Raises ``ValueError`` unless every label is one of 0, ..., num_classes - 1.

    Args:
      labels: one per example.
      num_classes: how many classes there are.
      whose: what the labels belong to, in words.
      place: says where a row is.
    """
    labels = np.asarray(labels)
    if labels.ndim != 1:
        raise ValueError(f"the labels of {whose} have shape {labels.shape}; pass one per example.")
    wrong = (labels < 0) | (labels >= num_classes) | (labels != np.floor(labels))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"label {labels[row]} in {place(row)} of {whose} is none of the {num_classes} classes; "
            f"labels are whole numbers from 0 to {num_classes - 1}."
        )


def check_splits(train, validation, num_classes: int) -> None:
    """``check_labels`` on the field ``y`` of a training and, if there is one, a validation set.

    Beside it there has to be a field ``x``.
    """
    for data, whose in ((train, "the training data"), (validation, "the validation data")):
        if data is None:
            continue
        fields.check_population(data)
        fields.check_fields(data.examples, "x", "y")

        def place(row, data=data):
            if data.mesh is not None or data.ids is None:
                return f"row {row}"
            client, row = fields.place(row, np.asarray(data.offsets), data.ids)
            return f"row {row} of {client}"

        check_labels(data.examples["y"], num_classes, whose, place)
