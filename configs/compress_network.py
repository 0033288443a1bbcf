"""Bytes to an accuracy: a small CNN on digits by three composite methods with eight codecs.

    fcojax run compress_network --workdir=runs/compress_network --config.data_dir=DIR

Every writer is a client, and all clients take part, with four local steps of batch size 10 and a
small l1 norm of the dense kernels. Every pair of a method and a codec runs with the same step sizes
and three seeds, and is shown at the step that needs the fewest bytes to the lower error.

``DIR`` holds MNIST with the writers of QMNIST, of which a part is read; the error is measured on
writers of the test set. Without ``DIR`` the data are scikit-learn's digits, divided over clients
with different labels.
"""

from ml_collections import ConfigDict

from experiments.studies import compress

EXPERIMENT = compress.NETWORK


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.data_dir, config.share_of_writers = "", 0.02
    config.data_seed, config.seeds, config.num_clients = 0, (0, 1, 2), 10
    config.own = ConfigDict()
    config.own.concentration = 1.0  # of the drawn labels, without DIR
    config.own.filters, config.own.num_hidden = (4, 8), 32
    config.own.scale, config.own.num_steps, config.own.batch_size = 1e-4, 4, 10

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
    config.alone = ()
    config.step_factors = (0.03, 0.1)  # the step itself
    config.num_rounds, config.eval_every = 24, 2
    config.tolerances = (0.4, 0.25)
    return config


def quick(config):
    """Shrink the study to well under a minute on a laptop."""
    config.methods, config.num_clients = ("composite_fl",), 4
    config.codecs = ("whole", "top_k:0.1")
    config.step_factors, config.seeds = (0.1,), (0, 1)
    config.num_rounds = 4
