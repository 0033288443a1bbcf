"""FedPD and FedDyn: when they are one method, and the costs of skipping and sampling.

    fcojax run fedpd_feddyn --workdir=runs/fedpd_feddyn

The clients have eight heterogeneous, strongly convex quadratics. Three things are measured: the gap
between the two methods from matching starts (the drift is the mean of the duals, as in Zhang and
Hong's note of 2021 on the two) and from other starts; FedPD's error floor against the probability
of skipping an exchange; and the rounds that FedDyn needs against the share of clients that take
part. Errors are relative to the norm of the minimiser. FedPD also runs on losses r^2 / (2 + 2 r^2).

The note requires that all clients have equal gradients at the start, and uses the opposite sign. In
fact any duals match if the drift is their mean, and gradients enter with a minus sign.

Two misprints of the note: clients exchange with probability 1 - p, as in its algorithm, where its
text has p - 1; and without skips p is 0, as in its section 3, where its last paragraph has 1.
"""

from ml_collections import ConfigDict

from experiments.studies import fedpd_feddyn

EXPERIMENT = fedpd_feddyn.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.data_seed = 0
    config.num_clients = 8
    config.dim = 20
    config.curvatures = (0.4, 1.6)
    config.num_steps = 3  # local steps of the inexact solver

    config.solvers = ("exact", "gd")
    config.prox_step = 0.5
    config.num_rounds = 300
    config.cohort_size = 4  # for the bias under sampling
    config.cohort_rounds = 3000

    config.seeds = (0, 1, 2, 3, 4)
    config.skip_prox_steps = (0.5, 0.05, 0.005)
    config.skip_probabilities = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
    config.skip_rounds = 12_000

    config.cohort_sizes = (1, 2, 3, 4, 6, 8)
    config.cohort_prox_steps = (1.0, 0.2, 0.05)
    config.tolerance = 1e-6
    config.tolerance_rounds = 3000
    return config


def quick(config):
    """Shrink the study to well under a minute on a laptop."""
    config.dim = 6
    config.solvers = ("gd",)
    config.seeds = (0, 1, 2)
    config.skip_prox_steps = (0.5, 0.05)
    config.skip_probabilities = (0.0, 0.25, 0.5)
    config.skip_rounds = 3000
    config.cohort_sizes = (2, 8)
    config.cohort_prox_steps = (1.0, 0.2)
    config.tolerance_rounds = 1500
