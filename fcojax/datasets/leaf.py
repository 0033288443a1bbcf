"""The JSON files of LEAF: users, and for each of them ``x`` and ``y``.

Caldas et al., "LEAF: a benchmark for federated settings", 2018.
"""

import json
import os

import numpy as np

from fcojax.arguments import validated
from fcojax.datasets.pooled import Pooled
from fcojax.datasets.reading import Foreign, find, reading
from fcojax.problems.labels import check_labels
from fcojax.types import Count

_FETCH = (
    "make the data with preprocess.sh of the project TalwalkarLab/leaf on GitHub and pass its "
    "data/train or data/test folder."
)


@validated
def leaf(path: str | os.PathLike, *, num_classes: Count | None = None) -> Pooled:
    """Read features ``x`` and targets ``y`` of all users, from a JSON file or a folder of them.

    Targets become int32 labels if all are whole numbers, else float32. The data must be numeric:
    encode text, as in Shakespeare and Sent140, first.

    Args:
      path: a JSON file, or a folder of them, each user in one file only.
      num_classes: number of classes, to check the labels; ``None`` for no check.

    Example:
      >>> import fcojax.datasets, json, pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "all_data.json"
      >>> users = {"ann": {"x": [[1.0], [2.0]], "y": [0, 1]}, "bob": {"x": [[3.0]], "y": [1]}}
      >>> _ = path.write_text(json.dumps({"users": list(users), "user_data": users}))
      >>> pooled = fcojax.datasets.leaf(path)
      >>> pooled.client.tolist(), pooled.examples["y"].tolist()
      (['ann', 'ann', 'bob'], [0, 1, 1])
    """
    found = find(path, _FETCH)
    files = sorted(found.glob("*.json")) if found.is_dir() else [found]
    x, y, column, files_of = [], [], [], {}
    for file in files:
        with reading(file, "a LEAF json file"):
            for user, features, targets in _users(json.loads(file.read_text("utf-8"))):
                if user in files_of:
                    raise Foreign(f"user {user} is in {files_of[user]} too")
                files_of[user] = file
                x.append(features)
                y.append(targets)
                column += [user] * len(targets)
    if not column:
        raise ValueError(f"{found} has no examples of any user; {_FETCH}")
    if len(shapes := {features.shape[1:] for features in x}) != 1:
        raise ValueError(f"the users in {found} have features of shapes {sorted(shapes)}.")
    targets = np.concatenate(y)
    if (targets == np.floor(targets)).all():
        targets = targets.astype(np.int32)
    if num_classes is not None:
        check_labels(targets, num_classes, str(found))
    return Pooled({"x": np.concatenate(x), "y": targets}, np.asarray(column))


def _users(content):
    """Yield the users of one file that have examples, with their features and targets."""
    if not isinstance(content, dict) or not {"users", "user_data"} <= set(content):
        raise Foreign("it has no users and user_data")
    for user in content["users"]:
        rows = content["user_data"][user]
        if not rows["y"]:
            continue
        arrays = np.asarray(rows["x"]), np.asarray(rows["y"])
        if any(array.dtype.kind not in "biuf" for array in arrays):
            raise Foreign(f"the data of user {user} are not all numbers; encode text first")
        if arrays[0].shape[0] != arrays[1].shape[0] or arrays[1].ndim != 1:
            raise Foreign(
                f"user {user} has x of shape {arrays[0].shape} and y of shape {arrays[1].shape}"
            )
        yield user, *(array.astype(np.float32) for array in arrays)
