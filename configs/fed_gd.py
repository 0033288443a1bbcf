"""FedGD and Local SGD: the limits of local steps, and the bound of a convergence theorem.

    fcojax run fed_gd --workdir=runs/fed_gd
    fcojax run fed_gd --workdir=runs/fed_gd_credit --config.data_dir=DIR

For least squares on four clients, the study measures how far FedGD's limit is from the
least-squares solution, as a function of the local steps E and of two kinds of heterogeneity, and
compares its closed form with simulated rounds. Then it compares Local SGD with decreasing steps on
ridge and logistic regression with the bound of Theorem 1 of Li, Huang, Yang, Wang and Zhang, "On
the convergence of FedAvg on non-iid data", ICLR 2020; times Local SGD by E, with exchanges that
take as long as 1 and as 100 local steps; and measures Gamma of iid clients. It takes minutes.

``DIR`` holds German credit of the LIBSVM Data page as ``german.numer_scale`` (or its CSR arrays as
``german_numer_scale.npz``): 1,000 customers with 24 features and a constant, divided among as many
clients as ``sizes`` has, for both parts. The heterogeneity is then given and not varied.

Steps are counted from t = 0, so the theorem holds with gamma + T in place of gamma + T - 1. Its
gradient moments are the largest that occurred in the runs.
"""

from ml_collections import ConfigDict

from experiments.studies import fed_gd

EXPERIMENT = fed_gd.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.data_dir, config.concentration = "", 3.0  # Dirichlet, of each label's shares
    config.data_seed = 0
    config.sizes = (12, 20, 9, 15)
    config.dim = 6

    config.step_shares = (0.5, 1.5)  # in units of 1 / L
    config.many_steps = (1, 2, 3, 5, 10, 20, 50, 100, 300, 1000, 10_000_000)
    config.simulated_steps = (1, 2, 5, 20, 100)
    config.num_rounds = 100
    config.near_limit = 1e-6  # the share of the first distance to the limit at which a run is done

    config.instances = (0, 1, 2, 3, 4)
    config.distances = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0)
    config.spreads = (0.0, 0.03, 0.1, 0.3, 1.0)
    config.heterogeneity_steps = 10

    config.sgd_problems = ("ridge", "logistic")
    config.sgd_num_steps = (1, 5, 20)
    config.sgd_total_steps = 4000
    config.sgd_seeds = 50
    config.sgd_evaluations = 60
    return config


def quick(config):
    """Shrink the study to well under a minute on a laptop."""
    config.simulated_steps = (5,)
    config.num_rounds = 20
    config.instances = (0, 1, 2)
    config.sgd_num_steps = (5,)
    config.sgd_total_steps = 400
    config.sgd_seeds = 8
    config.sgd_evaluations = 20
