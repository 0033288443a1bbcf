r"""Accuracy over nonzeros per class: a sparse linear head, trained by five clients.

    fcojax run concepts --workdir=runs/concepts

By default there are 512 features and 100 classes. A class is the presence of a few concepts, each a
feature with noise of variance 1, and the class frequencies of clients differ by Dirichlet shares.
FedDualAvg, FedDA and composite FL run at each strength of an l1 norm on the kernel, a fraction of
the smallest strength at which all entries are zero. FedAvg runs without a penalty, and its entries
of largest magnitude are kept. The bias is free. For each k, the most accurate model with on average
at most k nonzeros per class is shown; all methods are compared on the same validation rows.

    fcojax run concepts --workdir=runs/concepts_mnist --config.data_dir=DIR \
        --config.num_features=128 --config.num_classes=10 --config.kept=2,5,10,20,50,128

uses real features and 10 classes: the 128 units of the hidden layer of a network trained on
``num_network`` digits of MNIST in ``DIR``; the heads and their validation use other digits.
"""

from ml_collections import ConfigDict

from experiments.studies import concepts

EXPERIMENT = concepts.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.data_seed, config.seeds = 0, (0, 1, 2)
    config.data_dir, config.num_network = "", 4000  # a folder with MNIST, for a network's features
    config.num_features, config.num_classes, config.num_active = 512, 100, 8
    config.signal = 1.5  # a present concept's mean, in units of the noise
    config.num_train, config.num_validation = 3000, 2000
    config.num_clients, config.concentration = 5, 0.5

    config.methods = ("fed_dual_avg", "fed_da", "composite_fl", "fed_avg")
    config.strengths = (0.8, 0.6, 0.4, 0.25, 0.12, 0.06, 0.03)  # shares of lambda_max
    config.client_lr = ConfigDict()
    config.client_lr.fed_dual_avg = config.client_lr.composite_fl = (0.1, 0.3, 1.0)
    config.client_lr.fed_avg, config.client_lr.fed_da = (0.1, 0.3, 1.0), (0.003, 0.01, 0.03)
    config.num_rounds, config.num_steps, config.batch_size = 60, 5, 32
    config.kept = (2, 5, 10, 20, 50, 100, 512)  # nonzeros per class
    return config


def quick(config):
    """Shrink the study to well under a minute on a laptop."""
    config.num_features, config.num_classes, config.num_active = 40, 5, 4
    config.num_train, config.num_validation = 300, 200
    config.strengths, config.kept = (0.3, 0.03), (2, 5, 40)
    config.num_rounds, config.num_steps = 10, 2
