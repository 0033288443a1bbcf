r"""A synthetic stand-in for decoding what somebody sees from a scan of the brain.

Made after the experiment of Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021,
section 5.3, on the data of Haxby et al., Science 2001: same sizes, no files.
"""

from collections.abc import Sequence

import numpy as np

from fcojax.problems.clients import ClientData, from_rows
from fcojax.problems.logistic import logistic
from fcojax.problems.measures import at_cuts, support_recovery
from fcojax.problems.problem import Problem


def fmri_surrogate(
    *,
    sessions: Sequence[int] = (12, 12, 12, 12, 11, 12),
    num_scans: int = 18,
    grid: tuple[int, int, int] = (40, 64, 64),
    num_voxels: int = 39_912,
    num_blobs: int = 8,
    share_true: float = 0.01,
    effect: float = 0.5,
    effect_spread: float = 0.0,
    subject_scale: float = 1.0,
    session_scale: float = 0.5,
    smoothing: float = 1.5,
    standardise: bool = True,
    cuts: Sequence[float] = (1e-4, 1e-2),
    seed: int = 0,
) -> Problem:
    r"""Scans of two kinds in which a few contiguous blobs of voxels tell which kind it is.

    A scan of subject s in session c with label y is

    .. math:: x = a_s + c_c + g + e\,(1 + v_s) (2 y - 1)\,\pi

    with a and c normal, g normal noise smoothed in space to unit variance, and :math:`\pi` one on
    the blobs and zero elsewhere. Half of a session's labels are 1. The voxels are
    ``brain_voxels(grid, num_voxels)``. Sessions are the clients; those of the last subject judge.

    The measures are ``accuracy``, the ``density`` of the kernel, and precision, recall and F1
    against the blobs.

    Args:
      sessions: how many sessions each subject has; the last subject is held out.
      num_scans: scans of a session, an even number.
      grid: the shape of a scan.
      num_voxels: features.
      num_blobs: contiguous regions that matter.
      share_true: the share of voxels in them.
      effect: e, in units of the noise.
      effect_spread: standard deviation of v, by which subjects differ in the effect.
      subject_scale: standard deviation of a.
      session_scale: standard deviation of c.
      smoothing: standard deviation of the Gaussian kernel, in voxels.
      standardise: subtract each voxel's mean over a session and divide by its deviation, as is done
        with real scans; it removes a and c.
      cuts: magnitudes above which a weight counts as found.
      seed: what the data are drawn from.

    Example:
      >>> import fcojax
      >>> problem = fcojax.problems.fmri_surrogate(
      ...     sessions=(2, 1), num_scans=4, grid=(6, 6, 6), num_voxels=80, num_blobs=1,
      ...     share_true=0.1)
      >>> problem.train.num_clients, problem.train.examples["x"].shape  # two sessions of four scans
      (2, (8, 80))
    """
    num_true = round(share_true * num_voxels)
    _refuse_bad_numbers(sessions, num_scans, grid, num_voxels, num_blobs, num_true)
    rng = np.random.default_rng(seed)
    voxels = brain_voxels(grid, num_voxels)
    pattern = _blobs(rng, voxels, num_blobs, num_true)
    kernels = [_gaussian(size, smoothing) for size in grid]
    # Neighbouring voxels share noise, so its variance is that of an average, the same away from
    # the border; there it is larger, and each voxel is divided by its own.
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
                y.append(labels.astype(np.int32))
        return from_rows({"x": np.concatenate(x), "y": np.concatenate(y)}, [num_scans] * len(x))

    last = len(sessions) - 1
    problem = logistic(draw(range(last)), draw([last]), cuts=cuts)

    def measures(params):
        found = at_cuts(lambda cut: support_recovery(params["kernel"], pattern, cut), cuts)
        return problem.measures(params) | found

    return problem._replace(measures=measures)


def brain_voxels(grid: Sequence[int], num_voxels: int) -> np.ndarray:
    """The places (i, j, k) of the cells nearest to the centre of a grid, in the grid's order.

    Distances are measured with the grid stretched to a cube, so the shape is an ellipsoid.

    Example:
      >>> brain_voxels((3, 3, 1), 5).tolist()
      [[0, 1, 0], [1, 0, 0], [1, 1, 0], [1, 2, 0], [2, 1, 0]]
    """
    places = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), axis=-1)
    places = places.reshape(-1, len(grid))
    distance = (((places + 0.5) / np.array(grid) - 0.5) ** 2).sum(axis=1)
    return places[np.sort(np.argsort(distance, kind="stable")[:num_voxels])]


def on_grid(weights, voxels: np.ndarray, grid: Sequence[int]) -> np.ndarray:
    """Weights per feature as an image on the grid, NaN outside the brain.

    Example:
      >>> on_grid(np.array([1.0, 2.0]), np.array([[0, 1], [1, 0]]), (2, 2)).tolist()
      [[nan, 1.0], [2.0, nan]]
    """
    image = np.full(tuple(grid), np.nan, np.float32)
    image[tuple(np.asarray(voxels).T)] = weights
    return image


def _blobs(rng, voxels, num_blobs, num_true) -> np.ndarray:
    """One on the voxels nearest to ``num_blobs`` random ones, ``num_true`` voxels in all."""
    centres = voxels[rng.choice(len(voxels), num_blobs, replace=False)]
    distance = ((voxels[:, None, :] - centres) ** 2).sum(axis=2).min(axis=1)
    pattern = np.zeros(len(voxels), np.float32)
    pattern[np.argsort(distance, kind="stable")[:num_true]] = 1.0
    return pattern


def _gaussian(size: int, deviation: float) -> np.ndarray:
    """The matrix that averages over neighbours along one axis, rows of sum one."""
    if deviation == 0:
        return np.eye(size, dtype=np.float32)
    place = np.arange(size)
    kernel = np.exp(-(((place[:, None] - place) / deviation) ** 2) / 2)
    return (kernel / kernel.sum(axis=1, keepdims=True)).astype(np.float32)


def _refuse_bad_numbers(sessions, num_scans, grid, num_voxels, num_blobs, num_true) -> None:
    if len(sessions) < 2 or min(sessions) < 1:
        raise ValueError(f"sessions are {tuple(sessions)}; pass one count for at least 2 subjects.")
    if num_scans < 2 or num_scans % 2:
        raise ValueError(f"num_scans is {num_scans}; pass an even number, half of each label.")
    if not 0 < num_voxels <= np.prod(grid):
        raise ValueError(f"num_voxels is {num_voxels}; a grid {grid} holds {np.prod(grid)}.")
    if not 0 < num_blobs <= num_true:
        raise ValueError(
            f"{num_blobs} blobs cannot share {num_true} voxels; raise share_true, lower num_blobs."
        )
