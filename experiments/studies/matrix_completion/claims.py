"""What the paper says about low-rank estimation, tested on completion."""

from experiments.report.claims import Claim


def claims(config, rows, summary):
    """What the paper says about low-rank estimation, tested on completion."""
    del config, rows
    entries = summary["algorithms"]
    if not {"fed_dual_avg", "fed_dual_avg_osp", "fed_mid"} <= entries.keys():
        return []
    last = {label: entry["last"] for label, entry in entries.items()}
    missing = float("nan")
    ours = last["fed_dual_avg"].get("objective", missing)
    return [
        Claim(
            "objective of FedMiD, at its best rates, over that of FedDualAvg",
            last["fed_mid"].get("objective", missing) / ours,
            1.0,
        ),
        Claim(
            "objective of FedDualAvg-OSP, at its best rates, over that of FedDualAvg",
            last["fed_dual_avg_osp"].get("objective", missing) / ours,
            1.0,
        ),
        Claim(
            "rank of FedMiD minus that of FedDualAvg",
            last["fed_mid"].get("rank", missing) - last["fed_dual_avg"].get("rank", missing),
            0.0,
        ),
    ]
