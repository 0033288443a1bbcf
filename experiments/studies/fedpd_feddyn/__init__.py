"""FedPD and FedDyn: when they are one method, and what skipping and sampling cost."""

from typing import Literal

from experiments.studies.fedpd_feddyn import claims, figures, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, Positive, Probability

EXPERIMENT = Study(
    title="FedPD and FedDyn: one method or two",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=figures.draw,
    x64=True,
    keys={
        Literal["exact", "gd"]: "solvers",
        Count: "num_clients dim num_steps num_rounds cohort_size cohort_rounds skip_rounds "
        "cohort_sizes tolerance_rounds",
        CountOrZero: "data_seed seeds",
        Positive: "curvatures[2] prox_step skip_prox_steps[2+] cohort_prox_steps tolerance",
        Probability: "skip_probabilities[3+]",
    },
    requires={
        "curvatures in ascending order": lambda own: own.curvatures[0] <= own.curvatures[1],
        "skip_probabilities with 0 among them": lambda own: 0 in own.skip_probabilities,
        "skip_rounds that 200 divides": lambda own: own.skip_rounds % 200 == 0,
        "cohort_size and cohort_sizes of at most num_clients": lambda own: (
            max(own.cohort_size, *own.cohort_sizes) <= own.num_clients
        ),
    },
)
