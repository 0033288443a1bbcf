"""Bounds of federated composite optimisation and measured gaps, and the failure of averaging.

    fcojax run theory --workdir=runs/theory

Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021. The gap of FedDualAvg's
averaged shadow iterate is compared with Lemma 4.4, which uses the measured discrepancy of the
duals, and with a theorem, with constants that follow from the paper's proof. Theorem 4.3 covers l1
and quadratics that share a Hessian; there h is also half the squared p-norm over p - 1, which is
1-strongly convex, and two of eight clients are drawn for a round, whose variance our version of the
theorem adds. Theorem 4.2 covers the unit ball and the simplex, where gradients are bounded; on the
simplex h is also the entropy, and on the ball clients are also drawn, or have weights that differ.
It covers l1 with logistic losses, whose gradients are bounded everywhere. Those of the LASSO and
their variance are not, so its data stand in the l1 ball through its minimiser. The study then shows
the curse of primal averaging: with the optimum on the sphere, FedMiD ends far inside the ball and
FedDualAvg does not; with l1 the mean of the clients' models is dense, though these are sparse,
since each client has 15 features of its own beside the 16 that matter to all. (Their steps use all
rows: with batches of ten, noise alone fills 0.83 of their entries.) Theorem 4.1 is compared with
the mean model of a run whose client rate is small, and with that of minibatches, one step a round;
it is false for FedMiD, with a constraint too, where this run does not show it (see
docs/theorem_4_1.md). The study takes minutes on two cores.
"""

from ml_collections import ConfigDict

from experiments.studies import theory

EXPERIMENT = theory.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.data_seed = 0
    config.num_draws = 64  # draws of the noise, each with its negative
    config.l1_clients = 8
    config.l1_dim = 20
    config.l1_scale = 0.15
    config.l1_num_steps = (1, 4, 16)  # in the Euclidean geometry
    config.sampled_num_steps = (1, 4, 16)  # in the same, with a cohort of
    config.sampled_cohort_size = 2
    config.p_norm_num_steps = (1, 4, 16)  # in the geometry of the p-norm
    config.p_norm_exponent = 1.2  # p, near 2 ln d / (2 ln d - 1), for d = l1_dim
    config.ball_clients = 6
    config.ball_dim = 10
    config.ball_num_steps = (1, 4, 20)
    config.simplex_clients = 6
    config.simplex_dim = 30
    config.simplex_num_steps = (1, 4, 20)  # in the Euclidean geometry
    config.entropy_num_steps = (1, 4, 20)  # in the geometry of the entropy
    config.ball_sampled_num_steps = config.ball_weighted_num_steps = (1, 4, 20)
    config.weighted_ratio = 2.0  # of a client's weight to that of the one before
    config.logistic_clients = config.lasso_clients = 8
    config.logistic_dim = config.lasso_dim = 20
    config.logistic_num_steps = config.lasso_num_steps = (1, 4, 16)
    config.logistic_scale = 0.02  # of the l1 norm
    config.lasso_scale = 0.5  # of the l1 norm, whose minimiser is on the sphere of the ball

    config.rate_shares = (1.0, 0.1, 0.01)  # in units of 1 / (4 L)
    config.num_rounds = 100
    config.eval_every = 5
    config.seeds = 40
    config.term_counts = (2, 4, 8, 16, 32)  # clients, steps, and tenths of the rounds
    config.curse_shares = (1.0, 0.02)
    config.curse_steps = 20
    config.curse_rounds = 400
    config.curse_eval_every = 5
    config.curse_seeds = (0, 1, 2, 3, 4)

    config.small_client_lr = 1e-4
    config.small_num_steps = 8
    config.small_rounds = 4000
    config.small_eval_every = 200
    config.sparsity_clients = 16
    config.sparsity_dim = 256
    config.sparsity_steps = 20
    config.sparsity_client_lr = 0.003
    config.sparsity_rounds = 200
    config.sparsity_eval_every = 10
    return config


def quick(config):
    """Shrink the study to a few minutes on a laptop."""
    config.l1_num_steps = config.sampled_num_steps = config.p_norm_num_steps = (4,)
    config.ball_num_steps = config.simplex_num_steps = config.entropy_num_steps = (4,)
    config.ball_sampled_num_steps = config.ball_weighted_num_steps = (4,)
    config.logistic_num_steps = config.lasso_num_steps = (4,)
    config.num_rounds = 40
    config.eval_every = 20
    config.seeds = 10
    config.term_counts = (2, 8)
    config.curse_rounds = 200
    config.curse_eval_every = 50
    config.curse_seeds = (0, 1, 2)
    config.small_rounds = 200
    config.small_eval_every = 100
    config.sparsity_clients = 4
    config.sparsity_dim = 64
    config.sparsity_rounds = 20
