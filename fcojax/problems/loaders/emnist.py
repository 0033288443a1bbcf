"""Federated EMNIST as TensorFlow Federated distributes it: HDF5, one group per writer."""

import os
from collections.abc import Sequence

import numpy as np

from fcojax.problems.labels import check_labels
from fcojax.problems.loaders.pooled import Pooled
from fcojax.problems.loaders.reading import Foreign, find, optional, reading

_FETCH = (
    "download fed_emnist_digitsonly.tar.bz2 or fed_emnist.tar.bz2, which "
    "tff.simulation.datasets.emnist.load_data of TensorFlow Federated (tensorflow.org/federated) "
    "names, unpack it, and pass the path of its _train.h5 or _test.h5 file."
)


def emnist(
    path: str | os.PathLike,
    *,
    num_classes: int = 10,
    share: float = 1.0,
    client_ids: Sequence[str] | None = None,
) -> Pooled:
    """Images ``x``, rows of pixels in [0, 1] with background 0, labels ``y``, writers as clients.

    The file has background 1; it is turned round. Both of its splits hold all writers: read the
    test file with the ``client_ids`` of the training data, to be sure of the same clients.

    Args:
      path: ``fed_emnist_digitsonly_train.h5`` and the like.
      num_classes: 10 for the digits, 62 for all characters.
      share: the part of the writers that is read, the first ones in the order of their ids.
      client_ids: the writers to read, instead of a share.

    Example:
      >>> import fcojax.problems.loaders, h5py, numpy as np, tempfile
      >>> path = tempfile.mkdtemp() + "/digits.h5"
      >>> with h5py.File(path, "w") as file:
      ...     file["examples/f0000_14/pixels"] = np.ones((2, 28, 28), np.float32)
      ...     file["examples/f0000_14/label"] = np.array([3, 7])
      >>> pooled = fcojax.problems.loaders.emnist(path)
      >>> pooled.examples["x"].shape, pooled.examples["y"].tolist(), pooled.client.tolist()
      ((2, 784), [3, 7], ['f0000_14', 'f0000_14'])

    References:
      Cohen, Afshar, Tapson and van Schaik, "EMNIST: extending MNIST to handwritten letters", IJCNN
      2017; Caldas et al., "LEAF: a benchmark for federated settings", 2018.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}; pass a number above 0 and at most 1.")
    h5py = optional("h5py", "data")
    found = find(path, _FETCH)
    pixels, labels, column = [], [], []
    with reading(found, "a federated EMNIST file"), h5py.File(found, "r") as file:
        if "examples" not in file:
            raise Foreign(f"it has {', '.join(file) or 'nothing'} where there should be examples")
        writers = file["examples"]
        known = sorted(writers)
        wanted = known[: max(1, round(share * len(known)))] if client_ids is None else client_ids
        for writer in wanted:
            if writer not in writers:
                raise Foreign(f"it has no writer {writer}")
            images, classes = writers[writer]["pixels"][()], writers[writer]["label"][()]
            if images.shape[1:] != (28, 28) or classes.shape != images.shape[:1]:
                raise Foreign(
                    f"writer {writer} has pixels {images.shape} and labels {classes.shape}"
                )
            pixels.append(1 - images.reshape(len(images), -1).astype(np.float32))
            labels.append(classes.astype(np.int32))
            column += [writer] * len(classes)
        if not column:
            raise Foreign("it has no examples")
    y = np.concatenate(labels)
    check_labels(y, num_classes, str(found))
    return Pooled({"x": np.concatenate(pixels), "y": y}, np.asarray(column))
