r"""Completion of ratings by a matrix of low nuclear norm, with groups of users as clients.

    fcojax run matrix_completion --workdir=runs/matrix_completion
    fcojax run matrix_completion --workdir=runs/jester \
        --config.data_dir=DIR

The setting follows Yuan, Zaheer and Reddi (ICML 2021), who mention the nuclear norm but complete no
matrix. A client's loss is half the sum of squared errors over its entries. The penalty is given as
a fraction of the smallest strength at which zero is the solution, so rates and strengths are
comparable between data sets. Half of the clients take part in a round, with five full-batch steps.
Every algorithm runs over a 4 x 4 grid of rates and three seeds by successive halving and is shown
at the rates with the lowest objective over the last 50 rounds. The run takes about a minute on two
cores, with or without ``DIR``.

FedManifold has no penalty, takes ``true_rank`` as given, and steps 0.1 over the largest curvature
of any client. Its point is a subspace for the columns, or the rows of ratings, to which clients fit
coefficients (Zhang, Hu, So and Johansson, NeurIPS 2024).

``DIR`` holds ``ratings.npz`` with arrays user, joke and rating (Jester). The first ``num_users``
users are read, and a tenth of all entries is held out. Without ``DIR`` the data are a noisy 40 x 60
matrix of rank 3, of which half of the entries are observed. Singular value decompositions take
nearly all of the time; ``OPENBLAS_NUM_THREADS=1`` makes them ten times faster on a busy machine.
"""

from experiments.config.keys import sweep_config
from experiments.studies import matrix_completion

EXPERIMENT = matrix_completion.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    return sweep_config(
        algorithms=("fed_dual_avg", "fed_dual_avg_osp", "fed_mid", "fed_mid_osp", "fed_manifold"),
        own_grids={"fed_manifold": {"client_lr": (0.1,), "server_lr": (1.0,)}},
        client_lr=(0.03, 0.1, 0.3, 1.0),
        server_lr=(0.3, 1.0, 3.0, 10.0),
        penalty_scale=(0.1,),
        num_rounds=200,
        cohort_size=5,
        num_steps=5,
        search="halving",
        criterion="objective",
        criterion_rounds=50,
        data_dir="",  # the folder of the data; if empty, the data are synthetic
        num_clients=10,  # M
        shape=(40, 60),  # rows and columns of the synthetic matrix
        true_rank=3,  # rank of the planted matrix
        share_seen=0.5,  # share of its entries that are observed
        noise_scale=0.1,  # standard deviation of the noise
        num_users=60,  # number of users read from ratings
        cuts=(1e-2, 1e-4),  # sizes above which an entry counts as found
    )


def quick(config):
    """Shrink the run to under a minute on a laptop."""
    config.client_lr = (0.3,)
    config.server_lr = (1.0, 3.0)
    config.num_rounds = 60
    config.criterion_rounds = 20
    config.seeds = (0,)
    config.shape = (20, 40)
    config.true_rank = 2
    config.num_users = 40
