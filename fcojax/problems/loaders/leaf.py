"""The json files of LEAF: users, and for each of them ``x`` and ``y``.

Caldas et al., "LEAF: a benchmark for federated settings", 2018.
"""

import json
import os

import numpy as np

from fcojax.problems.labels import check_labels
from fcojax.problems.loaders.pooled import Pooled
from fcojax.problems.loaders.reading import Foreign, find, reading

_FETCH = (
    "make the data with preprocess.sh of the project TalwalkarLab/leaf on GitHub and pass its "
    "data/train or data/test folder."
)


def leaf(path: str | os.PathLike, *, num_classes: int | None = None) -> Pooled:
    """Features ``x`` and targets ``y`` of all users, from a file or all json files of a folder.

    Whole targets become labels, others numbers. Only data that are numbers already can be read;
    text, as in Shakespeare and Sent140, is for the user to encode.

    Args:
      path: a json file, or a folder of them, each user in one file only.
      num_classes: refuse labels that are not among 0, ..., num_classes - 1.

    Example:
      >>> import fcojax.problems.loaders, json, pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "all_data.json"
      >>> users = {"ann": {"x": [[1.0], [2.0]], "y": [0, 1]}, "bob": {"x": [[3.0]], "y": [1]}}
      >>> _ = path.write_text(json.dumps({"users": list(users), "user_data": users}))
      >>> pooled = fcojax.problems.loaders.leaf(path)
      >>> pooled.client.tolist(), pooled.examples["y"].tolist()
      (['ann', 'ann', 'bob'], [0, 1, 1])
    """
    found = find(path, _FETCH)
    files = sorted(found.glob("*.json")) if found.is_dir() else [found]
    if not files:
        raise ValueError(f"there is no json file in {found}; {_FETCH}")
    x, y, column, seen = [], [], [], {}
    for file in files:
        with reading(file, "a LEAF json file"):
            for user, features, targets in _users(json.loads(file.read_text("utf-8"))):
                if user in seen:
                    raise Foreign(f"user {user} is in {seen[user]} too")
                seen[user] = file
                x.append(features)
                y.append(targets)
                column += [user] * len(targets)
    if not column:
        raise ValueError(f"the users in {found} have no examples.")
    if len(shapes := {features.shape[1:] for features in x}) != 1:
        raise ValueError(f"the users in {found} have features of shapes {sorted(shapes)}.")
    targets = np.concatenate(y)
    if (targets == np.floor(targets)).all():
        targets = targets.astype(np.int32)
    if num_classes is not None:
        check_labels(targets, num_classes, str(found))
    return Pooled({"x": np.concatenate(x), "y": targets}, np.asarray(column))


def _users(content):
    """Every user of one file that has examples, with arrays of features and targets."""
    if not isinstance(content, dict) or not {"users", "user_data"} <= set(content):
        raise Foreign("it has no users and user_data")
    for user in content["users"]:
        if user not in content["user_data"]:
            raise Foreign(f"user {user} is listed and has no data")
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
