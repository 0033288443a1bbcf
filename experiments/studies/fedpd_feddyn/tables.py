"""Tables of the largest gaps, the bias, the floors, and the rounds by share of clients."""

import numpy as np

from experiments.report.rows import Row, Summary, column, select
from experiments.studies.fedpd_feddyn.rows import OFFSET
from experiments.study import Config


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the largest gaps by start, the bias, the floors, and the rounds by cohort size."""
    pairs = select(rows, part="gap")
    names = dict.fromkeys((row["start"], row["solver"]) for row in pairs)
    probabilities = (*config.skip_probabilities, "falling")
    return {
        "largest gap of a coordinate": {
            f"{start}, {solver}": float(
                column(select(pairs, start=start, solver=solver), "gap").max()
            )
            for start, solver in names
        },
        "a drift that does not match, at the end": [
            *select(pairs, start=OFFSET, round=config.num_rounds),
            *select(rows, part="bias"),
        ],
        "floor of the error": {
            f"eta {eta:g}": {p: float(floor_of(rows, eta, p).mean()) for p in probabilities}
            for eta in config.skip_prox_steps
        },
        "rounds to the tolerance, by clients a round": {
            f"eta {eta:g}": {
                size: float(rounds_of(config, rows, eta, size).mean())
                for size in config.cohort_sizes
            }
            for eta in config.cohort_prox_steps
        },
    }


def floor_of(rows: list[Row], eta: float, probability: float | str) -> np.ndarray:
    """Return FedPD's floor for each seed."""
    own = select(rows, part="floor", prox_step=eta, skip_probability=probability)
    return column(own, "error")


def rounds_of(config: Config, rows: list[Row], prox_step: float, size: int) -> np.ndarray:
    """Return FedDyn's rounds to the tolerance for each seed."""
    rate = size / config.num_clients
    return column(select(rows, part="participation", prox_step=prox_step, rate=rate), "rounds")
