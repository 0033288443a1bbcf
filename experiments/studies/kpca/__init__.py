"""Principal components on the Stiefel manifold: Zhang, Hu, So and Johansson (NeurIPS 2024)."""

from experiments.studies.kpca import claims, figures, rows, tables
from experiments.study import Study

EXPERIMENT = Study(
    title=figures.TITLE,
    rows=rows.study,
    summarise=tables.summarise,
    claims=claims.claims,
    figures=figures.draw,
    x64=True,
)
