r"""Faces against houses from scans of the brain: Yuan, Zaheer and Reddi (ICML 2021), section 5.3.

    fcojax run fmri --workdir=runs/fmri
    fcojax run fmri --workdir=runs/fmri_slice \
        --config.data_dir=DIR --config.cohort_size=9

Figures 1 and 5 show sparse logistic regression with sessions as clients, 18 scans each, and a
penalty of 1e-3. Every algorithm runs over a 9 x 5 grid of rates for the paper's 300 rounds and is
shown at the rates with the lowest objective over the last 40, beside the trainer of the authors'
code, proximal gradient descent with batches of 32 and 50 epochs, on all sessions pooled
(centralized) and on one session only (local, one step a round).

``DIR`` holds one of two data sets. ``haxby2001`` has the six subjects of Haxby et al. (2001) with
39,912 voxels; the sixth is held out. ``haxby_subj1_slice.npz`` has half a slice of the first
subject with 12 sessions; the sessions in ``held_out`` are held out, so only 9 train. With the view
``wholebrain_25mm``, ``haxby_subj1_wholebrain_25mm.npz`` has the whole brain of that subject at 25
mm.

Without ``DIR`` the data are a surrogate with 600 voxels, about as many as the slice. Its effect is
chosen such that a single session carries signal and all sessions do not decide everything: the
minimiser of the objective on one of three sessions has an accuracy of 0.66 in the mean, and that on
all sessions 0.906. The noise is not smooth, because with smooth noise the edges of the regions give
them away, and the pooled minimiser makes no mistake. 8,100 scans are held out, so 0.01 is three
standard errors of an accuracy. With 4,989 voxels, more than scans, one session has 0.56 to 0.58
where all have 0.91 to 0.93. The full size, with smooth noise and all methods accurate, is
--config.grid=40,64,64 --config.num_voxels=39912 --config.effect=0.5 --config.smoothing=1.5
--config.num_blobs=8 --config.sessions=12,12,12,12,11,12.

The paper does not state the cohort, the local work, the grid, or how its baselines were tuned. We
use ten clients per round, two steps of batch size 9, and rates from 1e-4 up, because the squared
norm of a row is the number of voxels.
"""

from experiments.config.keys import sweep_config
from experiments.studies import fmri

EXPERIMENT = fmri.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    return sweep_config(
        algorithms=(
            "fed_dual_avg",
            "fed_dual_avg_osp",
            "fed_mid",
            "fed_mid_osp",
            "fed_avg_subgradient",
            "centralized",
            "local",
        ),
        client_lr=(0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
        server_lr=(0.1, 0.3, 1.0, 3.0, 10.0),
        penalty_scale=(1e-3,),
        own_grids={"centralized": {"server_lr": (1.0,)}, "local": {"server_lr": (1.0,)}},
        num_rounds=300,
        eval_every=20,
        cohort_size=10,
        num_steps=2,
        batch_size=9,
        penalty="l1",  # or "grid_variation", the total variation in space
        criterion="objective",
        criterion_rounds=40,
        data_dir="",  # the folder of the data; if empty, the data are synthetic
        centralized_epochs=50,  # epochs of both baselines, as in the authors' code
        centralized_batch=32,  # batch size of both baselines
        local_client=0,  # the session of the local baseline
        held_out=(9, 10, 11),  # sessions held out from training
        start_scale=1.0,  # factor on the start, Glorot's uniform weights
        cuts=(1e-4, 1e-2),  # sizes above which an entry counts as found
        view="slice",  # the part of the real subject, or "wholebrain_25mm"
        sessions=(12, 12, 12, 12, 11, 450),  # sessions of each subject of the surrogate
        grid=(10, 16, 16),  # voxels along each axis of the surrogate
        num_voxels=600,  # voxels within the brain
        share_true=0.01,  # share of voxels that respond
        num_blobs=2,  # regions of these voxels
        effect=0.6,  # size of the response
        smoothing=0.0,  # standard deviation in voxels of the kernel that smooths the noise
        effect_spread=0.0,  # standard deviation of the response between subjects
    )


def quick(config):
    """Shrink the run to under a minute on a laptop."""
    config.algorithms = ("fed_dual_avg", "fed_mid", "fed_avg_subgradient", "centralized", "local")
    config.client_lr = (0.001, 0.01)
    config.server_lr = (1.0,)
    config.num_rounds = 100
    config.criterion_rounds = 40
    config.seeds = (0,)
    config.cohort_size = 6
    config.sessions = (4, 4, 4)
    config.grid = (8, 12, 12)
    config.num_voxels = 600
    config.share_true = 0.05
