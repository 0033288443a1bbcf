r"""A sparse model from a file of one's own: path, validation, coefficients by name, ledger.

    python -m experiments.run --config=configs/select.py --workdir=runs/select

With ``--config.data_dir=FILE`` an npz, CSV, Parquet or LIBSVM file (or the folder with it) in which
every row has a site; without it, five sites are drawn. Four hospitals, each left out once:

    python -m experiments.run --config=configs/select.py --workdir=runs/heart \
        --config.data_dir=heart_disease.npz --config.features=X --config.target=num \
        --config.client=hospital --config.names=feature_names,hospital_names \
        --config.positive_above=0 --config.drop=slope,ca,thal

Values that are missing (empty, NA or ?) become the feature's mean, and rows without a target are
left out; both are counted on the page.

A file without sites is divided among ``num_clients``, each class in Dirichlet shares, uneven where
``concentration`` is small; an empty ``--config.client=`` asks for that:

    python -m experiments.run --config=configs/select.py --workdir=runs/a9a \
        --config.data_dir=a9a.npz --config.features=train --config.target=train_labels \
        --config.client= --config.positive_above=0

Strengths go down from the least one at which nothing is selected, which one exchange of gradients
tells. ``by`` says what decides: each ``site`` left out, folds of ``sites`` or of ``examples``, or a
criterion: ``aic``, ``bic``, ``ebic``.
"""

from ml_collections import ConfigDict

from experiments.studies import select

EXPERIMENT = select.EXPERIMENT


def get_config():
    """Everything that can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.data_dir = ""
    config.features = ""
    config.target = "y"
    config.client = "client"  # empty: the file has no sites, and its rows are divided by class
    config.num_clients = 10  # of a file without sites
    config.concentration = 0.5  # of the Dirichlet shares of each class
    config.names = ""
    config.drop = ("",)
    config.positive_above = float("inf")  # a threshold that turns numbers into two classes

    config.loss = "logistic"
    config.l1_fraction = 1.0
    config.by = "site"
    config.num_folds = 5  # where by is sites or examples
    config.num_draws = 1
    config.one_standard_error = True

    config.num_strengths = 40
    config.least = 0.01
    config.tolerance = 1e-5
    config.max_rounds = 5000
    config.seed = 0

    config.data_seed = 0
    config.sizes = (120, 90, 60, 45, 30)
    config.dim = 30
    return config


def quick(config):
    """Shrinks the study to well under a minute on a laptop."""
    config.num_strengths = 8
    config.least = 0.05
    config.max_rounds = 500
