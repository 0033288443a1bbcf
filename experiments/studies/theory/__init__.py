"""Theorems of federated composite optimisation, and the failure of averaging models."""

from experiments.studies.theory import claims, figures, rows
from experiments.studies.theory.problem import SETTINGS
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
        "the client's prox (FedMiD-OSP) the gap keeps falling, and with an indicator, which may be "
        "applied twice without effect, FedMiD is below the bound as printed."
    ),
    figures=figures.draw,
    x64=True,
    keys={
        Count: "num_draws l1_clients l1_dim l1_num_steps sampled_num_steps sampled_cohort_size "
        "p_norm_num_steps ball_clients ball_dim "
        "ball_num_steps simplex_clients simplex_dim simplex_num_steps entropy_num_steps num_rounds "
        "eval_every seeds curse_steps curse_rounds curse_eval_every small_num_steps small_rounds "
        "small_eval_every sparsity_clients sparsity_dim sparsity_steps sparsity_rounds "
        "sparsity_eval_every",
        CountOrZero: "data_seed curse_seeds",
        Exponent: "p_norm_exponent",
        Positive: "rate_shares curse_shares[2] small_client_lr sparsity_client_lr",
        NonNegative: "l1_scale",
    },
    requires={
        "sparsity_dim of at least 8": lambda own: own.sparsity_dim > 7,
        "sampled_cohort_size of at most l1_clients": lambda own: (
            own.sampled_cohort_size <= own.l1_clients
        ),
    }
    | {
        f"{setting}_num_steps with one above 1": lambda own, setting=setting: (
            max(own[f"{setting}_num_steps"]) > 1
        )
        for setting in SETTINGS
    }
    | {
        f"{rounds} that {every} divides": lambda own, rounds=rounds, every=every: (
            own[rounds] % own[every] == 0
        )
        for rounds, every in (
            ("num_rounds", "eval_every"),
            ("curse_rounds", "curse_eval_every"),
            ("small_rounds", "small_eval_every"),
            ("sparsity_rounds", "sparsity_eval_every"),
        )
    },
)
