"""Private federated learning: accuracy, recovery and sparsity against epsilon, with tuning."""

from typing import Literal

from experiments.studies.private import claims, figures, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive

EXPERIMENT = Study(
    title="Private uploads on a sparse logistic problem",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=figures.draw,
    captions={
        "private": "Accuracy on validation data and F1 of the exactly nonzero weights, over the "
        "epsilon of the whole search; mean and range over populations.",
        "sparsity": "Share of weights that are not zero over the noise: that on a dual leaves "
        "the model as sparse as the penalty makes it, that on models or on sums of changes does "
        "not.",
    },
    keys={
        Literal[*rows.METHODS]: "methods",
        Count: "num_steps num_rounds own.*",
        CountOrZero: "seeds",
        Positive: "client_lr clip delta",
        NonNegative: "noises penalty_scale",
    },
    requires={"noises with 0": lambda config: 0 in config.noises},
)
