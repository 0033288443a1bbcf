"""The cost of noise on uploads: four methods on a sparse logistic problem, tuning included.

    fcojax run private --workdir=runs/private

200 clients have 20 examples of 100 features each, of which 10 matter; all take part in each of 40
rounds, with five full-batch steps. Uploads are clipped to the norm `clip` times the total local
step size. Every method has the same number of rates, and at each noise level the one with the best
accuracy on public validation data is shown; each run of the search is in the ledger. FedDualAvg
gets its noise on a dual point, and composite FL before the prox; FedMiD and FedAvg with
subgradients get it on models. Each seed has its own population. Epsilons need dp-accounting.
"""

from ml_collections import ConfigDict

from experiments.studies import private

EXPERIMENT = private.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.seeds = (0, 1, 2, 3, 4)
    config.methods = ("fed_dual_avg", "composite_fl", "fed_mid", "fed_avg_subgradient")
    config.own = ConfigDict()
    config.own.num_clients, config.own.num_examples, config.own.num_validation = 200, 20, 20
    config.own.dim, config.own.num_true = 100, 10
    config.penalty_scale, config.clip = 0.05, 1.0
    config.num_steps, config.num_rounds = 5, 40
    config.client_lr = (0.03, 0.1, 0.3, 1.0)
    config.noises = (0.0, 4.0, 8.0, 16.0, 32.0)  # multipliers
    config.delta = 1e-3
    return config


def quick(config):
    """Shrink the study to well under a minute on a laptop, without noise and accounting."""
    config.seeds, config.noises = (0, 1), (0.0,)
    config.own.num_clients, config.own.dim = 20, 20
    config.client_lr, config.num_rounds = (0.1, 0.3), 20
