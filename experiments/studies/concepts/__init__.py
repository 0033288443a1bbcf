"""Accuracy of a sparse head on features against its nonzeros per class, for four methods."""

from typing import Literal

from experiments.studies.concepts import claims, figures, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive

EXPERIMENT = Study(
    title="A sparse head on concepts",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=figures.draw,
    captions={
        "accuracy": "The accuracy of the most accurate model with at most that number of nonzeros "
        "per class, the mean over seeds. FedAvg: its entries of largest magnitude."
    },
    keys={
        Literal[*rows.METHODS]: "methods",
        str: "data_dir",
        Count: "num_network num_features num_classes num_active num_train num_validation "
        "num_clients num_rounds num_steps batch_size kept",
        CountOrZero: "data_seed seeds",
        Positive: "strengths client_lr.* concentration",
        NonNegative: "signal",
    },
    requires={
        "num_active at most num_features": lambda config: config.num_active <= config.num_features
    },
)
