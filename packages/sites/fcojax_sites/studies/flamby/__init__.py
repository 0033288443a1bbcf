"""FLamby's tabular benchmarks: exact fits and federated methods beside published results."""

from typing import Literal

from fcojax.experiments import Study
from fcojax.types import Count, CountOrZero, Positive, Share
from fcojax_sites.studies.flamby import claims, figures, rows
from fcojax_sites.studies.flamby.data import DATASETS

EXPERIMENT = Study(
    title="FLamby's survival and heart disease beside its published figures",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=figures.draw,
    captions=dict.fromkeys(
        DATASETS,
        "Blue: our fits, with 95 % intervals over test patients. Grey: FLamby's strategies, means "
        "over five seeds as its repository reports them.",
    ),
    x64=True,
    printed=[
        f"{name}{part}"
        for name in DATASETS
        for part in ("", ", by silo", ", private", ", one malicious silo")
    ],
    keys={
        Literal[*DATASETS]: "datasets",
        Literal[*rows.METHODS]: "methods",
        Literal[*rows.RULES]: "rules",
        Literal["lasso", "elastic net", "group lasso"]: "penalties",
        bool: "baselines",
        str: "data_dir",
        Count: "rounds.* num_steps batch_size times num_folds num_draws num_strengths max_rounds "
        "num_seeds num_noises num_bootstraps",
        CountOrZero: "seed",
        Positive: "client_lr epsilons clip delta tolerance",
        Share: "least",
    },
    requires={
        "times with 1": lambda config: 1 in config.times,
        "penalties with lasso": lambda config: rows.PENALISED in config.penalties,
        "methods with fed_dual_avg": lambda config: "fed_dual_avg" in config.methods,
    },
)
