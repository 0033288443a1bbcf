"""Where the curves of a finished run go beside its rows: files, services, or a function of yours.

A writer is ``(workdir, label, curve) -> None``, called with the curve of each algorithm's best
point. ``--writers=csv,mine:printed`` names those that are wanted.
"""

import csv
import importlib.util
import os
import pathlib
from collections.abc import Sequence
from typing import Any, Protocol

from experiments.factories import imported
from experiments.report.rows import Row
from experiments.report.summary import at_best
from experiments.suggestions import suggest

# The round of each look, and what was measured then.
Curve = list[tuple[int, dict[str, float]]]


class Writer(Protocol):
    """Takes the curve of an algorithm's best point, one call for each seed.

    Example:
      >>> def printed(workdir, label, curve):
      ...     for number, measures in curve:
      ...         print(label, number, measures["objective"])
      >>> printed(pathlib.Path("runs/lasso"), "fed_avg", [(10, {"objective": 0.5})])
      fed_avg 10 0.5
    """

    def __call__(self, workdir: pathlib.Path, label: str, curve: Curve) -> None: ...


def to_csv(workdir: pathlib.Path, label: str, curve: Curve) -> None:
    """One table, ``curves/LABEL.csv``."""
    folder = workdir / "curves"
    folder.mkdir(exist_ok=True)
    names = sorted({name for _, measures in curve for name in measures})
    with open(folder / f"{label}.csv", "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, ["round", *names])
        table.writeheader()
        table.writerows({"round": number} | measures for number, measures in curve)


def to_tensorboard(workdir: pathlib.Path, label: str, curve: Curve) -> None:
    """Event files in ``tensorboard/LABEL``."""
    from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]

    with SummaryWriter(os.fspath(workdir / "tensorboard" / label)) as writer:
        for number, measures in curve:
            for name, value in measures.items():
                writer.add_scalar(name, value, number)


def to_wandb(workdir: pathlib.Path, label: str, curve: Curve) -> None:
    """A run of Weights & Biases, in a project named after the workdir."""
    import wandb  # pyright: ignore[reportMissingImports]

    run = wandb.init(project=workdir.resolve().name, name=label, dir=os.fspath(workdir))
    for number, measures in curve:
        run.log(measures, step=number)
    run.finish()


def to_trackio(workdir: pathlib.Path, label: str, curve: Curve) -> None:
    """A run of Trackio, in a project named after the workdir."""
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
    """The writers of these names; raises ``ValueError`` with one sentence."""
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
    """Gives each writer the curves of the best points, those of further seeds by their number."""
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
