"""Bytes to a solution: softmax regression on digits, by three composite methods and eight codecs.

    fcojax run compress_digits --workdir=runs/compress_digits

The data are scikit-learn's 1,797 digits of 8 x 8 pixels, divided over ten clients with different
labels; every fifth digit is kept for testing. A ridge term makes the solution unique, and an l1
norm of the kernel makes it sparse. As in ``configs/compress.py`` every pair of a method and a codec
runs with the same step sizes, multiples of 1 / (K L) with a bound L on the curvature of any client,
in double precision and with exact gradients. The run takes about four minutes.
"""

from ml_collections import ConfigDict

from experiments.studies import compress

EXPERIMENT = compress.DIGITS


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.data_dir = ""  # with the files of MNIST their first writers are the clients
    config.data_seed, config.seeds, config.num_clients, config.share_of_writers = 0, (0,), 10, 0.05
    config.own = ConfigDict()
    config.own.concentration = 1.0  # Dirichlet, of a client's labels
    config.own.ridge, config.own.scale, config.own.num_steps = 0.1, 0.005, 5

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
    config.step_factors = tuple(2.0**k for k in range(7))  # in units of 1 / (K L)
    config.num_rounds, config.eval_every = 400, 4
    config.tolerances = (1e-3, 1e-6)
    return config


def quick(config):
    """Shrink the study to well under a minute on a laptop."""
    config.methods, config.num_clients = ("composite_fl",), 4
    config.codecs = ("whole", "top_k:0.1")
    config.step_factors = (4.0, 16.0)
    config.num_rounds = 80
