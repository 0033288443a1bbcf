"""Sparse recovery of Bao, Crawshaw, Luo and Liu (ICML 2022), with the numbers of their code.

    fcojax run recovery_lasso --workdir=runs/recovery_lasso

There are 64 clients with 128 examples of 1024 correlated features, half of which matter; client
means and the start point are standard normal. Ten clients take part in a round, with ten steps of
batch size 10 on half the squared error. Every method runs over the same four rates, which include
those of the source: 0.001 for FedMiD and FedDualAvg, 1/550 for Fast-FedDualAvg, 1/600 for C- and
MC-FedDualAvg. It is shown at the rate with the lowest mean error after the first 500 rounds. The
run takes three minutes of processor time.

MC-FedDualAvg has stages of 250, 250 and 1500 rounds with penalties of 4, 2 and 1 times the last.
``fast_end_points`` counts K + 1 points against K gradients, as the source's code does for
Fast-FedDualAvg. Unlike in that code, FedMiD's server prox counts all K steps.
"""

from experiments.config.keys import sweep_config
from experiments.studies import recovery

EXPERIMENT = recovery.LASSO


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    return sweep_config(
        algorithms=(
            "fed_mid",
            "fed_dual_avg",
            "fast_fed_dual_avg",
            "fast_end_points",
            "c_fed_dual_avg",
            "mc_fed_dual_avg",
        ),
        client_lr=(0.0005, 0.001, 1 / 600, 1 / 550),
        source_lr={  # the source's client rate, by algorithm
            "fed_mid": 0.001,
            "fed_dual_avg": 0.001,
            "fast_fed_dual_avg": 1 / 550,
            "c_fed_dual_avg": 1 / 600,
            "mc_fed_dual_avg": 1 / 600,
        },
        server_lr=(1.0,),
        strong_convexity=(0.1,),  # mu in the fast methods
        penalty_scale=(2.0**-5,),
        radius=(1250.0,),  # radius of the last stage's ball, for MC-FedDualAvg
        stage_rounds=(250,),  # rounds of each stage of MC-FedDualAvg but the last
        num_rounds=2000,
        eval_every=20,
        seeds=(0, 1, 2, 3, 4, 5),
        cohort_size=10,
        num_steps=10,
        batch_size=10,
        criterion="error",
        criterion_rounds=1500,
        target_error=0.75,  # compare the first rounds that reach this error
        num_clients=64,  # M
        num_examples=128,  # examples per client
        num_validation=32,  # validation examples per client
        dim=1024,  # features
        num_true=512,  # features of weight one; the other weights are zero
        mean_scale=1.0,  # standard deviation of clients' means
        correlation=0.5,  # c, where features i and j have covariance c^|i-j|
        noise_scale=1.0,  # standard deviation of the noise
        cuts=(1e-2,),  # sizes above which an entry counts as found
    )


def quick(config):
    """Shrink the run to under a minute on a laptop."""
    config.client_lr = (0.005, 0.01)
    config.seeds = (0,)
    config.num_rounds = 400
    config.stage_rounds = (50,)
    config.criterion_rounds = 300
    config.num_clients = 16
    config.num_examples = 64
    config.dim = 128
    config.num_true = 64
    config.radius = (200.0,)
