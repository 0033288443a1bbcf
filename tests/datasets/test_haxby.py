"""Scans in NIfTI files, in nilearn's layout of the data of Haxby et al.

Tests that read them are slow: importing nilearn takes seconds.
"""

import nibabel
import numpy as np
import pytest

from fcojax import datasets
from fcojax.datasets import by_client

GRID = (4, 3, 5)
NUM_RUNS, SCANS_A_RUN = 3, 12


def write_subject(folder, rng, mask_path):
    """Three runs of twelve scans: rest, faces, houses and shoes."""
    folder.mkdir(parents=True)
    labels = np.tile(["rest", "face", "house", "shoe"], 3 * NUM_RUNS)
    runs = np.repeat(np.arange(NUM_RUNS), SCANS_A_RUN)
    scans = 100 + 10 * rng.standard_normal((*GRID, len(labels))) + 50 * runs
    scans += 3 * (labels == "face")
    nibabel.Nifti1Image(scans.astype(np.float32), np.eye(4)).to_filename(folder / "bold.nii.gz")
    lines = [f"{label} {run}" for label, run in zip(labels, runs, strict=True)]
    (folder / "labels.txt").write_text("\n".join(["labels chunks", *lines]) + "\n")
    return scans.astype(np.float32), labels, runs


@pytest.fixture
def brain(tmp_path):
    rng = np.random.default_rng(0)
    root = tmp_path / "haxby2001"
    mask = rng.random(GRID) < 0.6
    subjects = {i: write_subject(root / f"subj{i}", rng, root) for i in (1, 2)}
    nibabel.Nifti1Image(mask.astype(np.uint8), np.eye(4)).to_filename(root / "mask.nii.gz")
    return tmp_path, mask, subjects


def standardised(scans, mask, runs):
    signal = scans[mask].T.astype(float)
    for run in np.unique(runs):
        part = signal[runs == run]
        signal[runs == run] = (part - part.mean(axis=0)) / part.std(axis=0, ddof=1)
    return signal


@pytest.mark.slow
def test_sessions_of_subjects_are_clients(brain):
    folder, mask, subjects = brain
    scans = datasets.haxby(folder, subjects=(1, 2))
    data = by_client(scans.pooled)
    assert data.ids.tolist() == [f"subj{s}.run{r:02d}" for s in (1, 2) for r in range(NUM_RUNS)]
    assert data.sizes.tolist() == [6] * 6
    assert data.examples["y"].tolist() == [1, 0] * 18
    expected = []
    for raw, labels, runs in subjects.values():
        expected.append(standardised(raw, mask, runs)[np.isin(labels, ["face", "house"])])
    np.testing.assert_allclose(data.examples["x"], np.concatenate(expected), atol=2e-4)
    assert data.examples["x"].dtype == np.float32
    assert scans.grid == GRID
    np.testing.assert_array_equal(scans.voxels, np.argwhere(mask))


def test_one_subject_from_an_npz_file(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.tile(["rest", "face", "house", "face", "house", "rest"], 4)
    runs = np.repeat([0, 1], 12).astype(np.int8)
    signal = rng.integers(500, 900, (24, 7)) + 5 * np.arange(24)[:, None]
    signal[:, 3] = 600  # a dead voxel
    voxels = np.stack([np.arange(7), np.zeros(7, int), np.arange(7)], axis=1)
    path = tmp_path / "subj1.npz"
    np.savez(
        path,
        X=signal.astype(np.int16),
        labels=labels,
        run=runs,
        voxel_ijk=voxels,
        mask=np.ones((8, 1, 7), bool),
    )
    scans = datasets.haxby_npz(path)
    assert scans.grid == (8, 1, 7)
    expected = signal.astype(float)
    for run in (0, 1):
        part, time = expected[runs == run], np.arange(12)
        line = np.polynomial.polynomial.polyfit(time, part, 1)
        rest = part - np.polynomial.polynomial.polyval(time, line).T
        deviation = rest.std(axis=0, ddof=1)
        expected[runs == run] = rest / np.where(deviation > 1e-6, deviation, 1)
    kept = labels != "rest"
    np.testing.assert_allclose(scans.pooled.examples["x"], expected[kept], atol=2e-3)
    assert scans.pooled.examples["y"].tolist() == [1, 0] * 8
