r"""Principal components over the Stiefel manifold: Zhang, Hu, So and Johansson (NeurIPS 2024).

    fcojax run kpca --workdir=runs/kpca
    fcojax run kpca --workdir=runs/kpca_mnist \
        --config.data_dir=DIR --config.relative_lr=0.2 --config.num_rounds=520

The study compares their method with RFedAvg, RFedProx and RFedSVRG (Li and Ma, 2023), all at the
same local rate. It plots the gradient norm and the suboptimality against rounds, floats sent and
seconds, then varies the number of local steps and the batch size. Without ``data_dir`` the data
are synthetic, drawn anew for each seed, each client has its own directions, and the run takes a few
minutes. With ``data_dir`` they are MNIST, split into clients by digit and by writer, and the run
takes eleven minutes.

The paper does not give k, the rates, the number of rounds or mu. The local rate is 0.1 over the
largest eigenvalue of any client, and 0.2 on MNIST. A round is stable up to a total step of four to
five over it. At this edge, with 20 local steps of 0.2, RFedSVRG needs 1.11 to 1.17 times the rounds
of the manifold method by digit, from three starting points, and with ten steps 0.99 to 1.03 times.
The strength of RFedProx is 0.14 times that eigenvalue (10 on MNIST).

A round of RFedSVRG takes two exchanges and counts as one round. Three more parts follow: a server
step of sqrt(n), as the paper's rate requires, at a local rate that allows it; a cohort in each
round, for which the paper has no theory; and the floor of minibatches as a function of n.

In full-batch runs, in double precision, each client holds its second moment, one example of 784 x
784 numbers with the same gradients as its thousands of rows. Minibatch runs use the rows, in single
precision. ``DIR`` holds the idx files of MNIST with the writers of QMNIST, or ``mnist_train.npz``
with arrays images, labels and writer. Seconds do not include compilation.
"""

from ml_collections import ConfigDict

from experiments.studies import kpca

EXPERIMENT = kpca.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.algorithms = ("fed_manifold", "r_fed_avg", "r_fed_prox", "r_fed_svrg")
    config.data_dir = ""
    config.num_clients = 10
    config.num_components = 5
    config.relative_lr = 0.1
    config.relative_prox = 0.14
    config.server_lr = 1.0
    config.num_steps = 10
    config.num_rounds = 100
    config.eval_every = 2
    config.step_counts = (5, 10, 15, 20)
    config.batch_shares = (1 / 30, 1 / 12, 1 / 6)
    config.cohort_size = 5
    config.server_relative_lr = 0.1
    config.crowds = (5, 10, 20, 40)
    config.crowd_batch = 5
    config.seeds = (0, 1, 2, 3, 4)
    config.tolerance = 1e-5

    config.num_examples = 60
    config.dim = 30
    config.data_seed = 0
    return config


def quick(config):
    """Shrink the run to under a minute on a laptop."""
    config.num_rounds = 60
    config.step_counts = (10, 20)
    config.batch_shares = (1 / 6,)
    config.crowds = ()
    config.seeds = (0, 1)
