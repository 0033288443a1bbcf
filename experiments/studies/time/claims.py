"""Our expectations of simulated time and of corrections, written before the run."""

import math

from experiments.report.claims import Claim
from experiments.report.rows import Row, Summary
from experiments.study import Config


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the expectations, each with the number that decides."""
    del config, rows

    def seconds(method, speed, server, goal):
        for entry in summary["times"]:
            if (entry["method"], entry["speed"], entry["server"]) == (method, speed, server):
                found = entry[f"seconds to {goal}"]
                return math.inf if found is None else found
        return math.nan

    def ratio(method, speed, goal):
        waits = seconds(method, speed, "synchronous", goal)
        return seconds(method, speed, "asynchronous", goal) / waits

    f1, gap = "F1 of 0.95", "suboptimality of 1e-3"
    result = [
        Claim(
            "With one client that is twenty times slower, asynchronous FedDualAvg finds the "
            "support in at most half of the synchronous time",
            ratio("fed_dual_avg", "one_slow", f1),
            0.5,
            at_least=False,
            measure="asynchronous over synchronous seconds",
            quick=False,
        ),
        Claim(
            "With equal speeds, waiting costs nothing: the asynchronous exact method is not faster",
            ratio("scaffold", "equal", gap),
            1.0,
            measure="asynchronous over synchronous seconds",
            quick=False,
        ),
    ]
    late = [
        seconds(entry["method"], entry["speed"], entry["server"], gap)
        for entry in summary["times"]
        if (entry["method"], entry["server"]) == ("scaffold", "asynchronous")
    ]
    result.append(
        Claim(
            "An exact method reaches a suboptimality of 1e-3 asynchronously under every law",
            sum(map(math.isfinite, late)) / max(len(late), 1),
            1.0,
            measure="share of the laws",
            quick=False,
        )
    )
    for entry in summary["biases"]:
        if entry["law"] in ("unequal", "trace", "deadline"):
            for correct in ("known", "estimated"):
                result.append(
                    Claim(
                        "Weights p / q reduce the distance to the minimiser at least tenfold",
                        entry["none"] / entry[correct],
                        10.0,
                        measure="distance without over with weights",
                        case=entry["law"],
                        part=correct,
                        quick=False,
                    )
                )
    return result
