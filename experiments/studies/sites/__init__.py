"""Three hospitals: FedDualAvg against averaging of coordinate descent at equal budgets."""

from typing import Annotated, Any, Literal

import numpy as np

from experiments.studies.sites import claims, figures, rows
from experiments.studies.sites.problem import DESIGNS
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Numbers, Positive, Share

_Correlation = Annotated[Any, Numbers("a number between -1 and 1", lambda values: abs(values) < 1)]

EXPERIMENT = Study(
    title="Three hospitals: dual averaging against averaged coordinate descent",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=figures.draw,
    remarks=(
        "FedDualAvg finds the support better in all nine cells, by 0.18 to 0.26 where the "
        "source has 0.24 to 0.47. The least loss on validation keeps many features: the lasso "
        "on all rows has 110 to 127 nonzeros for 30 true ones and an F1 of 0.38 to 0.40, about "
        "where FedDualAvg ends, and averaged coordinate descent 0.14 to 0.19. The six cells "
        "without blocks are at 0.23 or more. What the source's blocks are we do not know, and "
        "they decide: with one step and eight seeds the difference is 0.21 and 0.23 at a "
        "correlation of 0.1 and 0.3 within blocks of 20, 0.19 at 0.5 and 0.11 at 0.8, and at "
        "0.5 it is 0.23 in blocks of 5 and 0.12 in blocks of 60. Nor do we know how the source "
        "chooses; with 500, 300 and 200 rows, as if validation came on top, four seeds of the "
        "independent design have 0.27 in place of 0.26 to 0.29. The gap of 6e-4, not 3e-5, is a "
        "matter of the strength: where validation chooses a fifth of the largest or more it is "
        "1.9e-4, at 0.15 it is 4.7e-4, below that 1.5e-3, and at 0.26, in one seed, 2.0e-5."
    ),
    captions={
        "sites": "F1 of the exactly nonzero entries, and the gap to the pooled optimum at the "
        "strength that validation chooses for the lasso on all rows."
    },
    keys={
        Literal[DESIGNS]: "designs",
        Count: "num_seeds dim num_true rows held_out block_size num_steps num_rounds num_strengths "
        "optimum_sweeps",
        CountOrZero: "data_seed",
        Positive: "magnitudes[2] rate_shares",
        Share: "least_strength",
        _Correlation: "ar_correlation block_correlation",
        NonNegative: "cut",
    },
    requires={
        "num_true of at most dim": lambda own: own.num_true <= own.dim,
        "magnitudes in ascending order": lambda own: own.magnitudes[0] <= own.magnitudes[1],
        "held_out below rows, site by site": lambda own: (
            len(own.rows) == len(own.held_out) and np.less(own.held_out, own.rows).all()
        ),
    },
)  # fmt: skip
