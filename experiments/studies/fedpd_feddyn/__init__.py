"""FedPD and FedDyn: when they are one method, and what skipping and sampling cost."""

from experiments.studies.fedpd_feddyn import claims, figures, rows
from experiments.study import Study

EXPERIMENT = Study(
    title="FedPD and FedDyn: one method or two",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=figures.draw,
    x64=True,
)
