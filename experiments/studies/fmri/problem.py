"""Scans by session, read or drawn, for sparse logistic regression."""

import pathlib

import jax
import numpy as np

from fcojax.problems import brain_voxels, fmri_surrogate, loaders, logistic
from fcojax.transforms import l1, named, on_subtree

_SLICE = "haxby_subj1_slice.npz"


def problem(config):
    """Sessions to train on, and held-out ones, with a start of the scale that was asked for."""
    scans = _sessions(config)

    def init(key):
        return jax.tree.map(lambda leaf: config.start_scale * leaf, scans.init(key))

    return scans._replace(init=init)


def _sessions(config):
    if not config.data_dir:
        return fmri_surrogate(
            sessions=tuple(config.sessions),
            grid=tuple(config.grid),
            num_voxels=config.num_voxels,
            share_true=config.share_true,
            effect=config.effect,
            effect_spread=config.effect_spread,
            cuts=tuple(config.cuts),
            seed=config.data_seed,
        )
    packed = pathlib.Path(config.data_dir) / _SLICE
    if packed.exists():
        pooled = loaders.haxby_npz(packed).pooled
        sessions = np.unique(np.asarray(pooled.client))
        judges = np.isin(np.arange(sessions.size), config.held_out)
        train, validation = (
            loaders.of_sessions(pooled, sessions[which].tolist()) for which in (~judges, judges)
        )
    else:
        train = loaders.haxby(config.data_dir, subjects=(1, 2, 3, 4, 5)).pooled
        validation = loaders.haxby(config.data_dir, subjects=(6,)).pooled
    return logistic(
        loaders.by_client(train), loaders.by_client(validation), cuts=tuple(config.cuts)
    )


def penalty(config):
    """The l1 norm of the weights; the bias stays free."""
    del config
    return on_subtree(l1(), named("kernel"))


def places(config) -> tuple[np.ndarray, tuple[int, ...]]:
    """The position of each feature in the voxel grid, and the grid's shape."""
    if not config.data_dir:
        return brain_voxels(tuple(config.grid), config.num_voxels), tuple(config.grid)
    packed = pathlib.Path(config.data_dir) / _SLICE
    if packed.exists():
        scans = loaders.haxby_npz(packed)
        return scans.voxels, scans.grid
    import nibabel

    mask = nibabel.load(pathlib.Path(config.data_dir) / "haxby2001" / "mask.nii.gz")
    inside = np.asarray(mask.dataobj) != 0  # pyright: ignore[reportAttributeAccessIssue]
    return np.argwhere(inside), inside.shape
