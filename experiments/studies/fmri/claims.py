"""What the paper says about Figures 1 and 5."""

import numpy as np

from experiments.report.claims import Claim
from experiments.report.plots import style
from experiments.report.summary import Criterion, curves, score


def claims(config, rows, summary):
    """What the paper says about Figures 1 and 5."""
    entries = summary["algorithms"]
    judge = Criterion("accuracy", "max", config.criterion_rounds)
    found = {}
    for label, entry in entries.items():
        mine = [row for row in rows if row["algorithm"] == label]
        by_point = curves(mine, list(entry["best"]))
        accuracies = [score(seeds, judge) for seeds in by_point.values()]
        found[label] = {
            "accuracy": score(by_point[tuple(entry["best"].values())], judge),
            "share": float(np.mean(np.array(accuracies) >= 0.99 * max(accuracies))),
            "density": entry["last"].get("density", float("nan")),
        }
    if "fed_dual_avg" not in found:
        return []
    ours = found["fed_dual_avg"]
    result = []
    for other, needed in (("centralized", -0.02), ("local", 0.0), ("fed_avg_subgradient", 0.0)):
        if other in found:
            lead = ours["accuracy"] - found[other]["accuracy"]
            text = f"accuracy of FedDualAvg minus that of {style(other)[0]}"
            result.append(Claim(text, lead, needed))
    if "fed_mid" in found:
        ratio = found["fed_mid"]["density"] / max(ours["density"], 1e-9)
        result.append(Claim("density of FedMiD over that of FedDualAvg", ratio, 1.0))
    rivals = [
        found[label]["share"]
        for label in found
        if label not in ("fed_dual_avg", "centralized", "local")
    ]
    if rivals:
        text = "share of the grid within one per cent of the best accuracy: FedDualAvg's lead"
        result.append(Claim(text, ours["share"] - max(rivals), 0.0))
    return result
