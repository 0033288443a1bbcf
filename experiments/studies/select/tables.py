"""Tables of the choice, the model by name and the ledger."""

import pathlib

from experiments.report.rows import Row, Summary, column, select
from experiments.study import Config

_WORKS = {
    "rates": "the step, from the curvature of the loss", "start": "the model without features",
    "path": "the models of all strengths, on all data", "tune rates": "the step, for every fold",
    "tune start": "the model without features, for every fold",
    "tune paths": "the models of all strengths, for every fold",
    "validation": "their loss on left-out data", "refit": "the chosen features without the penalty",
}  # fmt: skip


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the choice and its rule, the nonzero coefficients, and the bytes sent."""
    path, best, chosen = best_and_chosen(rows)
    rule = "the least score"
    if chosen["index"] != best["index"]:
        rule = "the strongest within one standard error of the least score"
    if best["index"] == len(path) - 1:
        rule += ", which is at the last strength: a smaller config.least may find a lower one"
    ledger, [facts] = select(rows, part="ledger"), select(rows, part="data")
    works = list(dict.fromkeys(row["work"] for row in ledger))
    return {
        "data": _describe_data(config, rows),
        "chosen": {
            "strength": chosen["strength"],
            "share of the first strength": chosen["strength"] / path[0]["strength"],
            "coefficients that are not zero": chosen["nonzero"],
            "features": facts["features"],
            "left out": _left_out(rows, facts["features"] - chosen["nonzero"]),
            "score": chosen["score"],
            "least score": best["score"],
            "standard error of the least score": best["error"],
            "judged by": chosen["by"],
            "rule": rule,
        },
        "solved": {
            "strengths solved": sum(row["verdict"].startswith("solved") for row in path),
            "strengths": len(path),
            "rounds on the path": int(column(path, "rounds").sum()),
            "largest violation": float(column(path, "violation").max()),
            "refit": select(rows, part="refit")[0]["verdict"],
        },
        "coefficients of the scaled features": [
            {"name": row["name"], "value": row["value"], "without the penalty": row["refit"]}
            for row in sorted(select(rows, part="coefficient"), key=lambda row: -abs(row["value"]))
            if row["value"] != 0
        ],
        "scaling": _scaling(rows),
        "ledger": [
            {"work": work, **_sent(select(ledger, work=work)), "what for": _WORKS[work]}
            for work in works
        ] + [{"work": "total", **_sent(ledger), "what for": ""}],
        "sites": [
            {
                "site": row["site"],
                "examples": row["examples"],
                **_judged(rows, row["site"], chosen["strength"]),
                **_sent(select(ledger, site=row["site"])),
            }
            for row in select(rows, part="site")
        ],
    }  # fmt: skip


def best_and_chosen(rows: list[Row]) -> tuple[list[Row], Row, Row]:
    """Return the rows of the path, that of the least score, and that of the choice."""
    path = select(rows, part="path")
    best, chosen = (next(row for row in path if row[name]) for name in ("best", "chosen"))
    return path, best, chosen


def _describe_data(config: Config, rows: list[Row]) -> str:
    """Return the data in a sentence, for the caption of every figure."""
    file, sizes = pathlib.Path(config.data_dir).name, column(select(rows, part="site"), "examples")
    text = f"{file or 'drawn'}: {int(sizes.sum()):,} examples of {len(sizes)} sites"
    if file and not config.client:
        text += f", divided by class with concentration {config.concentration:g}"
    text += f", {config.loss} loss."
    [facts] = select(rows, part="data")
    if facts["filled"]:
        text += (
            f" {facts['filled']:,} missing values, of {facts['filled_features']} of "
            f"{facts['features']:,} features, are the feature's mean."
        )
    if facts["unlabelled"]:
        text += f" {facts['unlabelled']:,} rows without a target were left out."
    return text


def _left_out(rows: list[Row], number: int) -> str:
    names = [row["name"] for row in select(rows, part="left out")]
    more = f" and {number - len(names):,} more" if number > len(names) else ""
    return ", ".join(names) + more


def _scaling(rows: list[Row]) -> list[Row]:
    """Return the scaling of the features of the chosen model."""
    kept = {row["name"] for row in select(rows, part="coefficient") if row["value"] != 0}
    return [
        {"name": row["name"], "mean": row["mean"], row["what"]: row["size"]}
        for row in select(rows, part="scaling")
        if row["name"] in kept
    ]


def _judged(rows: list[Row], site: str, strength: float) -> dict[str, float]:
    """Return the loss of the choice on a left-out site, if every site was left out."""
    losses = [row["score"] for row in select(rows, part="fold", fold=site, strength=strength)]
    return {"loss when left out": sum(losses) / len(losses)} if losses else {}


def _sent(rows: list[Row]) -> dict[str, int]:
    return {
        "bytes down": int(column(rows, "down").sum()),
        "bytes up": int(column(rows, "up").sum()),
    }
