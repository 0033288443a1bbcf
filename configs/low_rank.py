"""Federated low-rank matrix estimation: Yuan, Zaheer and Reddi (ICML 2021), section 5.2, Figure 4.

    fcojax run low_rank --workdir=runs/low_rank

64 clients have 128 matrices of 32 x 32 features each; the true matrix has rank 16. Ten clients take
part in a round, with ten steps of batch size 10. Every algorithm runs over a 5 x 5 grid of rates
and three seeds and is shown at the rates with the lowest Frobenius error over the last 50 rounds.
Each of the first 100 rounds is evaluated, because the methods approach the optimum within a few
rounds of one another.

Of the sizes the paper states the rank; the others are those of the code of Bao, Crawshaw, Luo and
Liu (ICML 2022), who repeat the experiment. Three more settings are ours, as the paper's appendix is
missing from our copies: --config.true_rank=4, --config.true_rank=1 and --config.num_clients=256
--config.num_examples=32. The rank counts singular values above 0.01, which is ours too; rows also
have it at 0.0001, the default of the code of the paper.

The paper does not give the scale of the clients' means, the penalty, the grid or the number of
rounds. The means here have standard deviation 0.1, at which the paper's LASSO rate, 0.01, is
stable. The strength is the one of Bao et al.: 0.1 with half the squared error, which is 0.2 here.
With ``--config.penalty_scale=0.1`` errors are smaller, 0.41 at best, but FedDualAvg ends at rank
19.

FedAvg with subgradients, which the paper leaves out as ineffective, beside FedDualAvg:
--config.algorithms=fed_dual_avg,fed_avg_subgradient

The grid is smaller than the LASSO's because two of the four algorithms compute a singular value
decomposition in every local step.
"""

from experiments.config.keys import sweep_config
from experiments.studies import low_rank

EXPERIMENT = low_rank.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    return sweep_config(
        algorithms=("fed_dual_avg", "fed_dual_avg_osp", "fed_mid", "fed_mid_osp"),
        client_lr=(0.0001, 0.0003, 0.001, 0.003, 0.01),
        server_lr=(1.0, 3.0, 10.0, 30.0, 100.0),
        penalty_scale=(0.2,),
        num_rounds=200,
        eval_all_until=100,
        cohort_size=10,
        num_steps=10,
        batch_size=10,
        criterion="error_fro",
        criterion_rounds=50,
        num_clients=64,  # M
        num_examples=128,  # examples per client
        num_validation=32,  # validation examples per client
        side=32,  # rows and columns of the matrix
        true_rank=16,  # rank of the planted matrix
        mean_scale=0.1,  # standard deviation of clients' means
        bias_scale=1.0,  # standard deviation of the true bias
        noise_scale=1.0,  # standard deviation of the noise
        cuts=(1e-2, 1e-4),  # sizes above which an entry counts as found
    )


def quick(config):
    """Shrink the run to under a minute on a laptop."""
    config.client_lr = (0.003, 0.01)
    config.server_lr = (0.3, 1.0)
    config.num_rounds, config.eval_all_until = 100, 0
    config.seeds = (0,)
    config.num_clients = 16
    config.num_examples = 64
    config.side = 12
    config.true_rank = 6
