"""Numpy files: one npz with named arrays, or one npy file per field."""

import os
import pathlib
from collections.abc import Mapping

import numpy as np

from fcojax.problems.loaders.pooled import Pooled
from fcojax.problems.loaders.reading import Foreign, find, reading

_FETCH = "pass the path of a file that numpy.save or numpy.savez has written."


def npz(path: str | os.PathLike, fields: Mapping[str, str], *, client: str | None = None) -> Pooled:
    """Fields and the client column from one npz file.

    Args:
      path: the file.
      fields: for each field of an example, the name of its array in the file, as in
        ``{"x": "images", "y": "labels"}``.
      client: the name of the array with a client id per row.

    Example:
      >>> import fcojax.problems.loaders, numpy as np, tempfile
      >>> path = tempfile.mkdtemp() + "/data.npz"
      >>> np.savez(path, images=np.ones((3, 2)), labels=np.arange(3), site=["b", "a", "b"])
      >>> pooled = fcojax.problems.loaders.npz(path, {"x": "images", "y": "labels"}, client="site")
      >>> fcojax.problems.loaders.by_client(pooled).sizes.tolist()  # of a, and of b
      [1, 2]
    """
    found = find(path, _FETCH)
    with reading(found, "a numpy npz file"), np.load(found, allow_pickle=False) as arrays:
        wanted = {*fields.values(), *([client] if client else [])}
        if missing := sorted(wanted - set(arrays.files)):
            raise Foreign(f"it has no array {missing[0]}, only {', '.join(sorted(arrays.files))}")
        examples = {field: arrays[name] for field, name in fields.items()}
        column = arrays[client] if client else None
    return _pooled(examples, column, found)


def npy(
    fields: Mapping[str, str | os.PathLike], *, client: str | os.PathLike | None = None
) -> Pooled:
    """Fields and the client column from one npy file each.

    Args:
      fields: for each field of an example, the path of its file.
      client: the path of the file with a client id per row.

    Example:
      >>> import fcojax.problems.loaders, numpy as np, tempfile
      >>> path = tempfile.mkdtemp() + "/x.npy"
      >>> np.save(path, np.ones((3, 2)))
      >>> pooled = fcojax.problems.loaders.npy({"x": path})
      >>> pooled.examples["x"].shape, pooled.client is None
      ((3, 2), True)
    """

    def load(path) -> np.ndarray:
        found = find(path, _FETCH)
        with reading(found, "a numpy npy file"):
            array = np.load(found, allow_pickle=False)
            if not isinstance(array, np.ndarray):
                raise Foreign("it is an npz file; use npz")
        return array

    examples = {field: load(path) for field, path in fields.items()}
    whose = next(iter(fields.values()), "the list of fields")
    return _pooled(examples, load(client) if client else None, pathlib.Path(whose))


def _pooled(examples, column, path) -> Pooled:
    rows = {field: len(array) if array.ndim else 0 for field, array in examples.items()}
    if len(set(rows.values())) != 1 or 0 in rows.values():
        raise ValueError(f"the fields in {path} have {rows} rows; all need the same, at least one.")
    num_rows = next(iter(rows.values()))
    if column is not None and column.shape != (num_rows,):
        raise ValueError(
            f"the client column in {path} has shape {column.shape} but there are {num_rows} rows; "
            "it needs one id per row."
        )
    return Pooled({field: _plain(array) for field, array in examples.items()}, column)


def _plain(array: np.ndarray) -> np.ndarray:
    """In the precision that the library computes in: float32 and int32."""
    if array.dtype.kind == "f":
        return array.astype(np.float32, copy=False)
    if array.dtype.kind in "iu" and array.dtype.itemsize > 4:
        return array.astype(np.int32, copy=False)
    return array
