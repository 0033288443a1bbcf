"""Brain scans of subjects who see faces or houses, with sessions as clients.

Haxby, Gobbini, Furey, Ishai, Schouten and Pietrini, "Distributed and overlapping representations of
faces and objects in ventral temporal cortex", Science 2001.
"""

import os
import pathlib
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fcojax.arguments import validated
from fcojax.datasets.arrays import npz
from fcojax.datasets.pooled import Pooled
from fcojax.datasets.reading import Foreign, find, optional, reading

_FETCH = (
    "unpack the data of Haxby et al. (2001), which the PyMVPA project describes "
    "(pymvpa.org/datadb/haxby2001.html), into haxby2001/subj1 to subj6 in the data folder with "
    "nilearn's mask.nii.gz beside them, as nilearn.datasets.fetch_haxby does for a data folder."
)


class Scans(NamedTuple):
    """Scans as rows of voxels.

    Attributes:
      pooled: fields ``x`` and ``y``; clients are sessions, named ``subj1.run00`` and so on.
      voxels: position of each feature in the grid, one row (i, j, k) per feature.
      grid: shape of the grid.

    Example:
      >>> import numpy as np
      >>> from fcojax.datasets import Pooled
      >>> pooled = Pooled({"x": np.ones((2, 3)), "y": np.arange(2)}, np.array(["subj1.run00"] * 2))
      >>> scans = Scans(pooled, voxels=np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0]]), grid=(2, 2, 2))
      >>> scans.pooled.examples["x"].shape[1] == len(scans.voxels)
      True
    """

    pooled: Pooled
    voxels: np.ndarray
    grid: tuple[int, ...]


@validated
def haxby(
    data_dir: str | os.PathLike,
    *,
    subjects: Sequence[int] = (1, 2, 3, 4, 5),
    stimuli: tuple[str, str] = ("house", "face"),
) -> Scans:
    """Read the scans of some subjects, masked and standardised within each session by nilearn.

    The published split trains on five subjects and validates on the sixth: call it once with
    ``subjects=(1, 2, 3, 4, 5)`` and once with ``subjects=(6,)``. Subject 5 has eleven sessions with
    labels and the others twelve, of 18 scans each.

    Args:
      data_dir: the folder that contains ``haxby2001``.
      subjects: numbers from 1 to 6, at least one.
      stimuli: the two kinds of picture to keep; the second one gets label 1.

    Example:
      >>> import fcojax.datasets
      >>> fcojax.datasets.haxby("no_such_folder", subjects=(1,))
      Traceback (most recent call last):
          ...
      ValueError: there is no no_such_folder/haxby2001/mask.nii.gz; unpack the data of Haxby ...
    """
    maskers, nibabel = optional("nilearn.maskers", "fmri"), optional("nibabel", "fmri")
    root = pathlib.Path(data_dir) / "haxby2001"
    mask_path = find(root / "mask.nii.gz", _FETCH)
    with reading(mask_path, "a mask in NIfTI format"):
        mask = nibabel.load(mask_path)
        inside = np.asarray(mask.dataobj) != 0
    x, y, column = [], [], []
    for subject in subjects:
        folder = root / f"subj{subject}"
        labels, run = _read_labels(find(folder / "labels.txt", _FETCH))
        scans = find(folder / "bold.nii.gz", _FETCH)
        with reading(scans, "a series of scans in NIfTI format that fits the mask"):
            masker = maskers.NiftiMasker(
                mask_img=mask, runs=run, standardize="zscore_sample", dtype=np.float32
            )
            signal = masker.fit().transform(os.fspath(scans))
            if len(signal) != len(labels):
                raise Foreign(f"it has {len(signal)} scans for {len(labels)} labels")
        _take(signal, labels, run, stimuli, f"subj{subject}", (x, y, column))
    pooled = Pooled({"x": np.concatenate(x), "y": np.concatenate(y)}, np.concatenate(column))
    return Scans(pooled, np.argwhere(inside), inside.shape)


@validated
def haxby_npz(path: str | os.PathLike, *, stimuli: tuple[str, str] = ("house", "face")) -> Scans:
    """Read one subject's scans from an npz file, and standardise them within each session.

    Each voxel's linear trend over a session is removed first. The file has ``X`` [scans, voxels],
    ``labels`` (strings), ``run`` (numbers from 0), ``voxel_ijk`` [voxels, 3] and, optionally,
    ``mask`` with the shape of the grid.

    Args:
      path: the file.
      stimuli: the two kinds of picture to keep; the second one gets label 1.

    Example:
      >>> import fcojax.datasets, numpy as np, tempfile
      >>> path, rng = tempfile.mkdtemp() + "/subj1.npz", np.random.default_rng(0)
      >>> np.savez(
      ...     path, X=rng.normal(size=(8, 3)), labels=np.array(["house", "face"] * 4),
      ...     run=np.repeat([0, 1], 4), voxel_ijk=np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0]]))
      >>> scans = fcojax.datasets.haxby_npz(path)
      >>> scans.pooled.examples["y"].tolist(), sorted(set(scans.pooled.client.tolist()))
      ([0, 1, 0, 1, 0, 1, 0, 1], ['subj1.run00', 'subj1.run01'])
    """
    found = find(path, "pass an npz file with arrays X, labels, run and voxel_ijk.")
    fields = {"x": "X", "labels": "labels", "run": "run"}
    examples = npz(found, fields).examples
    with reading(found, "an npz file of scans"), np.load(found) as arrays:
        voxels = arrays["voxel_ijk"]
        grid = arrays["mask"].shape if "mask" in arrays else tuple(voxels.max(axis=0) + 1)
    signal, run = examples["x"].astype(np.float32), examples["run"]
    for number in np.unique(run):
        signal[run == number] = _standardise(signal[run == number])
    parts: tuple[list, list, list] = ([], [], [])
    _take(signal, examples["labels"], run, stimuli, "subj1", parts)
    x, y, column = map(np.concatenate, parts)
    return Scans(Pooled({"x": x, "y": y}, column), voxels, tuple(map(int, grid)))


def _read_labels(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the stimulus and the session of each scan."""
    with reading(path, "a table of labels and sessions"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an empty file, which is refused below
        rows = np.loadtxt(path, ndmin=2, dtype=str, skiprows=1, usecols=(0, 1))
        if not rows.size:
            raise Foreign("it is empty")
        return rows[:, 0], rows[:, 1].astype(int)


def _take(signal, labels, run, stimuli, name, parts) -> None:
    """Append the scans of the two stimuli, their labels and their sessions' ids."""
    kept = np.isin(labels, stimuli)
    if missing := set(stimuli) - set(labels[kept].tolist()):
        raise ValueError(
            f"{name} has no scan of a {min(missing)}; pass two of "
            f"{', '.join(np.unique(labels).tolist())}."
        )
    x, y, column = parts
    x.append(np.asarray(signal[kept], np.float32))
    y.append((labels[kept] == stimuli[1]).astype(np.int32))
    column.append(np.array([f"{name}.run{number:02d}" for number in run[kept]]))


def _standardise(signal: np.ndarray) -> np.ndarray:
    """Scale each column to mean 0 and standard deviation 1, without its linear trend."""
    signal = signal - signal.mean(axis=0)
    line = np.linspace(-1, 1, len(signal), dtype=np.float32)
    signal -= np.outer(line, line @ signal / (line @ line))
    deviation = signal.std(axis=0, ddof=1)
    return signal / np.where(deviation > 0, deviation, 1)
