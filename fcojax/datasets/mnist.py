"""MNIST in the idx format, with the writers of QMNIST as clients.

Yadav and Bottou, "Cold case: the lost MNIST digits", NeurIPS 2019, identified the
writer of each digit.
"""

import gzip
import math
import os
import pathlib
from typing import Literal

import numpy as np

from fcojax.arguments import validated
from fcojax.datasets.arrays import npz
from fcojax.datasets.pooled import Pooled
from fcojax.datasets.reading import Foreign, find_either, reading
from fcojax.problems.labels import check_labels

_NAMES = {"train": "train", "test": "t10k"}
_FETCH = (
    "download the four idx files of MNIST (yann.lecun.com/exdb/mnist or any mirror) to that folder."
)
_FETCH_WRITERS = (
    "download {} from the project facebookresearch/qmnist on GitHub and put it beside MNIST, or "
    "pass writers=False."
)
_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


@validated
def mnist(
    data_dir: str | os.PathLike, split: Literal["train", "test"] = "train", *, writers: bool = True
) -> Pooled:
    """Read images ``x``, pixels in [0, 1] with background 0, and digits ``y``, by writer.

    The files are ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte`` and
    ``qmnist-train-labels-idx2-int``, or ``t10k-...`` and ``qmnist-test-...``, with or without
    ``.gz``; or one file ``mnist_train.npz`` or ``mnist_test.npz`` with arrays ``images``,
    ``labels`` and ``writer``. The client column holds the numbers of the writers: 539 in train, 297
    others in test.

    Args:
      data_dir: the folder with the files.
      split: which part to read.
      writers: whether to read the client column.

    Example:
      >>> import fcojax.datasets, numpy as np, tempfile
      >>> folder = tempfile.mkdtemp()
      >>> np.savez(
      ...     folder + "/mnist_train.npz", images=np.zeros((2, 28, 28), np.uint8),
      ...     labels=np.array([5, 0]), writer=np.array([10, 11]))
      >>> pooled = fcojax.datasets.mnist(folder)
      >>> pooled.examples["x"].shape, pooled.examples["y"].tolist(), pooled.client.tolist()
      ((2, 784), [5, 0], [10, 11])
    """
    packed = pathlib.Path(data_dir) / f"mnist_{split}.npz"
    if packed.exists():
        names = {"images": "images", "labels": "labels"}
        arrays, column = npz(packed, names, client="writer" if writers else None)
        check_labels(arrays["labels"], 10, str(packed))
        return Pooled(_examples(**arrays), column)
    name = _NAMES[split]
    images = idx(find_either(data_dir, f"{name}-images-idx3-ubyte", _FETCH), 3)
    path = find_either(data_dir, f"{name}-labels-idx1-ubyte", _FETCH)
    labels = idx(path, 1)
    check_labels(labels, 10, str(path))
    return Pooled(_examples(images, labels), _writers(data_dir, split, labels) if writers else None)


def _examples(images, labels) -> dict[str, np.ndarray]:
    x = images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
    return {"x": x, "y": labels.astype(np.int32)}


def idx(path: str | os.PathLike, num_axes: int) -> np.ndarray:
    """Read one array in idx format, gzipped or not."""
    path = pathlib.Path(path)
    with reading(path, "an idx file"):
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _TYPES:
            raise Foreign("it does not start with the magic number of the format")
        if content[3] != num_axes:
            raise Foreign(f"its array has {content[3]} axes and not {num_axes}")
        dtype = np.dtype(_TYPES[content[2]])
        shape = tuple(np.frombuffer(content, ">u4", num_axes, offset=4).tolist())
        first, needed = 4 + 4 * num_axes, math.prod(shape) * dtype.itemsize
        if len(content) != first + needed:
            raise Foreign(
                f"its header gives {needed} bytes and {len(content) - first} follow; it was cut "
                "short or extended"
            )
        return np.frombuffer(content, dtype, offset=first).reshape(shape)


def _writers(data_dir, split, labels) -> np.ndarray:
    """Return column 2 of the QMNIST table, the writer of each digit; column 0 is the digit."""
    name = f"qmnist-{split}-labels-idx2-int"
    path = find_either(data_dir, name, _FETCH_WRITERS.format(name + ".gz"))
    table = idx(path, 2)
    # The test set of QMNIST has 50,000 more digits than that of MNIST.
    if table.shape[1] < 3 or not np.array_equal(table[: len(labels), 0], labels):
        raise ValueError(f"{path} and the labels of MNIST have different digits; fetch both again.")
    return table[: len(labels), 2].astype(np.int32)
