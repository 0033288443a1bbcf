"""FedGD and Local SGD: where local steps lead, and what a theorem promises."""

from experiments.studies.fed_gd import claims, figures, rows
from experiments.study import Study

EXPERIMENT = Study(
    title="FedGD and Local SGD on heterogeneous clients",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=figures.draw,
    x64=True,
)
