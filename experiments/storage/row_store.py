"""The rows of a run in its file and in memory, and rows from evaluations of a sweep.

Incomplete and damaged lines are left out; each row of a sweep has the status of its run so far.
"""

import errno
import hashlib
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
        self._hashes: dict[int, int] = {}  # the hash of each row, by its id
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
            # If the disk is full, the file may have some of these lines although memory has none.
            self._sound = False
            with open(self.path, "a", encoding="utf-8") as file:
                file.writelines(tidy.line(row) for row in rows)
            self._sound = True
        for row in rows:
            self.of(_label(row)).append(row)

    def sync(self) -> None:
        """Wait until the rows are on disk, which must happen before a checkpoint is written."""
        if self.writes and self.path.exists():
            with open(
                self.path, "ab"
            ) as file:  # Windows syncs only files that are open for writing
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
        """Return the fingerprint of some of these rows, which must not change any more."""
        known = self._hashes
        found = [known.get(id(row)) or known.setdefault(id(row), _hash(row)) for row in rows]
        return _text(found)

    def fingerprints(self) -> dict[str, str]:
        """Return the fingerprint of each algorithm's rows."""
        return fingerprints(row for rows in self.rows.values() for row in rows)


def fingerprint(rows: Iterable[Row]) -> str:
    """Return the number of rows and a hash of them that does not depend on their order.

    It is a sum of hashes, which detects lost, duplicate and changed rows.

    Example:
      >>> rows = [{"round": 0}, {"round": 10}]
      >>> fingerprint(rows) == fingerprint(rows[::-1]) != fingerprint(rows + rows[:1])
      True
    """
    return _text([_hash(row) for row in rows])


def fingerprints(rows: Iterable[Row]) -> dict[str, str]:
    """Return the fingerprint of each algorithm's rows."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(_label(row), []).append(row)
    return {label: fingerprint(own) for label, own in sorted(found.items())}


def _hash(row: Row) -> int:
    return int.from_bytes(hashlib.sha256(_sorted(row).encode()).digest()[:16])


def _text(hashes: list[int]) -> str:
    return f"{len(hashes)} rows {sum(hashes) % 2**128:032x}"


def _label(row: Row) -> str:
    return str(row.get("algorithm", ""))


def _parsed(line: bytes) -> Row | None:
    """Return the row of a line; ``None`` if it is incomplete or damaged."""
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


class _Curve:
    """The rows of one run, and lists of the columns that decide its verdict."""

    def __init__(self, rows: Iterable[Row] = ()):
        self.rows: list[Row] = []
        self.columns: dict[str, list[Any]] = {name: [] for name in _JUDGED}
        for row in rows:
            self.append(row)

    def append(self, row: Row) -> None:
        self.rows.append(row)
        for name, missing in _JUDGED.items():
            value = row.get(name)
            self.columns[name].append(missing if value is None else value)


class Recorder:
    """The rows of one job."""

    def __init__(
        self,
        label: str,
        grid: PyTree,
        seeds: tuple[int, ...],
        optima: dict[float, float],
        store: RowStore,
        epsilon: Callable[[int, int], float] | None = None,
    ):
        """Read the rows so far without duplicates; ``epsilon`` takes a point and its rounds.

        Rows of other points are kept, because a widened grid starts again from its first points.
        """
        self.label, self.seeds, self.optima, self.store = label, seeds, optima, store
        self.epsilon = epsilon
        self.points = tidy.points_of(grid)
        self.curves: defaultdict[tuple[int, int], _Curve] = defaultdict(_Curve)
        places = {tuple(point.values()): index for index, point in enumerate(self.points)}
        kept: dict[tuple, Row] = {}
        for row in store.of(label):
            if row.get("seed") in seeds and "round" in row:
                kept.setdefault(
                    (tidy.hparams_of(row, grid._fields), row["seed"], row["round"]), row
                )
        store.replace(label, list(kept.values()))
        for (point, seed, _), row in kept.items():
            if point in places:
                place = places[point], seeds.index(seed)
                self.curves[place].append(row)

    def add(self, rounds: int, points: np.ndarray, look: dict[str, np.ndarray]) -> None:
        """Append a row for each of these points and each seed.

        A point that has diverged in all seeds gets no further rows.

        Args:
          rounds: the number of rounds before the evaluation.
          points: the indices of the points in the grid.
          look: the measures, with axes [points, seeds].
        """
        seen = {name: values.tolist() for name, values in look.items() if name != "round"}
        rows = [
            self._row(rounds, (int(point), seed), {k: v[place][seed] for k, v in seen.items()})
            for place, point in enumerate(points)
            if not self.is_over(point, rounds - 1)
            for seed in range(len(self.seeds))
        ]
        self.store.append(rows)

    def rows(self, points: Iterable[int]) -> list[Row]:
        """Return the rows so far of these points."""
        return [row for place in self._places(points) for row in self.curves[place].rows]

    def is_over(self, point: int, until: int) -> bool:
        """Return whether a point had diverged in all seeds by round ``until``."""
        ends = [self.curves[place].rows[-1:] for place in self._places([point])]
        return all(
            end and end[0]["round"] <= until and end[0]["status"].startswith("diverged")
            for end in ends
        )

    def forget(self, points: Iterable[int], after: int) -> None:
        """Remove the rows of these points after the round ``after``."""
        gone: set[int] = set()
        for place in self._places(points):
            rows = self.curves[place].rows
            gone |= {id(row) for row in rows if row["round"] > after}
            self.curves[place] = _Curve(row for row in rows if row["round"] <= after)
        rows = self.store.of(self.label)
        self.store.replace(self.label, [row for row in rows if id(row) not in gone])

    def fingerprint(self, points: Iterable[int], until: int) -> str:
        """Return a fingerprint of the rows of these points up to a round."""
        return self.store.fingerprint(row for row in self.rows(points) if row["round"] <= until)

    def _places(self, points: Iterable[int]) -> list[tuple[int, int]]:
        return [(int(point), seed) for point in points for seed in range(len(self.seeds))]

    def _row(self, rounds: int, place: tuple[int, int], measured: dict[str, Any]) -> Row:
        point, seed = place
        curve = self.curves[place]
        last = curve.rows[-1] if curve.rows else None
        row = {"algorithm": self.label, **self.points[point], "seed": self.seeds[seed]}
        row |= {"round": rounds, "status": "", "participants": 0, "dropped": 0} | measured
        if self.epsilon is not None:
            row["privacy_epsilon"] = self.epsilon(point, rounds)
        optimum = self._optimum(self.points[point].get("penalty_scale"))
        if optimum is not None:
            row["suboptimality"] = row["objective"] - optimum
        # A block counts the bytes since the last row, a row all bytes so far.
        for name in ("bytes_up", "bytes_down"):
            before = last[name] if last else 0
            row[name] = before + round(row.get(name, 0))
        row = tidy.plain(row)
        curve.append(row)
        seen = curve.columns
        judged = verdict(
            seen["round"],
            seen["objective"],
            optimum,
            seen["dropped"],
            seen["participants"],
            {name: seen[name] for name in WARNINGS},
            len(curve.rows) - 1 if last and last["status"] in _SOUND else 0,
        )
        plain = judged.status is not Status.DIVERGED and not judged.warned
        row["status"] = judged.status.name.lower() if plain else judged.sentence
        return row

    def _optimum(self, scale: float | None) -> float | None:
        """Return the optimal objective at the strength nearest to this one, or at the first."""
        if not self.optima:
            return None
        if scale is None:
            return next(iter(self.optima.values()))
        return self.optima[min(self.optima, key=lambda known: abs(known - scale))]
