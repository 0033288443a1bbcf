"""Kilobytes to a solution: three composite methods with eight codecs on a heterogeneous lasso.

    fcojax run compress --workdir=runs/compress

Eight clients have different Hessians and true weights in 20 dimensions, in double precision and
with exact gradients. Every pair of a method and a codec runs with the same step sizes, multiples of
1 / (K L), and is shown at the one that needs the fewest bytes to a relative distance of 1e-6.
FedDualAvg takes one local step, because with several it converges to another point even without
compression; composite FL and SCAFFOLD take ten. The uploads of FedDualAvg do not vanish at the
solution, so its feedback is EF21; the uploads of the other two vanish, so their feedback is EF14.
Bytes count the encoded uploads of all clients.
"""

from ml_collections import ConfigDict

from experiments.studies import compress

EXPERIMENT = compress.LASSO


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.data_seed, config.seeds = 0, (0,)
    config.num_clients, config.dim, config.num_true = 8, 20, 7
    config.own = ConfigDict()
    config.own.num_examples, config.own.spectrum = 40, (0.05, 8.0)
    config.own.spread, config.own.scale, config.own.num_steps = 0.6, 0.8, 10

    config.methods = ("fed_dual_avg", "composite_fl", "scaffold")
    config.codecs = (
        "whole",
        "half",
        "natural",
        "qsgd:7",
        "drive:least_error",
        "sign",
        "top_k:0.1",
        "top_k:0.1+natural",
    )
    config.alone = ("top_k:0.1",)  # codecs that also run without feedback
    config.step_factors = tuple(2.0 ** (k / 2) for k in range(-2, 10))  # units of 1 / (K L)
    config.num_rounds, config.eval_every = 1000, 2
    config.tolerances = (1e-3, 1e-6)
    return config


def quick(config):
    """Shrink the study to well under a minute on a laptop."""
    config.methods = ("composite_fl",)
    config.codecs = ("whole", "top_k:0.1")
    config.step_factors = (0.5, 1.0)
    config.num_rounds, config.eval_every = 400, 5
