"""Digits by writer under a constraint: Yuan, Zaheer and Reddi (ICML 2021), appendix B.5."""

from experiments.studies.emnist import claims, figures, rows
from experiments.study import Study

EXPERIMENT = Study(
    title="Digits by writer, every dense kernel in a ball",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=figures.draw,
)
