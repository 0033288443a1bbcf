"""Turn evaluations of a sweep into rows on disk, each with the verdict on its curve."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from experiments.report import rows as tidy
from experiments.report.verdict import WARNINGS, verdict
from experiments.storage.row_store import RowStore
from fcojax.engine.status import Status
from fcojax.types import PyTree

# Statuses of rows before which nothing went wrong.
_SOUND = {status.name.lower() for status in Status if status is not Status.DIVERGED}


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
        """Read the rows so far; remove duplicates; ``epsilon`` is of a point after some rounds.

        Rows of other points stay, since a grid that is widened begins anew with its first points.
        """
        self.label, self.seeds, self.optima, self.store = label, seeds, optima, store
        self.epsilon = epsilon
        self.points = tidy.points_of(grid)
        self.curves: dict[tuple[int, int], list[tidy.Row]] = {}
        places = {tuple(point.values()): index for index, point in enumerate(self.points)}
        kept: dict[tuple, tidy.Row] = {}
        for row in store.of(label):
            if row.get("seed") in seeds and "round" in row:
                kept.setdefault(
                    (tidy.hparams_of(row, grid._fields), row["seed"], row["round"]), row
                )
        store.replace(label, list(kept.values()))
        for (point, seed, _), row in kept.items():
            if point in places:
                place = places[point], seeds.index(seed)
                self.curves.setdefault(place, []).append(row)

    def add(self, rounds: int, points: np.ndarray, look: dict[str, np.ndarray]) -> list[tidy.Row]:
        """Append and return a row for each of these points and each seed.

        Points that diverged before, in all seeds, have no further rows.

        Args:
          rounds: rounds behind the evaluation.
          points: the points.
          look: what was measured, with axes [points, seeds].
        """
        seen = {name: values.tolist() for name, values in look.items() if name != "round"}
        rows = [
            self._row(rounds, (int(point), seed), {k: v[place][seed] for k, v in seen.items()})
            for place, point in enumerate(points)
            if not self.is_over(point, rounds - 1)
            for seed in range(len(self.seeds))
        ]
        self.store.append(rows)
        return rows

    def rows(self, points: Iterable[int]) -> list[tidy.Row]:
        """Return the rows so far of these points."""
        return [row for place in self._places(points) for row in self.curves.get(place, [])]

    def is_over(self, point: int, until: int) -> bool:
        """Return whether a point had diverged in all seeds by a round."""
        ends = [self.curves.get(place, [])[-1:] for place in self._places([point])]
        return all(
            end and end[0]["round"] <= until and end[0]["status"].startswith("diverged")
            for end in ends
        )

    def forget(self, points: Iterable[int], after: int) -> None:
        """Remove the rows of these points of later rounds than ``after``."""
        gone: set[int] = set()
        for place in self._places(points):
            curve = self.curves.get(place, [])
            gone |= {id(row) for row in curve if row["round"] > after}
            self.curves[place] = [row for row in curve if row["round"] <= after]
        rows = self.store.of(self.label)
        self.store.replace(self.label, [row for row in rows if id(row) not in gone])

    def fingerprint(self, points: Iterable[int], until: int) -> str:
        """Return a fingerprint of the rows of these points up to a round."""
        curves = (self.curves.get(place, []) for place in self._places(points))
        rows = (row for curve in curves for row in curve if row["round"] <= until)
        return self.store.fingerprint(rows)

    def _places(self, points: Iterable[int]) -> list[tuple[int, int]]:
        return [(int(point), seed) for point in points for seed in range(len(self.seeds))]

    def _row(self, rounds: int, place: tuple[int, int], measured: dict[str, Any]) -> tidy.Row:
        point, seed = place
        curve = self.curves.setdefault(place, [])
        row = {"algorithm": self.label, **self.points[point], "seed": self.seeds[seed]}
        row |= {"round": rounds, "status": ""}
        row |= measured
        row.setdefault("participants", 0)
        row.setdefault("dropped", 0)
        if self.epsilon is not None:
            row["privacy_epsilon"] = self.epsilon(point, rounds)
        optimum = self._optimum(self.points[point].get("penalty_scale"))
        if optimum is not None:
            row["suboptimality"] = row["objective"] - optimum
        for name in ("bytes_up", "bytes_down"):  # since the last row; a row has the sum so far
            before = curve[-1][name] if curve else 0
            row[name] = before + round(row.get(name, 0))
        row = tidy.plain(row)
        was_sound = bool(curve) and curve[-1]["status"] in _SOUND
        curve.append(row)
        judged = verdict(
            _Column(curve, "round"), _Column(curve, "objective"), optimum,
            _Column(curve, "dropped"), _Column(curve, "participants"),
            {name: _Column(curve, name, 0.0) for name in WARNINGS},
            len(curve) - 1 if was_sound else 0,
        )  # fmt: skip
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


class _Column(Sequence):
    """One column of a growing curve, of which only a few entries are read."""

    def __init__(self, curve: list[tidy.Row], name: str, missing: float = float("nan")):
        self.curve, self.name, self.missing = curve, name, missing

    def __len__(self) -> int:
        return len(self.curve)

    def __getitem__(self, index: Any) -> Any:
        value = self.curve[index].get(self.name)
        return self.missing if value is None else value
