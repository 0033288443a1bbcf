"""What the paper says about Figure 3."""

from experiments.report.claims import Claim
from experiments.report.summary import at_best, first_round


def claims(config, rows, summary):
    """What the paper says about Figure 3, each algorithm at its best rates."""
    entries = summary["algorithms"]
    others = [name for name in entries if name != "fed_dual_avg"]
    if "fed_dual_avg" not in entries or not others:
        return []
    last = {name: entry["last"] for name, entry in entries.items()}
    reached = {
        name: first_round(at_best(rows, name, entry["best"]), "f1", 0.95)
        for name, entry in entries.items()
    }
    found = [
        Claim(
            "FedDualAvg has the best F1",
            entries["fed_dual_avg"]["score"],
            max(entries[name]["score"] for name in others),
        ),
        Claim(
            "FedDualAvg is the first with an F1 of 0.95 (round)",
            reached["fed_dual_avg"],
            min(min(reached[name] for name in others), config.num_rounds),
            at_least=False,
        ),
    ]
    if "fed_mid" in others:
        densities = [last[name]["density"] for name in last if name != "fed_mid"]
        found.append(Claim("FedMiD is the densest", last["fed_mid"]["density"], max(densities)))
    return found
