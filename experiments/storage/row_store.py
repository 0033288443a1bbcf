"""The rows of a run: in its file and in memory, and made from the evaluations of a sweep.

Incomplete and damaged lines are left out; each row of a sweep has the verdict on its curve so far.
"""

import errno
import hashlib
import itertools
import json
import math
import os
import pathlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from experiments.report import rows as tidy
from experiments.report.rows import Row
from experiments.report.verdict import WARNINGS, verdict
from fcojax import Status
from fcojax.types import PyTree

_sorted = json.JSONEncoder(sort_keys=True).encode
# Statuses of rows of runs without a fault so far.
_SOUND = {status.name.lower() for status in Status if status is not Status.DIVERGED}
# The columns that decide the verdict, and the values of missing entries.
_JUDGED = {"round": 0, "objective": math.nan, "dropped": math.nan, "participants": math.nan}
_JUDGED |= dict.fromkeys(WARNINGS, 0.0)


class RowStore:
    """The rows of a run by algorithm; rows of a study are under the empty name."""

    def __init__(self, path: pathlib.Path):
        """Read the file; invalid lines are dropped when it is next rewritten.

        Set ``writes`` to false if another process writes the same rows.
        """
        self.path = path
        self.writes = True
        self.rows: dict[str, list[Row]] = {}
        self._hashes: dict[int, int] = {}  # of rows that are here, by id: each is hashed once
        self._sound = True
        if path.is_file():
            for line in path.read_bytes().splitlines(keepends=True):
                row = _parsed(line)
                if row is None:
                    self._sound = False
                else:
                    self.of(_label(row)).append(row)

    def of(self, label: str) -> list[Row]:
        """Return the rows of one algorithm."""
        return self.rows.setdefault(label, [])

    def append(self, rows: Sequence[Row]) -> None:
        """Append rows of JSON values; ``sync`` waits until they are on disk."""
        if self.writes:
            if any(self.rows.values()) and not self.path.exists():
                # The folder was removed; a new file would lack the rows so far.
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.path}")
            if not self._sound:
                self._rewrite()
            # If the disk is full, some of these lines may be in the file but none in memory.
            self._sound = False
            with open(self.path, "a", encoding="utf-8") as file:
                file.writelines(tidy.line(row) for row in rows)
            self._sound = True
        for row in rows:
            self.of(_label(row)).append(row)

    def sync(self) -> None:
        """Wait until the rows are on disk, which must happen before a checkpoint is written."""
        if self.writes and self.path.exists():
            with open(self.path, "ab") as file:  # Windows only syncs files open for writing
                os.fsync(file.fileno())

    def replace(self, label: str, rows: list[Row]) -> None:
        """Keep only these rows of an algorithm."""
        if len(rows) != len(self.of(label)):
            self.rows[label] = rows
            self._hashes = {}
            self._rewrite()

    def _rewrite(self) -> None:
        if self.writes:
            tidy.write(self.path, [row for rows in self.rows.values() for row in rows])
            self._sound = True

    def fingerprint(self, rows: Iterable[Row]) -> str:
        """Return the fingerprint of some of these rows, which no longer change."""
        return fingerprint(rows, self._hashes)

    def fingerprints(self) -> dict[str, str]:
        """Return the fingerprint of each algorithm's rows."""
        return fingerprints(row for rows in self.rows.values() for row in rows)


def fingerprint(rows: Iterable[Row], known: dict[int, int] | None = None) -> str:
    """Return the number of rows and a hash of them that does not depend on their order.

    It is a sum of hashes, which detects lost, duplicate and changed rows.

    Args:
      rows: the rows.
      known: hashes of rows by id, which is extended; the rows must live as long.

    Example:
      >>> rows = [{"round": 0}, {"round": 10}]
      >>> fingerprint(rows) == fingerprint(rows[::-1]) != fingerprint(rows + rows[:1])
      True
    """
    known, total = {} if known is None else known, 0
    rows = list(rows)  # so that no two have the same id
    for row in rows:
        if id(row) not in known:
            digest = hashlib.sha256(_sorted(row).encode()).digest()
            known[id(row)] = int.from_bytes(digest[:16])
        total += known[id(row)]
    return f"{len(rows)} rows {total % 2**128:032x}"


def fingerprints(rows: Iterable[Row]) -> dict[str, str]:
    """Return the fingerprint of each algorithm's rows."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(_label(row), []).append(row)
    return {label: fingerprint(own) for label, own in sorted(found.items())}


def _label(row: Row) -> str:
    return str(row.get("algorithm", ""))


def _parsed(line: bytes) -> Row | None:
    """Return the row of a line; ``None`` if it is incomplete or damaged."""
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


class _Curve:
    """The rows of one run, and lists of the columns that decide its verdict."""

    def __init__(self):
        self.rows: list[Row] = []
        self.columns: dict[str, list[Any]] = {name: [] for name in _JUDGED}

    def append(self, row: Row) -> None:
        self.rows.append(row)
        for name, missing in _JUDGED.items():
            value = row.get(name)
            self.columns[name].append(missing if value is None else value)


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
        """Read the rows so far; remove duplicates; ``epsilon`` is of a point after some rounds.

        Rows of other points are kept, because a widened grid starts again from its first points.
        ``hours`` is the time of a block of rounds, of all points for the seed at a place.
        """
        self.label, self.seeds, self.store, self.epsilon = label, seeds, store, epsilon
        self.hours = hours
        self.points = tidy.points_of(grid)
        # The optimal objective at the strength nearest to a point's, or at the first.
        strengths = [point.get("penalty_scale", next(iter(optima), 0)) for point in self.points]
        self.optimum = [
            optima[min(optima, key=lambda known: abs(known - strength))] if optima else None
            for strength in strengths
        ]
        self.curves: defaultdict[tuple[int, int], _Curve] = defaultdict(_Curve)
        places = {tuple(point.values()): index for index, point in enumerate(self.points)}
        kept: dict[tuple, Row] = {}
        for row in store.of(label):
            if row.get("seed") in seeds and "round" in row:
                point = tidy.hparams_of(row, grid._fields)
                kept.setdefault((point, row["seed"], row["round"]), row)
        store.replace(label, list(kept.values()))
        for (point, seed, _), row in kept.items():
            if point in places:
                self.curves[places[point], seeds.index(seed)].append(row)

    def add(self, rounds: int, points: np.ndarray, seen: dict[str, np.ndarray]) -> None:
        """Append a row for each of these points and each seed.

        Points that diverged before, in all seeds, have no further rows.

        Args:
          rounds: the number of rounds before the evaluation.
          points: the points.
          seen: the measures, with axes [points, seeds].
        """
        values = {name: array.tolist() for name, array in seen.items() if name != "round"}
        alive = [
            (place, int(point))
            for place, point in enumerate(points)
            if not self.is_over(point, rounds - 1)
        ]
        rows, hours = [], dict[int, np.ndarray]()
        if self.hours is not None and alive and rounds:
            curves = [self.curves[alive[0][1], place].rows for place in range(len(self.seeds))]
            names = ("participants", "bytes_down", "bytes_up")
            for place in range(len(self.seeds)):
                block = {name: seen[name][:, place, None] for name in names} | {"round": [rounds]}
                first = curves[place][-1]["round"] if curves[place] else 0
                hours[place] = self.hours(place, first, block)
        for (place, point), seed in itertools.product(alive, range(len(self.seeds))):
            curve, optimum = self.curves[point, seed], self.optimum[point]
            last = curve.rows[-1] if curve.rows else None
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
                row["hours"] = (last["hours"] if last else 0.0) + float(
                    hours[seed][place] if hours else 0
                )
            row = tidy.plain(row)
            curve.append(row)
            judged = verdict(
                curve.columns["round"],
                curve.columns["objective"],
                optimum,
                curve.columns["dropped"],
                curve.columns["participants"],
                {name: curve.columns[name] for name in WARNINGS},
                len(curve.rows) - 1 if last and last["status"] in _SOUND else 0,
            )
            plain = judged.status is not Status.DIVERGED and not judged.warned
            row["status"] = judged.status.name.lower() if plain else judged.sentence
            rows.append(row)
        self.store.append(rows)

    def rows(self, points: Iterable[int]) -> list[Row]:
        """Return the rows so far of these points."""
        places = itertools.product(map(int, points), range(len(self.seeds)))
        return [row for place in places for row in self.curves[place].rows]

    def is_over(self, point: int, until: int) -> bool:
        """Return whether a point had diverged in all seeds by a round."""
        ends = [self.curves[int(point), seed].rows[-1:] for seed in range(len(self.seeds))]
        return all(
            end and end[0]["round"] <= until and end[0]["status"].startswith("diverged")
            for end in ends
        )

    def forget(self, points: Iterable[int], after: int) -> None:
        """Remove the rows of these points after the round ``after``."""
        gone: set[int] = set()
        for place in itertools.product(map(int, points), range(len(self.seeds))):
            rows, self.curves[place] = self.curves[place].rows, _Curve()
            for row in rows:
                if row["round"] > after:
                    gone.add(id(row))
                else:
                    self.curves[place].append(row)
        rows = self.store.of(self.label)
        self.store.replace(self.label, [row for row in rows if id(row) not in gone])

    def fingerprint(self, points: Iterable[int], until: int) -> str:
        """Return a fingerprint of the rows of these points up to a round."""
        return self.store.fingerprint(row for row in self.rows(points) if row["round"] <= until)
