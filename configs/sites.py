"""Three hospitals share a sparse regression: FedDualAvg against averaged coordinate descent.

    python -m experiments.run --config=configs/sites.py --workdir=runs/sites

600 features, 30 of which matter with sizes uniform between 0.4 and 1.2. Sites have 400, 240 and 160
rows; 100, 60 and 40 of these validate. Designs, seeds, local steps E, rounds R and client rates,
as shares of 1 / L_max, are the source's. Per round a client sends one vector: FedDualAvg after E
full gradient steps, the baseline after E sweeps of coordinate descent on its own lasso.

The source says no more. Here signs are random, the noise has the variance of the signal, AR(1) has
correlation 0.5^|i-j|, and blocks of 20 features have correlation 0.5. Features have variance one,
sites one law and weights by their training rows; there is no intercept. L_max is the largest
eigenvalue of any site's X^T X / n, the loss half the mean squared error. Twelve strengths run from
the least that holds the pooled optimum at zero to a twentieth of it, with the same on both sides.

Seed by seed and for each design and E, a method has the rate, the strength and the number of rounds
with the least loss on all validation rows. F1 counts entries that are not exactly zero; those above
``cut`` are counted beside it. A gap is F + psi of the pooled training rows less its optimum, at the
strength with which the pooled lasso validates best, and at the rate that validates best there;
``least gap`` is that of the best rate. 630 seconds of CPU time; eleven and a half minutes on two
cores that were shared with others.
"""

from ml_collections import ConfigDict

from experiments.studies import sites

EXPERIMENT = sites.EXPERIMENT


def get_config():
    """Everything that can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.data_seed, config.num_seeds = 0, 50
    config.designs = ("independent", "AR(1)", "block")
    config.dim, config.num_true, config.magnitudes = 600, 30, (0.4, 1.2)
    config.rows, config.held_out = (400, 240, 160), (100, 60, 40)
    config.ar_correlation = 0.5
    config.block_size, config.block_correlation = 20, 0.5

    config.num_steps = (1, 5, 20)  # E
    config.num_rounds = (5, 10, 20, 50, 100)  # R, one run to the last serves all
    config.rate_shares = (0.1, 0.3, 1.0)  # of 1 / L_max
    config.num_strengths, config.least_strength = 12, 0.05
    config.cut = 0.01
    config.optimum_sweeps = 300
    return config


def quick(config):
    """Shrinks the study to well under a minute on a laptop."""
    config.designs, config.num_seeds = ("independent", "block"), 2
    config.dim, config.num_true, config.rows, config.held_out = 120, 8, (100, 60, 40), (25, 15, 10)
    config.num_steps, config.num_rounds = (1, 5), (5, 20, 100)
    config.num_strengths = 6
    config.optimum_sweeps = 1000
