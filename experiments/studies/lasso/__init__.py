"""The federated LASSO of Yuan, Zaheer and Reddi (ICML 2021)."""

from typing import Literal

from experiments.report.plots import Panel
from experiments.studies.lasso import claims, strength
from experiments.studies.lasso.references import PLANS, REFERENCES
from experiments.studies.lasso.server_optimisers import SERVER_OPTIMISERS
from experiments.study import Sweep
from fcojax.types import NonNegative, Positive

EXPERIMENT = Sweep(
    title="Federated LASSO: recovery of the true support",
    problem=strength.problem,
    penalty=strength.penalty,
    strengths=strength.strengths,
    panels=(
        Panel("f1", "F1 score of the support"),
        Panel("precision", "precision of the support"),
        Panel("recall", "recall of the support"),
        Panel("density", "density (share of nonzero weights)"),
        Panel("objective", r"objective $F + \psi$", log=True),
    ),
    algorithms=REFERENCES | SERVER_OPTIMISERS,
    plans=PLANS,
    keys={
        NonNegative: "cuts feature_skew",
        Positive: "candidates",
        Literal["typed", "validation", "pattern"]: "strength",
    },
    claims=claims.claims,
    remarks=(
        "With 512 true features several pairs of rates give FedDualAvg an F1 of one, and the first "
        "to reach 0.95 is best: (0.01, 1), the source's, after 11 rounds, (0.001, 10) and (0.003, "
        "3) after 12. Looks every ten rounds see round 20 for all three, and the objective would "
        "decide for (0.003, 3), whose client rate is FedMiD-OSP's: with looks every ten rounds the "
        "claim on client rates would fail, and the one on their product would not. FedMiD is the "
        "least sparse on this grid alone: with client rates down to 0.0001 it leads by a density "
        "of 0.0026, with an interval from -0.0030 to 0.0082.\n\n"
        "With 64 or 8 true features all methods find the whole support and nothing else, so none "
        "recovers more or is denser than another. With 8 they need no time for it: FedMiD reaches "
        "0.95 after one round, FedDualAvg and FedMiD-OSP after two, so none can be faster.\n\n"
        "With 256 clients FedDualAvg alone finds the whole support, at (0.001, 10), after 16 "
        "rounds, and at (0.003, 1), after 29. The first is best, so that the larger rate is the "
        "server's: the product of both is 0.01 where the others' best are 0.0001 and 0.0003, and "
        "the client rate is not larger.\n\n"
        "The strength is fixed at 0.5. The source chooses it such that the pooled solver recovers "
        "the pattern: with 512 true features it has an F1 of one from 0.05 to 1, with 64 or 8 from "
        "0.1, and of the config's candidates the one with the least loss on validation among these "
        "is 0.1 each time. With it FedMiD and FedMiD-OSP end with the pattern too, at an F1 of "
        "0.9989 and 0.9998, where at 0.5 they end at 0.983 and 0.996, so that FedMiD-OSP recovers "
        "no less and FedMiD is not the least sparse; they need 166 and 202 rounds more. The fixed "
        "strength stays, because all other settings were run with it. The least loss on validation "
        "alone is at 0.01 with 512 true features (1.161, against 1.170 at 0.003 and 1.269 at "
        "0.03), where the pooled solver has a density of 0.573 and an F1 of 0.932, and at 0.03 "
        "with 64 (F1 0.853) and 8 (F1 0.421): there the minimiser itself has another pattern.\n\n"
        "The source's code can have Adam or LAMB on the server; the paper reports no result with "
        "them, so that nothing is claimed. None of the four recovers as much as FedDualAvg with "
        "gradient steps, an F1 of 0.989 at most against 1, and no support becomes final in 500 "
        "rounds. FedMiD with Adam ends within half a per cent of the optimal objective."
    ),
)
