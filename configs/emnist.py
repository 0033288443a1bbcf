r"""Digits by writer under a constraint: Yuan, Zaheer and Reddi (ICML 2021), appendix B.5.

    python -m experiments.run --config=configs/emnist.py --workdir=runs/emnist
    python -m experiments.run --config=configs/emnist.py --workdir=runs/emnist_mnist \
        --config.data_dir=DIR --config.constraint=l2 --config.model=mlp

Softmax regression, or a network, whose dense kernels each lie in an l1 or an l2 ball; biases and
convolutions are unconstrained. 36 writers take part in a round, with one epoch of batch size 20,
for 200 rounds. Every algorithm runs over a 5 x 5 grid of rates and is shown at the rates with the
lowest training loss over the last 50 rounds. Three minutes on two cores without ``DIR``.

``DIR`` holds ``fed_emnist_digitsonly_train.h5`` and ``..._test.h5`` of TensorFlow Federated, of
which a tenth of the writers is read, or MNIST with the writers of QMNIST, where the writers of the
test set are held out. Without ``DIR`` the data are a synthetic softmax problem with ten classes.

The paper's main text reports no outcome and gives neither the radii nor the rates. The radius, 10,
is the one value of ``penalty_scale``; the l1 constraint is active at it on all of these problems.
"""

from experiments.studies import emnist
from experiments.sweep_config import sweep_config

EXPERIMENT = emnist.EXPERIMENT


def get_config():
    """Everything that can be set with --config.KEY=VALUE."""
    return sweep_config(
        algorithms=("fed_dual_avg", "fed_dual_avg_osp", "fed_mid", "fed_mid_osp"),
        client_lr=(0.003, 0.01, 0.03, 0.1, 0.3),
        server_lr=(0.1, 0.3, 1.0, 3.0, 10.0),
        penalty_scale=(10.0,),
        num_rounds=200,
        cohort_size=36,
        num_epochs=1,
        batch_size=20,
        criterion="loss",
        criterion_rounds=50,
        constraint="l1",
        model="softmax",
        num_hidden=200,
        share_of_writers=0.1,
        num_clients=100,
        dim=60,
        cuts=(1e-4, 1e-2),
    )


def quick(config):
    """Shrinks the run to under a minute on a laptop."""
    config.client_lr = (0.01, 0.1)
    config.server_lr = (1.0,)
    config.num_rounds = 40
    config.criterion_rounds = 20
    config.seeds = (0,)
    config.cohort_size = 5
    config.num_clients = 10
    config.dim = 20
    config.num_hidden = 16
