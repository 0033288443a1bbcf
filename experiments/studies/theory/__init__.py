"""Theorems of federated composite optimisation, and the failure of averaging models."""

from experiments.studies.theory import claims, figures, rows
from experiments.study import Study

EXPERIMENT = Study(
    title="Federated composite optimisation: bounds, and the curse of primal averaging",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    remarks=(
        "Theorem 4.1 is stated for FedMiD as well. As printed FedMiD applies the penalty twice a "
        "round, on clients and on the server, and goes to the minimiser of F + 2 psi: with a "
        "finite penalty its gap stops, and any bound that vanishes falls below it. With the "
        "client's prox left out (FedMiD-OSP) it does not stop."
    ),
    figures=figures.draw,
    x64=True,
)
