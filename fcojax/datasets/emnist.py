"""Federated EMNIST in the HDF5 files of TensorFlow Federated, one group per writer."""

import os
from collections.abc import Sequence

import numpy as np

from fcojax.arguments import validated
from fcojax.datasets.pooled import Pooled
from fcojax.datasets.reading import Foreign, find, optional, reading
from fcojax.problems.labels import check_labels
from fcojax.types import Count, Share

_FETCH = (
    "download fed_emnist_digitsonly.tar.bz2 or fed_emnist.tar.bz2, which "
    "tff.simulation.datasets.emnist.load_data of TensorFlow Federated (tensorflow.org/federated) "
    "names, unpack it, and pass the path of its _train.h5 or _test.h5 file."
)


@validated
def emnist(
    path: str | os.PathLike,
    *,
    num_classes: Count = 10,
    share: Share = 1.0,
    client_ids: Sequence[str] | None = None,
) -> Pooled:
    """Read images ``x``, pixels in [0, 1] with background 0, and labels ``y``, by writer.

    The files have background 1; it is inverted. Both splits hold all writers. To read the same
    clients from the test file, pass the ids of the training data as ``client_ids``.

    Args:
      path: a file such as ``fed_emnist_digitsonly_train.h5``.
      num_classes: 10 for the digits, 62 for all characters.
      share: share of the writers to read, the first ones in the order of their ids.
      client_ids: ids of the writers to read, in place of a share.

    Example:
      >>> import fcojax.datasets, h5py, numpy as np, tempfile
      >>> path = tempfile.mkdtemp() + "/digits.h5"
      >>> with h5py.File(path, "w") as file:
      ...     file["examples/f0000_14/pixels"] = np.ones((2, 28, 28), np.float32)
      ...     file["examples/f0000_14/label"] = np.array([3, 7])
      >>> pooled = fcojax.datasets.emnist(path)
      >>> pooled.examples["x"].shape, pooled.examples["y"].tolist(), pooled.client.tolist()
      ((2, 784), [3, 7], ['f0000_14', 'f0000_14'])

    References:
      Cohen, Afshar, Tapson and van Schaik, "EMNIST: extending MNIST to handwritten letters", IJCNN
      2017; Caldas et al., "LEAF: a benchmark for federated settings", 2018.
    """
    h5py = optional("h5py", "data")
    found = find(path, _FETCH)
    pixels, labels, column = [], [], []
    with reading(found, "a federated EMNIST file"), h5py.File(found, "r") as file:
        writers = file["examples"]
        known = sorted(writers)
        chosen = known[: max(1, round(share * len(known)))] if client_ids is None else client_ids
        for writer in chosen:
            if writer not in writers:
                raise Foreign(f"it has no writer {writer}")
            images, classes = writers[writer]["pixels"][()], writers[writer]["label"][()]
            pixels.append(1 - images.reshape(len(images), -1).astype(np.float32))
            labels.append(classes.astype(np.int32))
            column += [writer] * len(classes)
        x, y = np.concatenate(pixels), np.concatenate(labels)
    check_labels(y, num_classes, str(found))
    return Pooled({"x": x, "y": y}, np.asarray(column))
