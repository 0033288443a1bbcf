"""Theorems of federated composite optimisation, and the failure of averaging models."""

from experiments.studies.theory import claims, figures, rows
from experiments.study import Study
from fcojax.transforms.mirrors.p_norm import Exponent
from fcojax.types import Count, CountOrZero, NonNegative, Positive

EXPERIMENT = Study(
    title="Federated composite optimisation: bounds, and the curse of primal averaging",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    notes=(
        "Theorem 4.1 is stated for FedMiD as well. As printed FedMiD applies the penalty twice per "
        "round, on clients and on the server, and converges to the minimiser of F + 2 psi: with a "
        "finite penalty its gap does not vanish, and any vanishing bound falls below it. Without "
        "the client's prox (FedMiD-OSP) the gap keeps falling. With an indicator the theorem is "
        "false for FedMiD too, though the run on the ball is below its bound: docs/theorem_4_1.md "
        "has two clients for which it fails."
    ),
    figures=figures.draw,
    x64=True,
    keys={
        Count: "num_draws seeds *_clients *_dim *_steps *_rounds *_cohort_size *eval_every",
        CountOrZero: "data_seed curse_seeds",
        Exponent: "p_norm_exponent",
        Positive: "rate_shares curse_shares[2] small_client_lr sparsity_client_lr",
        NonNegative: "l1_scale",
    },
    requires={
        f"{part}rounds that {every} divides": lambda own, part=part, every=every: (
            own[f"{part}rounds"] % own[every] == 0
        )
        for part in ("num_", "curse_", "small_", "sparsity_")
        for every in [f"{part.removeprefix('num_')}eval_every"]
    },
)
