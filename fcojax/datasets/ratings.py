"""Ratings as triplets (user, item, rating), for matrix completion."""

import os
from typing import NamedTuple

import numpy as np

from fcojax.arguments import validated
from fcojax.datasets.arrays import npz
from fcojax.datasets.pooled import Pooled
from fcojax.datasets.reading import find

_FETCH = (
    "download a data set of ratings, such as MovieLens 100K (grouplens.org/datasets/movielens) or "
    "Jester, write its users, items and ratings with numpy.savez, and pass the path of that file."
)


class Ratings(NamedTuple):
    """Observed entries of the matrix of users by items.

    Attributes:
      pooled: fields ``row``, ``column`` and ``value``; every user is a client.
      users: id of each row of the matrix, sorted.
      items: id of each column, sorted.

    Example:
      >>> import numpy as np
      >>> from fcojax.datasets import Pooled
      >>> rows = {"row": np.array([0, 1]), "column": np.array([0, 2]), "value": np.array([4.0, 1])}
      >>> found = Ratings(
      ...     Pooled(rows, np.array([17, 42])), users=np.array([17, 42]), items=np.array([3, 5, 8]))
      >>> found.shape
      (2, 3)
    """

    pooled: Pooled
    users: np.ndarray
    items: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self.users.size, self.items.size


@validated
def ratings(
    path: str | os.PathLike, *, names: tuple[str, str, str] = ("user", "item", "rating")
) -> Ratings:
    """Read ratings from an npz file.

    Args:
      path: the file.
      names: names of the arrays of users, items and ratings.

    Example:
      >>> import fcojax.datasets, numpy as np, tempfile
      >>> path = tempfile.mkdtemp() + "/ratings.npz"
      >>> np.savez(path, user=[17, 42], item=[5, 3], rating=[4.0, 1.0])
      >>> found = fcojax.datasets.ratings(path)
      >>> found.shape, found.users.tolist(), found.pooled.examples["column"].tolist()
      ((2, 2), [17, 42], [1, 0])
    """
    found = find(path, _FETCH)
    user, item, value = npz(found, dict(zip("uir", names, strict=True))).examples.values()
    if user.ndim != 1 or {item.shape, value.shape} != {user.shape}:
        raise ValueError(
            f"{found} has users, items and ratings of shapes {user.shape}, {item.shape} and "
            f"{value.shape}; write three arrays of one length."
        )
    if any(
        array.dtype.kind == "f" and not np.isfinite(array).all() for array in (user, item, value)
    ):
        raise ValueError(f"{found} has entries that are not finite; leave out missing ratings.")
    users, row = np.unique(user, return_inverse=True)
    items, column = np.unique(item, return_inverse=True)
    place = np.sort(row * items.size + column)
    if twice := (place[1:] == place[:-1]).sum():
        raise ValueError(
            f"{found} rates {twice} pairs of user and item more than once; keep one rating each."
        )
    examples = {"row": row.astype(np.int32), "column": column.astype(np.int32)}
    examples |= {"value": np.asarray(value, np.float32)}
    return Ratings(Pooled(examples, np.asarray(user)), users, items)
