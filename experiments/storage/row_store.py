"""The rows of a run: in its file and in memory, and made from the evaluations of a sweep.

Damaged lines, as a crash leaves them, are dropped. Each row of a sweep has the verdict on its curve
so far.
"""

import itertools
import json
import math
import os
import pathlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from experiments.report import rows as tidy
from experiments.report.rows import Row
from experiments.report.summary import diverged
from experiments.report.verdict import verdict
from fcojax.types import PyTree


class RowStore:
    """The rows of a run by algorithm; rows of a study are under the empty name."""

    def __init__(self, path: pathlib.Path, writes: bool = True):
        """Read the file; ``writes`` is false where another process writes the same rows."""
        self.path, self.writes = path, writes
        self.rows: defaultdict[str, list[Row]] = defaultdict(list)
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        found = [row for row in map(_parsed, lines) if row is not None]
        self._add(found)
        if len(found) < len(lines):
            self._rewrite()

    def append(self, rows: Sequence[Row]) -> None:
        """Append rows of JSON values; ``sync`` waits until they are on disk."""
        if self.writes:
            with open(self.path, "a", encoding="utf-8") as file:
                file.writelines(tidy.line(row) for row in rows)
        self._add(rows)

    def sync(self) -> None:
        """Wait until the rows are on disk, which must happen before a checkpoint is written."""
        if self.writes and self.path.exists():
            with open(self.path, "ab") as file:  # Windows only syncs files open for writing
                os.fsync(file.fileno())

    def keep(self, label: str, rows: list[Row]) -> None:
        """Remove the other rows of an algorithm."""
        if len(rows) != len(self.rows[label]):
            self.rows[label] = rows
            self._rewrite()

    def _add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.rows[str(row.get("algorithm", ""))].append(row)

    def _rewrite(self) -> None:
        if self.writes:
            tidy.write(self.path, [row for rows in self.rows.values() for row in rows])


def _parsed(line: bytes) -> Row | None:
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


class Recorder:
    """The rows of one job, each with the verdict on its curve so far."""

    def __init__(
        self,
        label: str,
        grid: PyTree,
        seeds: tuple[int, ...],
        optima: dict[float, float],
        store: RowStore,
        epsilon: Callable[[int, int], float] | None = None,
        hours: Callable[..., np.ndarray] | None = None,
    ):
        """Read the rows so far; ``optima`` are objectives by the strength of the penalty.

        ``epsilon`` is ``(point, rounds) -> epsilon`` of one run, and ``hours`` those of a block of
        rounds, as in ``jobs.hours_of``.
        """
        self.label, self.seeds, self.store, self.epsilon = label, seeds, store, epsilon
        self.hours, self.fields = hours, grid._fields
        self.points = tidy.points_of(grid)
        # The optimal objective at the strength nearest to a point's, or at the first.
        strengths = [point.get("penalty_scale", next(iter(optima), 0)) for point in self.points]
        self.optimum = [
            optima[min(optima, key=lambda known: abs(known - strength))] if optima else None
            for strength in strengths
        ]
        self._read()

    def _read(self) -> None:
        self.curves: defaultdict[tuple[int, int], list[Row]] = defaultdict(list)
        places = {tuple(point.values()): index for index, point in enumerate(self.points)}
        for row in self.store.rows[self.label]:  # a wider grid has further points
            point = places.get(tidy.hparams_of(row, self.fields))
            if point is not None and row["seed"] in self.seeds:  # of this draw of the data
                self.curves[point, self.seeds.index(row["seed"])].append(row)

    def add(self, rounds: int, points: np.ndarray, seen: dict[str, np.ndarray]) -> None:
        """Append a row for each of these points and each seed, after so many rounds.

        Points that diverged before, in all seeds, have no further rows. The measures ``seen`` have
        axes [points, seeds].
        """
        values = {name: array.tolist() for name, array in seen.items() if name != "round"}
        places = enumerate(map(int, points))
        alive = [(place, at) for place, at in places if not self.is_over(at, rounds - 1)]
        rows, hours = [], []
        if self.hours is not None and alive and rounds:
            before = self.curves[alive[0][1], 0][-1]["round"]
            hours = [self.hours(seed, before, rounds, seen) for seed in range(len(self.seeds))]
        for (place, point), seed in itertools.product(alive, range(len(self.seeds))):
            curve, optimum = self.curves[point, seed], self.optimum[point]
            last = curve[-1] if curve else None
            row = {"algorithm": self.label, **self.points[point], "seed": self.seeds[seed]}
            row |= {"round": rounds, "status": "", "participants": 0, "dropped": 0}
            row |= {name: array[place][seed] for name, array in values.items()}
            if self.epsilon is not None:
                row["privacy_epsilon"] = self.epsilon(point, rounds)
            if optimum is not None:
                row["suboptimality"] = row["objective"] - optimum
            # A block has the bytes since the last row, a row the bytes so far.
            for name in ("bytes_up", "bytes_down"):
                row[name] = (last[name] if last else 0) + round(row.get(name, 0))
            if self.hours is not None:
                row["hours"] = last["hours"] + float(hours[seed][place]) if last and hours else 0.0
            row = tidy.plain(row)
            curve.append(row)
            # A sound run has a status of one word.
            since = len(curve) - 1 if last and last["status"].isalpha() else 0
            row["status"] = verdict(curve, optimum, since)
            rows.append(row)
        self.store.append(rows)

    def rows(self, points: Iterable[int], until: float = math.inf) -> list[Row]:
        """Return the rows of these points up to a round."""
        places = itertools.product(map(int, points), range(len(self.seeds)))
        return [row for place in places for row in self.curves[place] if row["round"] <= until]

    def is_over(self, point: int, until: int) -> bool:
        """Return whether a point had diverged in all seeds by a round."""
        ends = [self.curves[int(point), seed][-1:] for seed in range(len(self.seeds))]
        return all(end and end[0]["round"] <= until and diverged(end) for end in ends)

    def forget(self, points: Iterable[int], after: int) -> None:
        """Remove the rows of these points after the round ``after``."""
        gone = {id(row) for row in self.rows(points) if row["round"] > after}
        if gone:
            rows = self.store.rows[self.label]
            self.store.keep(self.label, [row for row in rows if id(row) not in gone])
            self._read()
