"""FLamby's two tabular benchmarks: exact fits and federated methods beside published results.

    fcojax run flamby --workdir=runs/flamby --config.data_dir=FLamby

``data_dir`` is a checkout of github.com/owkin/FLamby in which its scripts have downloaded the heart
disease data; the survival data are part of it. Fed-TCGA-BRCA has 1,080 patients in six regions, and
Fed-Heart-Disease has 740 in four hospitals; the rows and the split are FLamby's.

All silos have the same weight. Exact fits are penalised Cox regression, stratified by region, and
logistic regression, at strengths chosen by folds of the train rows. Federated methods have FLamby's
budget, 100 local steps in each of 5 or 15 exchanges, and multiples of that budget, at the rates
with the least loss on a fifth of the train rows. On survival data they take full batches, because a
risk set spans its whole region. Scores are Harrell's C-index and the accuracy, on each silo's test
rows and on all test rows together.
"""

from ml_collections import ConfigDict

from fcojax_sites.studies import flamby

EXPERIMENT = flamby.EXPERIMENT


def get_config():
    """Return the config; every key can be set with --config.KEY=VALUE."""
    config = ConfigDict()
    config.data_dir = ""  # a checkout of FLamby
    config.datasets = ("fed_tcga_brca", "fed_heart_disease")
    config.seed, config.num_seeds = 0, 5
    config.penalties = ("lasso", "elastic net", "group lasso")
    config.baselines = True  # the lasso on pooled rows, and on each silo alone
    config.num_folds, config.num_draws = 5, 5  # train rows of each silo are folded
    config.num_strengths, config.least = 40, 0.01  # last strength over the first
    config.tolerance, config.max_rounds = 1e-6, 20_000
    config.num_bootstraps = 1000

    config.methods = ("fed_avg", "fed_adam", "fed_dual_avg", "scaffold")
    config.rounds = ConfigDict({"fed_tcga_brca": 5, "fed_heart_disease": 15})
    config.times = (1, 10, 100)  # multiples of ``rounds``
    config.num_steps, config.batch_size = 100, 4  # in each exchange
    config.client_lr = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)

    config.epsilons, config.delta, config.clip = (1.0, 3.0, 10.0), 0.01, 1.0
    config.num_noises = 20
    config.rules = ("mean", "trimmed mean", "median", "Krum")
    return config


def quick(config):
    """Shrink the study to well under a minute on a laptop."""
    config.num_draws, config.num_strengths, config.num_seeds, config.num_noises = 1, 10, 1, 2
    config.times, config.client_lr, config.num_bootstraps = (1, 3), (1e-3, 1e-2), 100
    config.penalties, config.baselines, config.tolerance = ("lasso",), False, 1e-3
