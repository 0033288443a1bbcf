r"""Which voxels separate faces from houses on every half of the scans: stability selection.

    fcojax run voxels --workdir=runs/voxels
    fcojax run voxels --workdir=runs/voxels_slice \
        --config.data_dir=DIR

Sparse logistic regression on the scans of ``configs/fmri.py``, fitted to the optimum along a path
of strengths, on 50 random halves of each session's scans and on 50 random halves of the sessions.
A voxel's frequency is the share of halves in which its weight is not zero, at the strength at which
this is largest. Yuan, Zaheer and Reddi (ICML 2021) show the voxels that one fit finds.

``DIR`` holds ``haxby_subj1_slice.npz``; without it the data are the surrogate, of which it is known
which voxels respond.
"""

from ml_collections import ConfigDict

from configs import fmri
from experiments.studies import voxels

EXPERIMENT = voxels.EXPERIMENT

# The keys of the scans, as in configs/fmri.py.
_SCANS = (
    "data_dir",
    "data_seed",
    "view",
    "held_out",
    "start_scale",
    "cuts",
    "penalty",
    "sessions",
    "grid",
    "num_voxels",
    "share_true",
    "num_blobs",
    "effect",
    "smoothing",
    "effect_spread",
)


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    scans = fmri.get_config()
    config = ConfigDict({name: scans[name] for name in _SCANS})
    config.sessions = (12, 12, 12, 12, 11, 1)  # nothing is held out for accuracies
    config.num_strengths, config.least = 10, 0.3  # of the path, the last as a share of the first
    config.num_draws = 50
    config.tolerance = 1e-3  # of the optimality conditions, relative
    config.often = 0.9  # the frequency from which a voxel counts as found
    return config


def quick(config):
    """Shrink the study to well under a minute on a laptop."""
    config.sessions = (4, 4, 1)
    config.grid, config.num_voxels, config.share_true, config.effect = (6, 6, 6), 60, 0.05, 1.0
    config.num_draws, config.num_strengths = 10, 3
