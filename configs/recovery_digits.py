r"""The digits of Bao, Crawshaw, Luo and Liu (ICML 2022): softmax regression with an l1 norm.

    fcojax run recovery_digits --workdir=runs/recovery_digits \
        --config.data_dir=DIR

36 writers take part in a round, weighted by their examples, with 40 steps of batch size 25, from
zero. The rates are the source's: 0.01 for FedMiD and FedDualAvg, and 1/25 for the others, with
strong convexity 0.001 and an l1 norm of 0.0001. MC-FedDualAvg has five stages with penalties of
4, 2, 1, 1 and 1 times the last. To compare all methods at the best of both rates, pass
--config.client_lr=0.01,0.04 and the same for fed_mid and fed_dual_avg of own_grids, which is twice
the work. One seed does not decide a claim; three, --config.seeds=0,1,2, do.

``DIR`` holds MNIST with the writers of QMNIST; the first 367 writers are used, as many as the
source has in its tenth of EMNIST, and a tenth of their digits is held out. Without ``DIR`` the data
are a synthetic softmax problem. The source runs 15,000 rounds, --config.num_rounds=15000
--config.stage_rounds=3000; the default is a tenth.
"""

from experiments.config.keys import sweep_config
from experiments.studies import recovery

EXPERIMENT = recovery.DIGITS


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    return sweep_config(
        algorithms=(
            "fed_mid",
            "fed_dual_avg",
            "fast_fed_dual_avg",
            "c_fed_dual_avg",
            "mc_fed_dual_avg",
        ),
        client_lr=(0.04,),
        own_grids={"fed_mid": {"client_lr": (0.01,)}, "fed_dual_avg": {"client_lr": (0.01,)}},
        source_lr={  # the source's client rate, by algorithm
            "fed_mid": 0.01,
            "fed_dual_avg": 0.01,
            "fast_fed_dual_avg": 0.04,
            "c_fed_dual_avg": 0.04,
            "mc_fed_dual_avg": 0.04,
        },
        server_lr=(1.0,),
        strong_convexity=(1e-3,),  # mu in the fast methods
        penalty_scale=(1e-4,),
        radius=(1e5 / 32,),  # radius of the last stage's ball, for MC-FedDualAvg
        stage_rounds=(300,),  # rounds of each stage of MC-FedDualAvg but the last
        num_rounds=1500,
        eval_every=50,
        seeds=(0,),
        cohort_size=36,
        num_steps=40,
        batch_size=25,
        criterion="loss",
        criterion_rounds=250,
        data_dir="",  # the folder of the data; if empty, the data are synthetic
        num_clients=367,  # M
        share_held_out=0.1,  # share of examples for validation
        dim=784,  # features
        size_log_mean=4.0,  # mean logarithm of synthetic clients' sizes
        cuts=(1e-4, 1e-2),  # sizes above which an entry counts as found
    )


def quick(config):
    """Shrink the run to under a minute on a laptop."""
    config.num_rounds = 100
    config.stage_rounds = (20,)
    config.criterion_rounds = 50
    config.cohort_size = 5
    config.num_steps = 10
    config.num_clients = 20
    config.dim = 20
