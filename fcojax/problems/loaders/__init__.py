"""Files that people have, read by the libraries made for them."""

from fcojax.problems.loaders.arrays import npy, npz
from fcojax.problems.loaders.emnist import emnist
from fcojax.problems.loaders.haxby import Scans, haxby, haxby_npz, of_sessions
from fcojax.problems.loaders.leaf import leaf
from fcojax.problems.loaders.libsvm import libsvm
from fcojax.problems.loaders.mnist import mnist
from fcojax.problems.loaders.pooled import Pooled, by_client, drop_incomplete
from fcojax.problems.loaders.ratings import Ratings, ratings

__all__ = [
    "Pooled",
    "Ratings",
    "Scans",
    "by_client",
    "drop_incomplete",
    "emnist",
    "haxby",
    "haxby_npz",
    "leaf",
    "libsvm",
    "mnist",
    "npy",
    "npz",
    "of_sessions",
    "ratings",
]
