"""How long runs take on simulated clients, and the bias of clients that are often there.

    fcojax run time --workdir=runs/time

Synchronous servers, deadlines and buffered asynchronous servers (Nguyen et al., AISTATS 2022) run
three methods on a lasso of 20 clients, under four laws of speed, each with the same grid of client
rates and the same number of uploads. Then FedAvg runs under five laws of participation, without
and with weights p / q.
"""

from ml_collections import ConfigDict

from experiments.studies import time

EXPERIMENT = time.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.seeds = (0, 1, 2)
    config.methods = ("fed_dual_avg", "fed_avg", "scaffold")
    config.servers = ("synchronous", "deadline", "asynchronous")
    config.speeds = ("equal", "log_normal", "trace", "one_slow")
    config.client_lr = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
    config.num_steps, config.num_rounds, config.eval_every = 5, 1000, 5
    config.buffer = 5  # uploads of an asynchronous step
    config.patience = 1.5  # deadline over the median of the clients' seconds
    config.own = ConfigDict()
    config.own.num_clients, config.own.num_examples = 20, 30
    config.own.dim, config.own.num_true = 100, 10
    config.penalty_scale = 0.3
    config.participations = ("uniform", "unequal", "markov", "trace", "deadline")
    config.bias_rounds = 10_000
    return config


def quick(config):
    """Shrink the study to well under a minute on a laptop."""
    config.seeds, config.methods = (0,), ("fed_dual_avg", "scaffold")
    config.servers, config.speeds = ("synchronous", "asynchronous"), ("one_slow",)
    config.client_lr, config.num_rounds = (4e-3,), 100
    config.participations, config.bias_rounds = ("uniform", "unequal", "trace"), 200
