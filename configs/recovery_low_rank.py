"""Low-rank recovery of Bao, Crawshaw, Luo and Liu (ICML 2022), with the numbers of their code.

    fcojax run recovery_low_rank --workdir=runs/recovery_low_rank

64 clients have 128 matrices of 32 x 32 features each; the true matrix has rank 16, and client means
and the start are standard normal. Ten clients take part in a round, with ten steps of batch size 10
on half the squared error. Every method runs at the rates of the source, 0.001 and 1/600, and
Fast-FedDualAvg at its own, 1/550, too; each is shown at the one with the least mean error after the
first 500 rounds. The run takes 26 minutes of processor time; three seeds, half of that, do not
decide how much closer MC-FedDualAvg ends.

MC-FedDualAvg has stages of 250, 250 and 1000 rounds with penalties of 3, 1.5 and 1 times the last.
In the source's code all clients have the mean of the last client and are therefore identically
distributed; here each has its own mean.
"""

from experiments.config.keys import sweep_config
from experiments.studies import recovery

EXPERIMENT = recovery.LOW_RANK


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
        client_lr=(0.001, 1 / 600),
        source_lr={  # the source's client rate, by algorithm
            "fed_mid": 0.001,
            "fed_dual_avg": 0.001,
            "fast_fed_dual_avg": 1 / 550,
            "c_fed_dual_avg": 1 / 600,
            "mc_fed_dual_avg": 1 / 600,
        },
        own_grids={"fast_fed_dual_avg": {"client_lr": (0.001, 1 / 600, 1 / 550)}},
        server_lr=(1.0,),
        strong_convexity=(0.1,),  # mu in the fast methods
        penalty_scale=(0.1,),
        radius=(1250.0,),  # radius of the last stage's ball, for MC-FedDualAvg
        stage_rounds=(250,),  # rounds of each stage of MC-FedDualAvg but the last
        num_rounds=1500,
        eval_every=20,
        seeds=(0, 1, 2, 3, 4, 5),
        cohort_size=10,
        num_steps=10,
        batch_size=10,
        criterion="error",
        criterion_rounds=1000,
        target_error=1.0,  # compare the first rounds that reach this error
        num_clients=64,  # M
        num_examples=128,  # examples per client
        num_validation=32,  # validation examples per client
        side=32,  # rows and columns of the matrix
        true_rank=16,  # rank of the planted matrix
        mean_scale=1.0,  # standard deviation of clients' means
        noise_scale=1.0,  # standard deviation of the noise
        cuts=(1e-2,),  # sizes above which an entry counts as found
    )


def quick(config):
    """Shrink the run to under a minute on a laptop."""
    config.client_lr = (0.005, 0.01)
    config.own_grids.fast_fed_dual_avg.client_lr = (0.005, 0.01)
    config.seeds = (0,)
    config.num_rounds = 300
    config.stage_rounds = (50,)
    config.criterion_rounds = 200
    config.num_clients = 16
    config.num_examples = 64
    config.side = 12
    config.true_rank = 6
