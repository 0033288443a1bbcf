"""Theorems of federated composite optimisation, and where averaging models fails."""

from experiments.studies.theory import claims, figures, rows, tables
from experiments.study import Study

EXPERIMENT = Study(
    title="Federated composite optimisation: bounds, and the curse of primal averaging",
    rows=rows.study,
    summarise=tables.summarise,
    claims=claims.claims,
    figures=figures.draw,
    x64=True,
)
