"""Tables of the nine cells: the choices of each method, F1 and gaps."""

import numpy as np

from experiments.report.rows import Row, Summary, column, select
from experiments.studies.sites.runs import METHODS
from experiments.study import Config


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return choices and F1 by cell, F1 at every budget, and gaps at the largest budget."""
    return {
        "best": [_cell(config, rows, *cell) for cell in cells(config)],
        "F1 at equal budgets": [
            {"design": design, "E": num_steps, "rounds": num_rounds}
            | {
                text: float(column(_at(rows, design, num_steps, name, num_rounds), "f1").mean())
                for name, text in METHODS.items()
            }
            for design, num_steps in cells(config)
            for num_rounds in config.num_rounds
        ],
        f"gaps after {max(config.num_rounds)} rounds": [
            _gaps(config, rows, *cell) for cell in cells(config)
        ],
        "pooled lasso": [
            {"design": design} | {name: float(column(own, name).mean()) for name in _POOLED}
            for design in config.designs
            for own in [select(rows, part="pooled", design=design)]
        ],
    }


_POOLED = ("strength", "nonzeros", "f1", "f1_above_cut", "validation_loss", "objective")


def cells(config: Config) -> list[tuple[str, int]]:
    """Return the designs with each number of local steps."""
    return [(design, steps) for design in config.designs for steps in config.num_steps]


def chosen(config: Config, rows: list[Row], design: str, num_steps: int, method: str) -> list[Row]:
    """Return, for each seed, the row with the least validation loss over the rounds."""
    own = select(rows, part="run", design=design, num_steps=num_steps, method=method)
    return [
        min(select(own, seed=seed), key=lambda row: row["validation_loss"])
        for seed in range(config.num_seeds)
    ]


def differences(
    config: Config, rows: list[Row], design: str, num_steps: int, measure: str = "f1"
) -> np.ndarray:
    """Return FedDualAvg's measure minus that of averaged coordinate descent, for each seed."""
    ours, theirs = (
        column(chosen(config, rows, design, num_steps, method), measure) for method in METHODS
    )
    return ours - theirs


def gaps_at_the_end(
    config: Config, rows: list[Row], design: str, num_steps: int, method: str, measure: str = "gap"
) -> np.ndarray:
    """Return the gap of each seed at the largest budget; infinity for a run that diverged."""
    found = column(_at(rows, design, num_steps, method, max(config.num_rounds)), measure)
    return np.where(np.isnan(found), np.inf, found)


def _at(rows: list[Row], design: str, num_steps: int, method: str, num_rounds: int) -> list[Row]:
    return select(
        rows, part="run", design=design, num_steps=num_steps, method=method, round=num_rounds
    )


def _cell(config: Config, rows: list[Row], design: str, num_steps: int) -> Row:
    entry = {"design": design, "E": num_steps}
    for method, text in METHODS.items():
        own = chosen(config, rows, design, num_steps, method)
        entry |= {f"F1, {text}": float(column(own, "f1").mean())}
        entry |= {f"nonzeros, {text}": float(column(own, "nonzeros").mean())}
        entry |= {f"rounds, {text}": float(np.median(column(own, "round")))}
    for measure, text in (("f1", "difference"), ("f1_above_cut", f"above {config.cut:g}")):
        entry[text] = float(differences(config, rows, design, num_steps, measure).mean())
    return entry


def _gaps(config: Config, rows: list[Row], design: str, num_steps: int) -> Row:
    entry = {"design": design, "E": num_steps}
    for method, text in METHODS.items():
        for measure in ("gap", "relative_gap", "least_gap"):
            found = gaps_at_the_end(config, rows, design, num_steps, method, measure)
            entry[f"{measure.replace('_', ' ')}, {text}"] = float(found.mean())
    return entry
