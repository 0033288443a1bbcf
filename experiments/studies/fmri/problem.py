"""Scans by session, real or synthetic, and the clients and work of the baselines."""

import pathlib

import jax
import numpy as np

import fcojax
from experiments.study import Config, from_config, one_client, with_right, with_support
from fcojax import datasets
from fcojax.algorithms import Work
from fcojax.problems import ClientData, Problem, brain_voxels, fmri_surrogate, logistic, on_grid
from fcojax.transforms import Penalty, grid_variation, l1, named, on_subtree


def _packed(config: Config) -> pathlib.Path:
    """Return the contents of one subject's file for the view that the config names."""
    return pathlib.Path(config.data_dir) / f"haxby_subj1_{config.view}.npz"


def problem(config: Config) -> Problem:
    """Return training and held-out sessions, with the start scaled by ``start_scale``."""
    scans = _sessions(config)

    def init(key):
        return jax.tree.map(lambda leaf: config.start_scale * leaf, scans.init(key))

    known = with_support(scans._replace(init=init), config.cuts[0])
    assert scans.validation is not None
    rows = scans.validation.examples

    def right(params):
        return (rows["x"] @ params["kernel"] + params["bias"] > 0) == (rows["y"] > 0)

    return with_right(known, right, len(rows["y"]))


def _sessions(config: Config) -> Problem:
    if not config.data_dir:
        return from_config(fmri_surrogate, config, seed=config.data_seed)
    packed = _packed(config)
    if packed.exists():
        scans = datasets.by_client(datasets.haxby_npz(packed).pooled)
        held_out = np.isin(np.arange(scans.num_clients), config.held_out)
        sets = [scans.select(np.flatnonzero(kept)) for kept in (~held_out, held_out)]
    else:
        parts = (datasets.haxby(config.data_dir, subjects=s) for s in ((1, 2, 3, 4, 5), (6,)))
        sets = [datasets.by_client(part.pooled) for part in parts]
    return logistic(*sets, cuts=tuple(config.cuts))


def voxel_grid(config: Config) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return the position of each feature in the voxel grid, and the grid's shape."""
    if not config.data_dir:
        return brain_voxels(tuple(config.grid), config.num_voxels), tuple(config.grid)
    packed = _packed(config)
    if packed.exists():
        scans = datasets.haxby_npz(packed)
        return scans.voxels, scans.grid
    import nibabel

    mask = nibabel.load(pathlib.Path(config.data_dir) / "haxby2001" / "mask.nii.gz")
    inside = np.asarray(mask.dataobj) != 0  # pyright: ignore[reportAttributeAccessIssue]
    return np.argwhere(inside), inside.shape


def penalty(config: Config) -> Penalty:
    """Return the l1 norm of the voxels' weights, or their total variation in space."""
    if config.penalty == "l1":
        return on_subtree(l1(), named("kernel"))
    voxels, grid = voxel_grid(config)
    mask = np.isfinite(on_grid(np.ones(len(voxels)), voxels, grid))
    return on_subtree(grid_variation(mask), named("kernel"))


def centralized(config: Config, problem: Problem) -> tuple[ClientData, Work]:
    """Return all scans as one client, with a round's share of the authors' trainer's epochs."""
    return _trainer(config, one_client(problem))


def local(config: Config, problem: Problem) -> tuple[ClientData, Work]:
    """Return the scans of one session as one client, with the work of the same trainer."""
    own = config.local_client
    if not 0 <= own < problem.train.num_clients:
        raise ValueError(
            f"local_client is {own}; pass one of the {problem.train.num_clients} sessions, from 0."
        )
    return _trainer(config, one_client(problem, own, own + 1))


def _trainer(config: Config, data: ClientData) -> tuple[ClientData, Work]:
    """Return the data with so many steps a round that the whole run has the config's epochs.

    A round has at least one step, so small data sets have more epochs.
    """
    size = min(config.centralized_batch, data.max_size)
    steps = config.centralized_epochs * data.max_size / (size * config.num_rounds)
    return data, fcojax.local_steps(max(1, round(steps)), size)
