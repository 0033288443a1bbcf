"""Metric writers: curves of a sweep, block by block, to files or to your function.

A writer is ``(workdir, label) -> log``, and ``log(round, measures)`` receives one evaluation.
``--writers=csv,mine:printed`` chooses the writers.
"""

import csv
import importlib.util
import inspect
import os
import pathlib
from collections.abc import Callable, Container, Sequence
from typing import Any, Protocol

from experiments.config.algorithms import imported
from experiments.process.errors import suggest
from experiments.report.rows import Row, hparams_of
from experiments.report.summary import SUPPORT, Criterion, at_best

# (round, measures) -> None; its attribute ``close``, if there is one, is called at the end.
Log = Callable[[int, dict[str, float]], Any]


class Writer(Protocol):
    """Begin a curve and return a function that receives its evaluations, by increasing rounds.

    Example:
      >>> def printed(workdir, label):
      ...     return lambda number, measures: print(label, number, measures["objective"])
      >>> log = printed(pathlib.Path("runs/lasso"), "fed_avg")
      >>> log(10, {"objective": 0.5})
      fed_avg 10 0.5
    """

    def __call__(self, workdir: pathlib.Path, label: str, /) -> Log: ...


class _Csv:
    """The table ``curves/LABEL.csv``; its columns are the measures of the first evaluation."""

    def __init__(self, workdir: pathlib.Path, label: str):
        self._path = workdir / "curves" / f"{label}.csv"
        self._path.parent.mkdir(exist_ok=True)
        self._names: list[str] = []

    def __call__(self, number: int, measures: dict[str, float]) -> None:
        begins = not self._names
        self._names = self._names or sorted(measures)
        with open(self._path, "w" if begins else "a", encoding="utf-8", newline="") as file:
            table = csv.writer(file)
            if begins:
                table.writerow(["round", *self._names])
            table.writerow([number, *(measures.get(name) for name in self._names)])


class _Tensorboard:
    """Event files in ``tensorboard/LABEL``."""

    def __init__(self, workdir: pathlib.Path, label: str):
        from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]

        self._writer = SummaryWriter(os.fspath(workdir / "tensorboard" / label))
        self.close = self._writer.close

    def __call__(self, number: int, measures: dict[str, float]) -> None:
        for name, value in measures.items():
            self._writer.add_scalar(name, value, number)
        self._writer.flush()


_KNOWN: dict[str, tuple[Writer, str | None]] = {
    "csv": (_Csv, None),
    "tensorboard": (_Tensorboard, "tensorboardX"),
}


def find(names: Sequence[str]) -> dict[str, Writer]:
    """Return the writers of these names; raise ``ValueError`` for an unknown one."""
    found: dict[str, Writer] = {}
    for name in names:
        if ":" in name:
            found[name] = _own(name)
            continue
        if name not in _KNOWN:
            raise ValueError(f"there is no writer {name}; {suggest(name, _KNOWN)}")
        writer, package = _KNOWN[name]
        if package is not None and importlib.util.find_spec(package) is None:
            raise ValueError(f"the writer {name} needs {package}; pip install {package}.")
        found[name] = writer
    return found


def _own(name: str) -> Writer:
    """Return a user's writer; raise ``ValueError`` if it cannot be called as one."""
    writer = imported(name)
    try:
        inspect.signature(writer).bind("workdir", "label")
    except TypeError as error:
        raise ValueError(
            f"the writer {name} cannot be called: {error}; pass a function (workdir, label) that "
            "returns a function (round, measures)."
        ) from error
    return writer


class Curves:
    """Send curves to writers while a sweep runs, and the remaining ones at its end.

    An algorithm with one point has a curve for each seed, ``LABEL`` or ``LABEL_seed0``, ..., which
    grows with every block. With a grid the best point is known only at the end; until then
    ``LABEL_live`` shows in each round the point that is best in that round, averaged over the
    seeds, with its hyperparameters. The curves of the best point follow at the end.
    """

    def __init__(
        self,
        writers: dict[str, Writer],
        workdir: pathlib.Path,
        criterion: Criterion | None = None,
        say: Callable[[str], Any] = print,
    ):
        """Begin without curves.

        Args:
          writers: by name.
          workdir: passed to the writers.
          criterion: ranks the points in each round; ``None`` for a study.
          say: called with a message about a writer that failed, which is not called again.
        """
        self._writers, self._workdir = dict(writers), workdir
        self._criterion, self._say = criterion, say
        self._logs: dict[tuple[str, str], Log] = {}
        self._last: dict[str, int] = {}

    def grow(self, label: str, part: str, points: Sequence[Row], rows: Sequence[Row]) -> None:
        """Send new rows of an algorithm.

        Args:
          label: the algorithm's.
          part: follows ``LABEL_live``, where a grid runs in several parts.
          points: the hyperparameters of all points of the grid.
          rows: of one round or several.
        """
        if not self._writers or self._criterion is None:
            return
        if len(points) == 1:
            self._add(label, rows, points[0])
            return
        measure = self._criterion.measure
        rounds: dict[int, dict[tuple, list[Row]]] = {}
        for row in rows:
            if row.get(measure) is not None:
                found = rounds.setdefault(row["round"], {})
                found.setdefault(hparams_of(row, list(points[0])), []).append(row)
        best = max if self._criterion.goal == "max" else min
        for number, found in sorted(rounds.items()):
            means = [_mean(seeds) for seeds in found.values()]
            self._send(f"{label}_live{part}", number, best(means, key=lambda mean: mean[measure]))

    def finish(self, rows: Sequence[Row], summary: dict[str, Any]) -> None:
        """Send the curves of the best points, as far as they have not been sent, and close all."""
        for name, entry in summary.get("algorithms", {}).items():
            self._add(name, at_best(rows, name, entry["best"]), entry["best"])
        self.close()

    def close(self) -> None:
        """Close all curves."""
        for (name, _), log in self._logs.items():
            self._try(name, getattr(log, "close", lambda: None))
        self._logs.clear()

    def _add(self, label: str, rows: Sequence[Row], point: Row) -> None:
        """Send the measures of one point, a curve for each seed."""
        seeds = {row["seed"] for row in rows}
        for row in sorted(rows, key=lambda row: row["round"]):
            name = label if len(seeds) == 1 else f"{label}_seed{row['seed']}"
            self._send(name, row["round"], _numbers(row, without=point))

    def _send(self, label: str, number: int, measures: dict[str, float]) -> None:
        if number <= self._last.get(label, -1):
            return  # sent while the sweep ran
        self._last[label] = number
        for name, writer in list(self._writers.items()):
            if (name, label) not in self._logs:
                log = self._try(name, _begun, writer, self._workdir, label)
                if log is None:
                    continue
                self._logs[name, label] = log
            self._try(name, self._logs[name, label], number, measures)

    def _try(self, name: str, function: Callable, *given: Any) -> Any:
        """Call a writer's function; a writer that fails is not called again."""
        try:
            return function(*given)
        except Exception as error:
            self._writers.pop(name, None)
            what = f"{type(error).__name__}: {error}"
            self._say(f"the writer {name} failed, and the run continues without it: {what}")
            return None


def _begun(writer: Writer, workdir: pathlib.Path, label: str) -> Log:
    log = writer(workdir, label)
    if not callable(log):
        raise TypeError(f"it returned {log!r}; return a function (round, measures).")
    return log


def _numbers(row: Row, without: Container[str] = ()) -> dict[str, float]:
    left_out = ("seed", "round", SUPPORT)  # the last column identifies a support
    return {
        name: value
        for name, value in row.items()
        if isinstance(value, int | float) and name not in left_out and name not in without
    }


def _mean(seeds: Sequence[Row]) -> dict[str, float]:
    """Return the mean over the seeds of the measures that are numbers for all of them."""
    rows = [_numbers(row) for row in seeds]
    shared = [name for name in rows[0] if all(name in row for row in rows)]
    return {name: sum(row[name] for row in rows) / len(rows) for name in shared}
