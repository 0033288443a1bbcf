"""Claims of the source about Figures 4 and 5."""

from typing import Any

from experiments.report.claims import Claim
from experiments.report.rows import Row, Summary
from experiments.studies.saddle.methods import METHODS
from experiments.study import Config


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims on gaps, shares of nonzero entries and ranks at the last round."""
    found = []
    for name, table in summary.items():
        if not name.startswith(tuple(config.cases)):
            continue
        entries = {entry["method"]: entry for entry in table}
        case = name.partition(",")[0]
        by_key = {key: entries.get(method.text) for key, method in METHODS.items()}
        if by_key["fe_dual_ex"] is None:
            continue
        found += (_vectors if case == "vectors" else _matrices)(config, name, by_key)
    return [claim._replace(quick=False, seeds=len(config.seeds)) for claim in found]


def _vectors(config: Config, name: str, entries: dict[str, Any]) -> list[Claim]:
    dual = entries["fe_dual_ex"]
    found = [
        Claim(f"{name}: FeDualEx's gap ends below 1", dual["gap"], 1.0, False),
        Claim(f"{name}: FeDualEx's share of nonzeros is about 0.7 (excess)",
              abs(dual["density"] - 0.7), 0.05, False),
    ]  # fmt: skip
    if primal := entries["fed_mip_client"]:
        text = f"{name}: FedMiP with its client prox is dense, at 0.95 or more"
        found.append(Claim(text, primal["density"], 0.95))
        found.append(Claim(f"{name}: and its gap ends below 1", primal["gap"], 1.0, False))
    for key in ("fed_mip", "fed_dual_avg", "fed_mid"):
        if entry := entries[key]:
            below = key == "fed_mip"
            word = "below" if below else "above"
            text = f"{name}: {METHODS[key].text}'s gap ends {word} 1"
            found.append(Claim(text, entry["gap"], 1.0, not below))
    return found


def _matrices(config: Config, name: str, entries: dict[str, Any]) -> list[Claim]:
    dual, half = entries["fe_dual_ex"], config.matrices.num_columns // 2
    found = [
        Claim(f"{name}: FeDualEx's ranks end at {half} (larger of the two)",
              max(dual["rank_x"], dual["rank_y"]), half, False),
    ]  # fmt: skip
    others = [entry for key, entry in entries.items() if entry and key != "fe_dual_ex"]
    if others:
        least = min(entry["gap"] for entry in others)
        found.append(Claim(f"{name}: FeDualEx has the least gap", dual["gap"], least, False))
    return found
