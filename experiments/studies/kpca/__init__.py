"""Principal components on the Stiefel manifold: Zhang, Hu, So and Johansson (NeurIPS 2024)."""

from experiments.studies.kpca import claims, figures, rows, tables
from experiments.study import Study

EXPERIMENT = Study(
    title=figures.TITLE,
    rows=rows.study,
    summarise=tables.summarise,
    claims=claims.claims,
    remarks=(
        "On MNIST 100 rounds are too few for a gradient norm of 1e-5. An earlier run with "
        "--config.num_rounds=500 came to 1.1e-5 by digit and 4.5e-8 by writer, and by digit to "
        "1.4e-9 with 20 steps a round."
    ),
    figures=figures.draw,
    x64=True,
)
