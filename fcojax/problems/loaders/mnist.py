"""MNIST in its own idx format, by writer where the labels of QMNIST are at hand.

Yadav and Bottou, "Cold case: the lost MNIST digits", NeurIPS 2019, found out who wrote
each digit.
"""

import gzip
import math
import os
import pathlib

import numpy as np

from fcojax.problems.labels import check_labels
from fcojax.problems.loaders.arrays import npz
from fcojax.problems.loaders.pooled import Pooled
from fcojax.problems.loaders.reading import Foreign, find_either, reading

_NAMES = {"train": "train", "test": "t10k"}
_FETCH = (
    "download the four idx files of MNIST (yann.lecun.com/exdb/mnist or any mirror) and put them "
    "there, packed or not."
)
_FETCH_WRITERS = (
    "download {} from the project facebookresearch/qmnist on GitHub and put it beside MNIST, or "
    "pass writers=False."
)
_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def mnist(data_dir: str | os.PathLike, split: str = "train", *, writers: bool = True) -> Pooled:
    """Images ``x``, rows of pixels in [0, 1] with background 0, and digits ``y``.

    The files are ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte`` and
    ``qmnist-train-labels-idx2-int``, or ``t10k-...`` and ``qmnist-test-...``, with or without
    ``.gz``; or all in one, ``mnist_train.npz`` or ``mnist_test.npz`` with arrays ``images``,
    ``labels`` and ``writer``. With the writers, the client column holds their numbers: 539 of them
    in train, 297 others in test.

    Args:
      data_dir: the folder with the files.
      split: ``"train"`` or ``"test"``.
      writers: whether to read who wrote each digit; without, there is no client column.

    Example:
      >>> import fcojax.problems.loaders, numpy as np, tempfile
      >>> folder = tempfile.mkdtemp()
      >>> np.savez(
      ...     folder + "/mnist_train.npz", images=np.zeros((2, 28, 28), np.uint8),
      ...     labels=np.array([5, 0]), writer=np.array([10, 11]))
      >>> pooled = fcojax.problems.loaders.mnist(folder)
      >>> pooled.examples["x"].shape, pooled.examples["y"].tolist(), pooled.client.tolist()
      ((2, 784), [5, 0], [10, 11])
    """
    if split not in _NAMES:
        raise ValueError(f"split is {split!r}; pass train or test.")
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
    if len(labels) != len(images):
        raise ValueError(f"{path} has {len(labels)} labels for {len(images)} images; fetch both.")
    check_labels(labels, 10, str(path))
    return Pooled(_examples(images, labels), _writers(data_dir, split, labels) if writers else None)


def _examples(images, labels) -> dict[str, np.ndarray]:
    x = images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
    return {"x": x, "y": labels.astype(np.int32)}


def idx(path: str | os.PathLike, num_axes: int) -> np.ndarray:
    """One array in idx format, packed with gzip or not."""
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
                f"its header promises {needed} bytes and {len(content) - first} follow; "
                "it was cut short or added to"
            )
        return np.frombuffer(content, dtype, offset=first).reshape(shape)


def _writers(data_dir, split, labels) -> np.ndarray:
    """The writer of each digit: column 2 of QMNIST's table, whose column 0 is the digit itself."""
    name = f"qmnist-{split}-labels-idx2-int"
    path = find_either(data_dir, name, _FETCH_WRITERS.format(name + ".gz"))
    table = idx(path, 2)
    # QMNIST's test set goes on after the ten thousand that MNIST has.
    if table.shape[1] < 3 or not np.array_equal(table[: len(labels), 0], labels):
        raise ValueError(f"{path} and the labels of MNIST name different digits; fetch both again.")
    return table[: len(labels), 2].astype(np.int32)
