"""Every algorithm that takes a penalty, on one heterogeneous lasso, against proximal gradient."""

from experiments.studies.compare import claims, figures, rows, tables
from experiments.study import Study

EXPERIMENT = Study(
    title="All algorithms on one heterogeneous lasso",
    rows=rows.study,
    summarise=tables.summarise,
    claims=claims.claims,
    figures=figures.draw,
    x64=True,
)
