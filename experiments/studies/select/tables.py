"""The choice in words, the model by name and the ledger."""

from experiments.report.rows import column, select


def summarise(config, rows):
    """What was chosen and why, the coefficients that are not zero, and what was sent."""
    path = select(rows, part="path")
    chosen, best = (next(row for row in path if row[name]) for name in ("chosen", "best"))
    rule = "one standard error" if chosen["index"] != best["index"] else "the least score"
    ledger = select(rows, part="ledger")
    works = list(dict.fromkeys(row["work"] for row in ledger))
    return {
        "chosen": {
            "strength": chosen["strength"],
            "share of the first strength": chosen["strength"] / path[0]["strength"],
            "coefficients that are not zero": chosen["nonzero"],
            "score": chosen["score"],
            "least score": best["score"],
            "by": f"{chosen['by']}, {rule}",
        },
        "solved": {
            "strengths solved": sum(row["verdict"].startswith("solved") for row in path),
            "of": len(path),
            "rounds on the path": int(column(path, "rounds").sum()),
            "largest violation": float(column(path, "violation").max()),
            "refit": select(rows, part="refit")[0]["verdict"],
        },
        "coefficients": [
            {"name": row["name"], "value": row["value"], "without the penalty": row["refit"]}
            for row in sorted(select(rows, part="coefficient"), key=lambda row: -abs(row["value"]))
            if row["value"] != 0
        ],
        "ledger": [
            {"work": work, **_sent(select(ledger, work=work))} for work in works
        ] + [{"work": "total", **_sent(ledger)}],
        "sites": [
            {
                "site": row["site"],
                "examples": row["examples"],
                **_sent(select(ledger, site=row["site"])),
            }
            for row in select(rows, part="site")
        ],
    }  # fmt: skip


def _sent(rows):
    return {
        "bytes down": int(column(rows, "down").sum()),
        "bytes up": int(column(rows, "up").sum()),
    }
