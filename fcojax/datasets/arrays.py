"""NumPy files with named arrays."""

import os
from collections.abc import Mapping

import numpy as np

from fcojax.arguments import validated
from fcojax.datasets.pooled import Pooled
from fcojax.datasets.reading import Foreign, find, reading

_FETCH = "pass the path of a file written by numpy.savez."


@validated
def npz(path: str | os.PathLike, fields: Mapping[str, str], *, client: str | None = None) -> Pooled:
    """Read fields and the client column from one npz file.

    Args:
      path: the file.
      fields: for each field of an example, the name of its array in the file, as in
        ``{"x": "images", "y": "labels"}``.
      client: the name of the array with a client id per row, or ``None``.

    Example:
      >>> import fcojax.datasets, numpy as np, tempfile
      >>> path = tempfile.mkdtemp() + "/data.npz"
      >>> np.savez(path, images=np.ones((3, 2)), labels=np.arange(3), site=["b", "a", "b"])
      >>> pooled = fcojax.datasets.npz(path, {"x": "images", "y": "labels"}, client="site")
      >>> fcojax.datasets.by_client(pooled).sizes.tolist()  # of a, and of b
      [1, 2]
    """
    found = find(path, _FETCH)
    with reading(found, "a numpy npz file"), np.load(found, allow_pickle=False) as arrays:
        needed = {*fields.values(), *([client] if client else [])}
        if missing := sorted(needed - set(arrays.files)):
            raise Foreign(f"it has no array {missing[0]}, only {', '.join(sorted(arrays.files))}")
        examples = {field: single(arrays[name]) for field, name in fields.items()}
        return Pooled(examples, arrays[client] if client else None)


def single(array: np.ndarray) -> np.ndarray:
    """Convert to the default precision of JAX: float32 and int32."""
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # infinity is refused where rows become clients
            return array.astype(np.float32, copy=False)
    if array.dtype.kind in "iu" and array.dtype.itemsize > 4:
        fits = array.astype(np.int32)
        return fits if np.array_equal(fits, array) else array  # refused as infinity is
    return array
