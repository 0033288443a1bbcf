"""Three sites share a sparse regression: FedDualAvg compared with averaged coordinate descent.

    fcojax run sites --workdir=runs/sites

This is the simulation of K. Bolouri's federated lasso study (KeivanBolouri/federated-lasso). Of 600
features 30 matter, with sizes uniform between 0.4 and 1.2. Sites have 400, 240 and 160 training
rows and 100, 60 and 40 validation rows. Features are AR(1), with the correlations, scales and noise
of ``laws``; the noise is relative to the standard deviation of a site's training signal.

Each site fits its lasso for 30 strengths and selects the one with the lowest error on its
validation rows; the weighted mean of the three is the strength of both methods and of the pooled
lasso. Both methods start at zero without early stopping: FedDualAvg with E full gradient steps at
the sites, with the step size of the lowest weighted validation error for this E and R, and averaged
descent with E sweeps of coordinate descent on the site's own lasso. Step sizes are given in units
of 1 / L_max, with the largest eigenvalue L_max of any site's Hessian. A gap is the objective minus
the objective of the lasso on all rows.

The source makes its claims on 50 problems per design; here the problems are drawn anew. Means agree
if they are within three standard errors of their difference. The run takes 900 seconds of CPU time.
"""

from ml_collections import ConfigDict

from fcojax_sites.studies import sites

EXPERIMENT = sites.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.data_seed, config.num_seeds = 0, 50
    config.designs = ("independent", "correlated", "heterogeneous")
    config.dim, config.num_true, config.magnitudes = 600, 30, (0.4, 1.2)
    config.rows, config.held_out, config.num_test = (400, 240, 160), (100, 60, 40), 2000
    config.weights = (0.5, 0.3, 0.2)
    config.laws = ConfigDict(  # by design: correlation, scale and noise of each site's rows
        {
            "independent": {
                "correlations": (0.0, 0.0, 0.0),
                "test_correlation": 0.0,
                "scales": (1.0, 1.0, 1.0),
                "noises": (1.0, 1.0, 1.0),
            },
            "correlated": {
                "correlations": (0.5, 0.5, 0.5),
                "test_correlation": 0.5,
                "scales": (1.0, 1.0, 1.0),
                "noises": (1.0, 1.0, 1.0),
            },
            "heterogeneous": {
                "correlations": (0.0, 0.4, 0.7),
                "test_correlation": 0.4,
                "scales": (1.0, 1.4, 0.7),
                "noises": (1.0, 1.5, 0.8),
            },
        }
    )

    config.num_steps = (1, 5, 20)  # E
    config.num_rounds = (5, 10, 20, 50, 100)  # R; one run to the last gives all of them
    config.rate_shares = (0.1, 0.3, 1.0)  # in units of 1 / L_max
    config.num_strengths, config.least_strength = 30, 0.001  # over a site's largest
    config.path_tolerance, config.optimum_tolerance = 1e-4, 1e-13  # shares of the mean square
    config.max_sweeps = 20_000
    return config


def quick(config):
    """Shrink the study to well under a minute on a laptop."""
    config.designs, config.num_seeds = ("independent", "heterogeneous"), 2
    config.dim, config.num_true, config.rows, config.held_out = 120, 8, (100, 60, 40), (25, 15, 10)
    config.num_steps, config.num_rounds, config.num_test = (1, 5), (5, 10, 100), 200
