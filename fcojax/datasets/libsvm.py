"""The sparse text format of LIBSVM, read by scikit-learn."""

import os
from collections.abc import Sequence

import numpy as np

from fcojax.arguments import validated
from fcojax.datasets.pooled import Pooled
from fcojax.datasets.reading import Foreign, find, optional, reading
from fcojax.problems import sparse_rows
from fcojax.types import Count

_FETCH = (
    "download a data set from the LIBSVM Data page (www.csie.ntu.edu.tw/~cjlin/libsvmtools/"
    "datasets) and pass its path; .gz and .bz2 need not be unpacked."
)
_MOST_DENSE = 1 << 31  # bytes; a larger array is likely to be a mistake and to exhaust the memory


@validated
def libsvm(
    path: str | os.PathLike,
    *,
    sparse: bool = False,
    num_features: Count | None = None,
    classes: Sequence[float] | None = None,
    regression: bool = False,
) -> Pooled:
    r"""Read features ``x`` and targets ``y`` from one file; there is no client column.

    Features are numbered from 1, or from 0 if one of them is 0.

    Args:
      path: the file; gzip and bzip2 by suffix.
      sparse: whether ``x`` is ``SparseRows``; a dense array of more than 2 GiB is refused.
      num_features: number of columns of ``x``; pass it for a test file, whose last features may not
        occur.
      classes: labels of the file in the order of the classes 0, 1, ...; by default the labels that
        occur, sorted, so that -1 and +1 become 0 and 1.
      regression: whether targets are kept as numbers, not converted to classes.

    Example:
      >>> import fcojax.datasets, pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "train.txt"
      >>> _ = path.write_text("+1 1:0.5 3:2.0\n-1 2:1.0\n")
      >>> pooled = fcojax.datasets.libsvm(path)
      >>> pooled.examples["x"].tolist(), pooled.examples["y"].tolist()
      ([[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]], [1, 0])
    """
    datasets = optional("sklearn.datasets", "data")
    found = find(path, _FETCH)
    with reading(found, "LIBSVM text"):
        x, y = datasets.load_svmlight_file(
            os.fspath(found), n_features=num_features, dtype=np.float32
        )
        if not y.size:
            raise Foreign("it has no examples")
    dense_bytes = x.shape[0] * x.shape[1] * x.dtype.itemsize
    if not sparse and dense_bytes > _MOST_DENSE:
        raise ValueError(
            f"{found} has {x.shape[0]} rows of {x.shape[1]} features, {dense_bytes / 2**30:.1f} "
            "GiB as a dense array; pass sparse=True."
        )
    features = sparse_rows(x) if sparse else x.toarray()
    with np.errstate(over="ignore"):  # infinity is refused where rows become clients
        examples = {"x": features, "y": y.astype(np.float32)}
    if not regression:
        known = np.unique(y) if classes is None else np.asarray(classes, float)
        label, row = np.nonzero(known[:, None] == y)
        if row.size < y.size:
            first = int(np.setdiff1d(np.arange(y.size), row)[0])
            raise ValueError(
                f"label {y[first]:g} in row {first} of {found} is not among the classes "
                f"{known.tolist()}; pass all labels that occur."
            )
        examples["y"] = label[np.argsort(row)].astype(np.int32)
    return Pooled(examples)
