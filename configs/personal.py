r"""A model for each client: Ditto, and partial sharing of a sum.

    fcojax run personal --workdir=runs/personal

Lasso: 20 clients have few rows of 60 features, whose scales differ between clients. Ten features
matter to a client: eight are the same for all clients, the other two are its own; their weights are
drawn around a common weight. Digits: scikit-learn's images, at clients with Dirichlet shares of the
ten classes.

All methods have the same tuning budget: 12 points, which are 12 strengths, or 4 strengths and 3
values of a second number. The point of a method is that with the least validation loss, the mean
over the clients, each at its own model. In ``partial`` a client's model is the sum of a common and
an own part, both with an l1 norm, which is stronger on the own part. Each seed draws the problem,
or the split, anew.
"""

from ml_collections import ConfigDict

from experiments.studies import personal

EXPERIMENT = personal.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.tasks, config.seeds = ("lasso", "digits"), (0, 1, 2, 3, 4)
    config.methods = ("global", "local", "ditto", "partial")
    config.strengths = (1.0, 0.6, 0.4, 0.25, 0.15, 0.1, 0.06, 0.04, 0.025, 0.015, 0.01, 0.005)
    config.few_strengths = (0.4, 0.1, 0.03, 0.01)
    config.pulls = (0.01, 0.1, 1.0)
    config.own_strength = 1.0  # of own parts in ``partial``, over sqrt(M) times the common one
    config.num_rounds, config.num_steps = 200, 5

    config.lasso = ConfigDict({"num_clients": 20, "dim": 60, "num_shared": 8, "num_own": 2})
    config.lasso.update({"num_rows": 25, "num_held_out": 200, "spread": 0.5, "noise": 0.5})
    config.lasso.skew = 0.5  # standard deviation of the logarithms of the clients' scales
    config.digits = ConfigDict({"num_clients": 10, "concentration": 0.3})
    return config


def quick(config):
    """Shrink the study to well under a minute on a laptop."""
    config.tasks, config.seeds, config.num_rounds = ("lasso",), (0, 1), 30
    config.strengths, config.few_strengths = (0.3, 0.1), (0.1,)
    config.pulls = (0.1,)
    config.lasso.num_clients, config.lasso.dim, config.lasso.num_held_out = 5, 15, 20
