"""Metric writers: curves of a finished run to files, to a service, or to a user's function.

A writer is ``(workdir, label, curve) -> None`` and is called with the curve of each algorithm's
best point. ``--writers=csv,mine:printed`` chooses the writers.
"""

import csv
import importlib.util
import os
import pathlib
from collections.abc import Sequence
from typing import Any, Protocol

from experiments.config.algorithms import imported
from experiments.process.errors import suggest
from experiments.report.rows import Row
from experiments.report.summary import at_best

# The round of each evaluation, and its measures.
Curve = list[tuple[int, dict[str, float]]]


class Writer(Protocol):
    """Write the curve of an algorithm's best point; called once for each seed.

    Example:
      >>> def printed(workdir, label, curve):
      ...     for number, measures in curve:
      ...         print(label, number, measures["objective"])
      >>> printed(pathlib.Path("runs/lasso"), "fed_avg", [(10, {"objective": 0.5})])
      fed_avg 10 0.5
    """

    def __call__(self, workdir: pathlib.Path, label: str, curve: Curve) -> None: ...


def to_csv(workdir: pathlib.Path, label: str, curve: Curve) -> None:
    """Write the table ``curves/LABEL.csv``."""
    folder = workdir / "curves"
    folder.mkdir(exist_ok=True)
    names = sorted({name for _, measures in curve for name in measures})
    with open(folder / f"{label}.csv", "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, ["round", *names])
        table.writeheader()
        table.writerows({"round": number} | measures for number, measures in curve)


def to_tensorboard(workdir: pathlib.Path, label: str, curve: Curve) -> None:
    """Write event files to ``tensorboard/LABEL``."""
    from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]

    with SummaryWriter(os.fspath(workdir / "tensorboard" / label)) as writer:
        for number, measures in curve:
            for name, value in measures.items():
                writer.add_scalar(name, value, number)


def to_wandb(workdir: pathlib.Path, label: str, curve: Curve) -> None:
    """Log a run of Weights & Biases, in a project named after the workdir."""
    import wandb  # pyright: ignore[reportMissingImports]

    run = wandb.init(project=workdir.resolve().name, name=label, dir=os.fspath(workdir))
    for number, measures in curve:
        run.log(measures, step=number)
    run.finish()


def to_trackio(workdir: pathlib.Path, label: str, curve: Curve) -> None:
    """Log a run of Trackio, in a project named after the workdir."""
    import trackio  # pyright: ignore[reportMissingImports]

    trackio.init(project=workdir.resolve().name, name=label)
    for number, measures in curve:
        trackio.log(measures, step=number)
    trackio.finish()


_KNOWN: dict[str, tuple[Writer, str | None]] = {
    "csv": (to_csv, None),
    "tensorboard": (to_tensorboard, "tensorboardX"),
    "wandb": (to_wandb, "wandb"),
    "trackio": (to_trackio, "trackio"),
}


def find(names: Sequence[str]) -> list[Writer]:
    """Return the writers of these names; raise ``ValueError`` for an unknown one."""
    found: list[Writer] = []
    for name in names:
        if ":" in name:
            found.append(imported(name))
            continue
        if name not in _KNOWN:
            raise ValueError(f"there is no writer {name}; {suggest(name, _KNOWN)}")
        writer, package = _KNOWN[name]
        if package is not None and importlib.util.find_spec(package) is None:
            raise ValueError(f"the writer {name} needs {package}; pip install {package}.")
        found.append(writer)
    return found


def write(
    writers: Sequence[Writer], workdir: pathlib.Path, rows: list[Row], summary: dict[str, Any]
) -> None:
    """Call each writer with the curves of the best points, one for each seed."""
    for name, entry in summary.get("algorithms", {}).items():
        curves: dict[Any, Curve] = {}
        for row in at_best(rows, name, entry["best"]):
            measures = {
                measure: value
                for measure, value in row.items()
                if isinstance(value, float) and measure not in entry["best"]
            }
            curves.setdefault(row["seed"], []).append((row["round"], measures))
        for seed, curve in curves.items():
            for writer in writers:
                writer(workdir, name if len(curves) == 1 else f"{name}_seed{seed}", curve)
