"""Composite bilinear saddle points: Bai and Bullins (ICLR 2024), section 6, Figures 4 and 5.

    fcojax run saddle --workdir=runs/saddle

100 clients share a bilinear problem. It has either 600 and 300 variables, with an l1 norm of
strength 0.1 in a box of radius 0.05, or matrices with 20 columns, with the nuclear norm in a ball
of the spectral norm. Each entry of a gradient has noise of standard deviation 0.1. Methods take
descent-ascent steps; FeDualEx and FedMiP take extragradient steps. Each is tuned on a quarter of
the rounds and then runs with its best rates.

Matrices have ten clients instead of 100, because every gradient takes four singular value
decompositions.

For vectors the source has 4000 rounds of one step and 400 of ten, and ten seeds; curves are flat
much earlier. It describes FedMiP's server but does not state which of the two proxes it used; both
variants are compared. It draws two minibatches for the two gradients of an extragradient step; here
they share one. The run takes 430 seconds of CPU time.
"""

from ml_collections import ConfigDict

from experiments.studies import saddle

EXPERIMENT = saddle.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.cases = ("vectors", "matrices")
    config.num_examples, config.shape = 500, (300, 600)
    config.bound, config.strength, config.noise_scale = 0.05, 0.1, 0.1
    config.seeds, config.data_seed, config.num_evaluations = (0, 1, 2), 0, 20
    config.vectors = ConfigDict()
    config.vectors.num_columns, config.vectors.num_clients = 0, 100
    config.vectors.methods = (
        "fe_dual_ex",
        "fed_mip",
        "fed_mip_client",
        "fed_dual_avg",
        "fed_mid",
        "fed_mid_client",
    )
    config.vectors.num_steps, config.vectors.num_rounds = (1, 10), (1000, 100)
    config.vectors.client_lr, config.vectors.server_lr = (0.1, 0.03, 0.01), (1.0, 0.3)
    config.vectors.tuning_share = 4
    config.matrices = ConfigDict()
    config.matrices.num_columns, config.matrices.num_clients = 20, 10
    config.matrices.methods = ("fe_dual_ex", "fed_mip_client", "fed_dual_avg")
    config.matrices.num_steps, config.matrices.num_rounds = (1, 10), (400, 40)
    config.matrices.client_lr, config.matrices.server_lr = (3.0, 1.0, 0.3), (1.0,)
    config.matrices.tuning_share = 4
    return config


def quick(config):
    """Shrink the study to well under a minute on a laptop."""
    config.cases = ("vectors",)
    config.vectors.num_clients, config.num_examples, config.shape = 10, 50, (30, 60)
    config.seeds, config.num_evaluations = (0,), 10
    config.vectors.num_rounds = (200, 20)
    config.vectors.methods = ("fe_dual_ex", "fed_mip_client", "fed_dual_avg")
    config.vectors.server_lr = (1.0,)
