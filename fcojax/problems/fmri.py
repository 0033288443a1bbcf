r"""Synthetic brain scans of two stimuli, for the task of decoding the stimulus.

Modelled on the experiment of Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021,
section 5.3, on the data of Haxby et al., Science 2001: the same sizes, without files.
"""

from collections.abc import Sequence

import numpy as np
from jax.typing import ArrayLike

from fcojax.arguments import at_most, validated
from fcojax.problems.building import from_stacked
from fcojax.problems.client_data import ClientData
from fcojax.problems.logistic import logistic
from fcojax.problems.planted import recovery
from fcojax.problems.problem import Problem
from fcojax.types import Count, Matrix, NonNegative, Real, Seed, Share


@validated
def fmri_surrogate(
    *,
    sessions: Sequence[int] = (12, 12, 12, 12, 11, 12),
    num_scans: Count = 18,
    grid: tuple[int, int, int] = (40, 64, 64),
    num_voxels: Count = 39_912,
    num_blobs: Count = 8,
    share_true: Share = 0.01,
    effect: Real = 0.5,
    effect_spread: NonNegative = 0.0,
    subject_scale: NonNegative = 1.0,
    session_scale: NonNegative = 0.5,
    smoothing: NonNegative = 1.5,
    standardise: bool = True,
    cuts: Sequence[float] = (1e-4, 1e-2),
    seed: Seed = 0,
) -> Problem:
    r"""Classification of synthetic scans whose label shifts a few contiguous blobs of voxels.

    A scan of subject s in session c with label y is

    .. math:: x = a_s + c_c + g + e\,(1 + v_s) (2 y - 1)\,\pi

    with a and c normal, g normal noise smoothed in space to unit variance, and :math:`\pi` one on
    the blobs and zero elsewhere. Half of a session's labels are 1. The voxels are
    ``brain_voxels(grid, num_voxels)``. Sessions are the clients; the last subject's sessions are
    the validation data.

    The measures are ``accuracy``, the ``density`` of the kernel, and precision, recall and F1
    against the blobs.

    Args:
      sessions: number of sessions of each subject; the last subject is held out.
      num_scans: number of scans per session, even.
      grid: the shape of a scan.
      num_voxels: number of voxels, the features.
      num_blobs: number of contiguous regions that depend on the label.
      share_true: share of the voxels that are in these regions.
      effect: e, in units of the noise.
      effect_spread: standard deviation of v, the variation of the effect between subjects.
      subject_scale: standard deviation of a.
      session_scale: standard deviation of c.
      smoothing: standard deviation of the Gaussian kernel, in voxels.
      standardise: whether to subtract each voxel's mean over a session and divide by its standard
        deviation, as is done with real scans; this removes a and c.
      cuts: magnitudes above which a weight counts; all but the first appear in the measures' names.
      seed: seed of the data.

    Example:
      >>> import fcojax
      >>> problem = fcojax.problems.fmri_surrogate(
      ...     sessions=(2, 1), num_scans=4, grid=(6, 6, 6), num_voxels=80, num_blobs=1,
      ...     share_true=0.1)
      >>> problem.train.num_clients, problem.train.examples["x"].shape  # two sessions of four scans
      (2, (8, 80))
    """
    num_true = round(share_true * num_voxels)
    if num_scans % 2:
        raise ValueError(f"num_scans is {num_scans}; pass an even number, half for each label.")
    voxels = f" for {num_true} voxels that differ"
    at_most("num_blobs", num_blobs, num_true, voxels, ", or a larger share_true")
    rng = np.random.default_rng(seed)
    voxels = brain_voxels(grid, num_voxels)
    pattern = _blobs(rng, voxels, num_blobs, num_true)
    kernels = [_gaussian(size, smoothing) for size in grid]
    # Smoothed noise has the variance of an average, which is larger at the border of the grid;
    # each voxel is divided by its own standard deviation.
    deviation = np.sqrt(np.einsum("i,j,k->ijk", *((kernel**2).sum(axis=1) for kernel in kernels)))[
        tuple(voxels.T)
    ]

    def scans(shape):
        noise = rng.standard_normal((*shape, *grid), dtype=np.float32)
        for axis, kernel in enumerate(kernels, start=1):
            noise = np.moveaxis(np.tensordot(kernel, noise, (1, axis)), 0, axis)
        return noise[(slice(None), *voxels.T)] / deviation.astype(np.float32)

    def draw(subjects) -> ClientData:
        x, y = [], []
        for subject in subjects:
            base = subject_scale * rng.standard_normal(num_voxels, dtype=np.float32)
            strength = effect * (1 + effect_spread * rng.standard_normal())
            for _ in range(sessions[subject]):
                labels = rng.permutation(np.arange(num_scans) % 2)
                session = session_scale * rng.standard_normal(num_voxels, dtype=np.float32)
                scan = base + session + scans((num_scans,))
                scan += np.outer(2 * labels - 1, strength * pattern)
                if standardise:
                    scan = (scan - scan.mean(axis=0)) / scan.std(axis=0)
                x.append(scan.astype(np.float32))
                y.append(labels)
        return from_stacked(x=np.stack(x), y=np.stack(y))

    last = len(sessions) - 1
    problem, found = logistic(draw(range(last)), draw([last]), cuts=cuts), recovery(pattern, cuts)
    return problem._replace(measures=lambda params: problem.measures(params) | found(params))


@validated
def brain_voxels(grid: Sequence[Count], num_voxels: Count) -> np.ndarray:
    """Return the indices (i, j, k) of the cells nearest to the centre of a grid, in grid order.

    Distances are measured with the grid stretched to a cube, so the shape is an ellipsoid.

    Args:
      grid: number of cells along each axis.
      num_voxels: number of cells to return.

    Example:
      >>> brain_voxels((3, 3, 1), 5).tolist()
      [[0, 1, 0], [1, 0, 0], [1, 1, 0], [1, 2, 0], [2, 1, 0]]
    """
    places = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), axis=-1)
    places = places.reshape(-1, len(grid))
    distance = (((places + 0.5) / np.array(grid) - 0.5) ** 2).sum(axis=1)
    return places[np.sort(np.argsort(distance, kind="stable")[:num_voxels])]


@validated
def on_grid(weights: ArrayLike, voxels: Matrix, grid: Sequence[Count]) -> np.ndarray:
    """Arrange one weight per feature as an image on the grid, NaN outside the voxels.

    Args:
      weights: one number per voxel.
      voxels: indices (i, j, k) of each voxel, as ``brain_voxels`` returns them.
      grid: number of cells along each axis.

    Example:
      >>> on_grid(np.array([1.0, 2.0]), np.array([[0, 1], [1, 0]]), (2, 2)).tolist()
      [[nan, 1.0], [2.0, nan]]
    """
    if voxels.shape != (np.size(weights), len(grid)):
        raise ValueError(
            f"voxels has shape {voxels.shape} for {np.size(weights)} weights on a grid of "
            f"{len(grid)} axes; pass one row for each weight."
        )
    image = np.full(tuple(grid), np.nan, np.float32)
    image[tuple(np.asarray(voxels).T)] = weights
    return image


def _blobs(rng, voxels, num_blobs, num_true) -> np.ndarray:
    """Mark the ``num_true`` voxels nearest to ``num_blobs`` random ones with 1."""
    centres = voxels[rng.choice(len(voxels), num_blobs, replace=False)]
    distance = ((voxels[:, None, :] - centres) ** 2).sum(axis=2).min(axis=1)
    pattern = np.zeros(len(voxels), np.float32)
    pattern[np.argsort(distance, kind="stable")[:num_true]] = 1.0
    return pattern


def _gaussian(size: int, deviation: float) -> np.ndarray:
    """The matrix of Gaussian smoothing along one axis, with rows of sum one."""
    if deviation == 0:
        return np.eye(size, dtype=np.float32)
    place = np.arange(size)
    kernel = np.exp(-(((place[:, None] - place) / deviation) ** 2) / 2)
    return (kernel / kernel.sum(axis=1, keepdims=True)).astype(np.float32)
