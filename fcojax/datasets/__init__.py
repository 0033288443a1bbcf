"""Readers of data sets in common file formats, and of tables; each returns pooled arrays."""

from fcojax.datasets.arrays import npz
from fcojax.datasets.emnist import emnist
from fcojax.datasets.haxby import haxby, haxby_npz
from fcojax.datasets.libsvm import libsvm
from fcojax.datasets.mnist import mnist
from fcojax.datasets.pooled import Pooled, by_client
from fcojax.datasets.ratings import ratings
from fcojax.datasets.tables import table, tables

__all__ = [
    "Pooled",
    "by_client",
    "emnist",
    "haxby",
    "haxby_npz",
    "libsvm",
    "mnist",
    "npz",
    "ratings",
    "table",
    "tables",
]
