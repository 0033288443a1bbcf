"""Three sites: FedDualAvg compared with averaged coordinate descent, as in the source."""

from typing import Annotated, Any, Literal

import numpy as np

from fcojax.experiments import Study
from fcojax.types import Count, CountOrZero, Numbers, Positive, Share
from fcojax_sites.studies.sites import claims, figures, rows
from fcojax_sites.studies.sites.problem import DESIGNS

_Correlation = Annotated[Any, Numbers("a number between -1 and 1", lambda values: abs(values) < 1)]

EXPERIMENT = Study(
    title="Three sites: dual averaging against averaged coordinate descent",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=figures.draw,
    captions={
        "sites": "F1 of the exactly nonzero entries, and the objective minus that of the lasso on "
        "all rows at the same strength."
    },
    keys={
        Literal[DESIGNS]: "designs",
        Count: "num_seeds dim num_true rows held_out num_test num_steps num_rounds num_strengths "
        "max_sweeps",
        CountOrZero: "data_seed",
        Positive: "magnitudes[2] weights rate_shares laws.*.scales laws.*.noises path_tolerance "
        "optimum_tolerance",
        Share: "least_strength",
        _Correlation: "laws.*.correlations laws.*.test_correlation",
    },
    requires={
        "num_true of at most dim": lambda own: own.num_true <= own.dim,
        "magnitudes in ascending order": lambda own: own.magnitudes[0] <= own.magnitudes[1],
        "rate_shares in ascending order": lambda own: (
            list(own.rate_shares) == sorted(own.rate_shares)
        ),
        "num_rounds with 10": lambda own: 10 in own.num_rounds,
        "as many held_out and weights as rows": lambda own: (
            len(own.rows) == len(own.held_out) == len(own.weights)
        ),
        "as many scales, noises and correlations of each law as rows": lambda own: all(
            len(law[name]) == len(own.rows)
            for law in own.laws.values()
            for name in ("scales", "noises", "correlations")
        ),
        "weights that sum to one": lambda own: bool(np.isclose(sum(own.weights), 1)),
    },
)
