"""Three hospitals: FedDualAvg against averaging of coordinate descent at equal budgets."""

from experiments.studies.sites import claims, figures, rows, tables
from experiments.study import Study

EXPERIMENT = Study(
    title="Three hospitals: dual averaging against averaged coordinate descent",
    rows=rows.study,
    summarise=tables.summarise,
    claims=claims.claims,
    figures=figures.draw,
    captions={
        "sites": "F1 of the exactly nonzero entries, and the gap to the pooled optimum at the "
        "strength that validation chooses for the lasso on all rows.",
    },
)
