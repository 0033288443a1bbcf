"""Robust rules under attack, by the weight of the attackers, for two composite methods.

    fcojax run robust --workdir=runs/robust

Four of the 20 clients of a lasso are attackers; their total weight ranges from the 0.6 per cent of
a small site to 40 per cent. Each end point is compared with the same method's end point if the
attackers have weight zero. Each seed has its own population.
"""

from ml_collections import ConfigDict

from experiments.studies import robust

EXPERIMENT = robust.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.seeds = (0, 1, 2)
    config.methods = ("fed_dual_avg", "composite_fl")
    config.rules = ("mean", "median", "trimmed_mean", "geometric_median")
    config.attacks = ("thousandfold", "inner_product", "little_is_enough")
    config.shares = (0.006, 0.1, 0.2, 0.3, 0.4)
    config.trimmed = 0.3  # share trimmed on each side
    config.own = ConfigDict()
    config.own.num_clients, config.own.num_examples = 20, 30
    config.own.dim, config.own.num_true, config.own.bias_scale = 30, 5, 0.0
    config.num_bad, config.penalty_scale, config.client_lr = 4, 0.1, 0.02
    config.num_steps, config.num_rounds = 5, 60
    return config


def quick(config):
    """Shrink the study to well under a minute on a laptop."""
    config.seeds, config.methods = (0, 1), ("fed_dual_avg",)
    config.rules, config.attacks = ("mean", "median"), ("thousandfold",)
    config.shares = (0.006, 0.2)
    config.num_rounds = 10
