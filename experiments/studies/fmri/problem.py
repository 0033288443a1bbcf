"""Scans by session, from files or synthetic, for sparse logistic regression."""

import pathlib

import jax
import numpy as np

from experiments.study import Config, from_config
from fcojax import datasets
from fcojax.problems import Problem, brain_voxels, fmri_surrogate, logistic
from fcojax.transforms import Penalty, l1, named, on_subtree

_SLICE = "haxby_subj1_slice.npz"


def problem(config: Config) -> Problem:
    """Return training and held-out sessions, with the start scaled by ``start_scale``."""
    scans = _sessions(config)

    def init(key):
        return jax.tree.map(lambda leaf: config.start_scale * leaf, scans.init(key))

    return scans._replace(init=init)


def _sessions(config: Config) -> Problem:
    if not config.data_dir:
        return from_config(fmri_surrogate, config, seed=config.data_seed)
    packed = pathlib.Path(config.data_dir) / _SLICE
    if packed.exists():
        pooled = datasets.haxby_npz(packed).pooled
        sessions = np.unique(np.asarray(pooled.client))
        held_out = np.isin(np.arange(sessions.size), config.held_out)
        train, validation = (
            datasets.of_sessions(pooled, sessions[which].tolist())
            for which in (~held_out, held_out)
        )
    else:
        train = datasets.haxby(config.data_dir, subjects=(1, 2, 3, 4, 5)).pooled
        validation = datasets.haxby(config.data_dir, subjects=(6,)).pooled
    return logistic(
        datasets.by_client(train), datasets.by_client(validation), cuts=tuple(config.cuts)
    )


def penalty(config: Config) -> Penalty:
    """Return the l1 norm of the weights; the bias is free."""
    del config
    return on_subtree(l1(), named("kernel"))


def voxel_grid(config: Config) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return the position of each feature in the voxel grid, and the grid's shape."""
    if not config.data_dir:
        return brain_voxels(tuple(config.grid), config.num_voxels), tuple(config.grid)
    packed = pathlib.Path(config.data_dir) / _SLICE
    if packed.exists():
        scans = datasets.haxby_npz(packed)
        return scans.voxels, scans.grid
    import nibabel

    mask = nibabel.load(pathlib.Path(config.data_dir) / "haxby2001" / "mask.nii.gz")
    inside = np.asarray(mask.dataobj) != 0  # pyright: ignore[reportAttributeAccessIssue]
    return np.argwhere(inside), inside.shape
