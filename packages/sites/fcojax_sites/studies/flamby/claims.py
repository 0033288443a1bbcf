"""What we expected of exact fits, FLamby's budget, noise, and one malicious silo.

Written before the first run.
"""

import numpy as np

from fcojax.experiments import Claim, Config, Row, Summary, select
from fcojax_sites.studies.flamby import published

_LESS = {"fed_tcga_brca": "C-index", "fed_heart_disease": "accuracy"}
_TITLES = {"fed_tcga_brca": "TCGA-BRCA", "fed_heart_disease": "Heart Disease"}


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims of each benchmark in the run."""
    return [claim for name in config.datasets for claim in _of(config, name, rows)]


def _of(config: Config, name: str, rows: list[Row]) -> list[Claim]:
    own, score = select(rows, dataset=name), f"mean {_LESS[name]}"

    def expected(
        text: str, measure: str, measured: float, needed: float, at_least: bool = True
    ) -> Claim:
        return Claim(
            text, measured, needed, at_least, measure=measure, case=_TITLES[name], quick=False
        )

    [exact] = select(own, penalty="lasso", design="all silos")
    found = [
        expected(
            "the exact lasso is at least as good as FLamby's best strategy",
            score,
            exact["clients"],
            published.best(name),
        )
    ]
    budget = config.rounds[name]

    def at(method: str, rounds: int) -> list[Row]:
        return select(own, method=method, rounds=rounds)

    if "fed_dual_avg" in config.methods:
        lost = exact["clients"] - np.mean([row["clients"] for row in at("fed_dual_avg", budget)])
        text = "FedDualAvg loses little to the exact lasso within FLamby's budget"
        found.append(expected(text, f"{score} lost", float(lost), 0.02, at_least=False))
    if "scaffold" in config.methods and name == "fed_tcga_brca":
        last = budget * max(config.times)
        gap = at("scaffold", last)[0]["objective"] - exact["objective"]
        text = f"SCAFFOLD with feedback is exact after {last} exchanges"
        found.append(expected(text, "objective above the least", gap, 1e-6, at_least=False))
    noisy = [row["clients"] for row in select(own, epsilon=max(config.epsilons))]
    text = f"noise of epsilon {max(config.epsilons):g} for a whole silo ruins the model"
    found.append(expected(text, f"{score} lost", exact["clients"] - float(np.mean(noisy)), 0.1))
    for rule, needed, at_least in (("mean", 0.1, True), ("trimmed mean", 0.05, False)):
        if rule in config.rules:
            ends = [r["clients"] for r in select(own, rule=rule) if r["bad"] is not None]
            lost = select(own, rule=rule, bad=None)[0]["clients"] - float(np.mean(ends))
            text = f"one malicious silo {'ruins' if at_least else 'does not ruin'} the {rule}"
            found.append(expected(text, f"{score} lost", lost, needed, at_least))
    return found
