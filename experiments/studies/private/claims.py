"""Our expectations of noise on duals and on models."""

import numpy as np

from experiments.report.claims import Claim, over_seeds
from experiments.report.rows import Row, Summary, select
from experiments.studies.private.rows import METHODS
from experiments.study import Config

_SMALL, _LARGE = 8.0, 16.0  # noises


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return claims on sparsity, recovery and accuracy; none if the config lacks what they need."""
    if not {0.0, _SMALL, _LARGE} <= set(config.noises) or set(config.methods) != set(METHODS):
        return []

    def ends(method: str, measure: str, noise: float) -> np.ndarray:
        return np.array(
            [
                select(rows, method=method, noise=noise, seed=seed, best=True)[0][measure]
                for seed in config.seeds
            ]
        )

    def more(measure: str, noise: float, method: str, than: str) -> np.ndarray:
        return ends(method, measure, noise) - ends(than, measure, noise)

    found = []
    for method in ("fed_dual_avg", "composite_fl"):
        text = METHODS[method].text
        density = ends(method, "density", _LARGE) - ends(method, "density", 0.0)
        lost = ends(method, "accuracy", 0.0) - ends(method, "accuracy", _SMALL)
        words = "noise of 8 costs little accuracy"
        found.append(over_seeds(words, lost, 0.03, False, measure="accuracy lost", part=text))
        if method == "fed_dual_avg":
            found.append(
                over_seeds(
                    "noise of 16 on the dual leaves FedDualAvg's model as sparse",
                    density,
                    0.05,
                    False,
                    measure="added density",
                )
            )
    density = ends("fed_mid", "density", _LARGE) - ends("fed_mid", "density", 0.0)
    found.append(
        over_seeds(
            "noise of 16 on the mean of models fills FedMiD's model",
            density,
            0.2,
            measure="added density",
        )
    )
    dense = ends("fed_avg_subgradient", "density", _LARGE)
    text = "FedAvg's model is dense at noise of 16"
    found.append(over_seeds(text, dense, 0.95, measure="density"))
    for than in ("fed_mid", "fed_avg_subgradient"):
        better = more("f1", _LARGE, "fed_dual_avg", than)
        text, part = "FedDualAvg recovers more at noise of 16", METHODS[than].text
        found.append(over_seeds(text, better, 0.2, measure="F1 above the other's", part=part))
    [entry, *_] = select(summary["best"], noise=_LARGE)
    found.append(
        Claim(
            f"tuning {len(config.client_lr)} rates at noise of 16 costs more than one run",
            entry["epsilon"] / entry["epsilon of one run"],
            1.5,
            measure="ratio of the epsilons",
            quick=False,
        )
    )
    return found
