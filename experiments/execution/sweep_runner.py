"""Run the jobs of a sweep block by block, with rows, checkpoints and resumption.

A grid runs in parts that fit into memory; each part runs up to the next rung of the search.
"""

import contextlib
import dataclasses
import functools
import pathlib
import time
from typing import Any

import jax
import numpy as np

from experiments.cli.console import Progress
from experiments.config.settings import Settings
from experiments.execution.accounts import epsilons_of
from experiments.execution.evaluation import observer
from experiments.execution.jobs import Job, placed
from experiments.execution.recorder import Recorder
from experiments.execution.search import extended_grid, rungs, survivors
from experiments.process import distributed
from experiments.process.signals import Watch
from experiments.report.rows import Row, hparams_of, points_of
from experiments.report.summary import summarise
from experiments.storage.checkpoints import Checkpoints, folder_of, holding, parts_of, state_of
from experiments.storage.row_store import RowStore
from fcojax import State, read_model
from fcojax.extend import Block, Placed, num_points, sweep_blocks, take, take_points
from fcojax.problems import Problem
from fcojax.transforms import Penalty
from fcojax.types import PyTree

# Each multiplies one end of the grid by the ratio of its last two values.
_MAX_EXTENSIONS = 6


@dataclasses.dataclass
class SweepRunner:
    """Run the jobs of one sweep in one workdir.

    Attributes:
      settings: the settings of the sweep.
      problem: the problem.
      penalty: psi.
      workdir: the folder of the run.
      rows: the rows so far.
      optima: the optimal objective for each strength of the penalty, where it was computed.
      progress: reports the progress of the run.
      watch: knows whether a signal has asked to stop.
      checkpoint_every: seconds between two checkpoints: long enough that saving is a small share of
        the time, short enough to lose little by a crash.
    """

    settings: Settings
    problem: Problem
    penalty: Penalty
    workdir: pathlib.Path
    rows: RowStore
    optima: dict[float, float] = dataclasses.field(default_factory=dict)
    progress: Progress = dataclasses.field(default_factory=Progress)
    watch: Watch = dataclasses.field(default_factory=Watch)
    checkpoint_every: float = 15.0

    def __post_init__(self):
        """Build the observer that all jobs share, so that they share compiled programs."""
        self.observe = observer(
            self.problem, self.penalty, self.settings.penalty_scales[0], self.settings.certificate
        )

    def run(self, job: Job) -> dict[str, Any]:
        """Run or resume a job; return its part of the summary.

        With ``settings.extend`` the grid is widened while the best point lies at its edge.
        """
        left = _MAX_EXTENSIONS if self.settings.extend else 0
        while True:
            last = _JobRun(self, job)
            found = last.run()
            if not (left and found["edges"]):
                break
            job, left = job._replace(grid=extended_grid(job.grid, found["edges"])), left - 1
        self.rows.replace(job.label, last.rows())
        if self.settings.extend and found["edges"]:
            self.progress.say(
                f"{job.label} is still best at an edge after {_MAX_EXTENSIONS} extensions."
            )
        return found

    def place(self, job: Job) -> Placed:
        """Place a job on the devices, in parts that fit into their memory."""
        return placed(job, self.problem, self.settings, self.observe)


class _JobRun:
    """The state of one job while its grid runs."""

    def __init__(self, runner: SweepRunner, job: Job):
        self.began = time.monotonic()
        self.runner, self.settings, self.job = runner, runner.settings, job
        self.progress, self.watch = runner.progress, runner.watch
        runs = num_points(job.grid) * len(self.settings.seeds)
        self.progress.share(job.label, 0.0, f"compiling for {runs} points and seeds")
        self.placed = runner.place(job)
        self.label, self.fields = job.label, job.grid._fields
        # For each point of the grid the values that identify it in rows.
        self.names = [tuple(point.values()) for point in points_of(job.grid)]
        self.saved, self.ends = self.began, False
        self.recorder = Recorder(
            job.label,
            job.grid,
            self.settings.seeds,
            runner.optima,
            runner.rows,
            epsilons_of(job, self.settings),
        )
        self.folder = runner.workdir / "checkpoints" / job.label
        self.parts = distributed.broadcast_from_first(
            lambda: parts_of(self.folder, len(self.names), self.placed.size)
        )

    def rows(self) -> list[Row]:
        """Return the rows of the points of this grid."""
        rows, names = self.runner.rows.of(self.label), set(self.names)
        return [row for row in rows if hparams_of(row, self.fields) in names]

    def run(self) -> dict[str, Any]:
        for part in self.parts:
            self._newest(part)  # removes what does not agree with the rows
        while True:
            with self.watch.deferred():
                self._climb()
                summary = summarise(self.rows(), self.fields, self.settings.criterion)
                model = self._model(tuple(summary["best"].values()))
            # A damaged checkpoint has been removed by now, and its rounds are run again.
            if model is not None:
                if distributed.is_first():
                    _save_model(self.runner.workdir / "models" / f"{self.label}.npz", model)
                plan = self.placed.plan
                return summary | {
                    "seconds": round(time.monotonic() - self.began, 3),
                    "client_chunk_size": plan.client_chunk_size,
                    "point_chunk_size": plan.point_chunk_size,
                }

    def _climb(self) -> None:
        """Run all parts up to one rung after the other."""
        settings, names = self.settings, self.names
        goals = rungs(settings.search, len(names), settings.num_rounds, settings.eval_every)
        alive, before, behind = set(names), 0, 0
        for goal in goals:
            if behind:
                alive = survivors(self.rows(), self.fields, settings.criterion, behind, before)
            left = [part[[names[point] in alive for point in part]] for part in self.parts]
            busy = [number for number, points in enumerate(left) if points.size]
            for place, number in enumerate(busy):
                done = functools.partial(
                    _rounds_done, behind, goal, place / len(busy), 1 / len(busy)
                )
                self._advance(self.parts[number], left[number], goal, done)
            before, behind = behind, goal

    def _advance(self, part: np.ndarray, points: np.ndarray, goal: int, done) -> None:
        """Run or resume these points of one part up to round ``goal``."""
        self.watch.stop_if_asked()
        checkpoints, step = self._newest(part)
        if step is not None and step >= goal:
            if distributed.is_first():
                self._add_seconds(checkpoints.notes(step))
            return
        restored = self._restore(checkpoints, step, points)
        state, stored = None, None
        if restored is None:
            self.recorder.forget(points, -1)
        else:
            state, stored = restored
            points = np.intersect1d(points, stored)
            self.recorder.forget(points, int(state.round))
        blocks = sweep_blocks(
            self.placed,
            points,
            self.settings.ends(goal),
            state=state,
            stored=stored,
            is_over=self.recorder.is_over,
            wants_state=self._wants_state,
        )
        self.saved, self.ends = time.monotonic(), False
        writer = Checkpoints(folder_of(self.folder, part), self.progress.say)
        with contextlib.closing(writer):
            for block in blocks:
                self.recorder.add(block.rounds, block.points, block.history)
                if block.state is not None:
                    self._save(writer, part, block, block.state)
                self.progress.share(self.label, done(block.rounds) / self.settings.num_rounds)
                if self.ends:
                    break
        distributed.max_over_processes(0)  # no process continues or ends before the first has saved
        self.watch.stop_if_asked()

    def _wants_state(self) -> bool:
        """Return whether a checkpoint is due, or any process has received a signal to stop."""
        due = int(time.monotonic() - self.saved > self.runner.checkpoint_every)
        asked, due = distributed.max_over_processes(self.watch.asked or 0, due)
        if asked:
            self.watch.asked, self.ends = asked, True
        return bool(asked or due)

    def _save(self, writer: Checkpoints, part: np.ndarray, block: Block, state: State) -> None:
        notes = {
            "seconds": time.monotonic() - self.began,
            "points": block.points.tolist(),
            "rows": self.recorder.fingerprint(part, block.rounds),
        }
        if distributed.is_first():
            self.runner.rows.sync()
            writer.save(block.rounds, state, notes)
        self.saved = time.monotonic()

    def _newest(self, part: np.ndarray) -> tuple[Checkpoints, int | None]:
        """Return the newest checkpoint of a part that agrees with the rows, and its round."""

        def accept(whole, step, notes):
            agrees = notes.get("rows") == self.recorder.fingerprint(whole, step)
            return None if agrees else "rows.jsonl does not hold the rows that belong to it"

        def found() -> tuple[pathlib.Path, int | None]:
            for folder in holding(self.folder, part):
                first, _, last = folder.name.partition("-")
                whole = range(int(first), int(last) + 1)
                kept = Checkpoints(folder, self.progress.say)
                step = kept.newest(functools.partial(accept, whole))
                if step is not None:
                    return folder, step
            return folder_of(self.folder, part), None

        folder, step = distributed.broadcast_from_first(found)
        return Checkpoints(folder, self.progress.say), step

    def _restore(
        self, checkpoints: Checkpoints, newest: int | None, points: np.ndarray
    ) -> tuple[State, np.ndarray] | None:
        """Return the state at a checkpoint, or if it is damaged at the one before, and its points.

        It has at least those of ``points`` that have not diverged.
        """

        def found() -> tuple[dict[str, Any], list[np.ndarray]] | None:
            for step in [] if newest is None else [s for s in checkpoints.rounds() if s <= newest]:
                notes = checkpoints.notes(step) or {}
                missing = np.setdiff1d(points, notes.get("points", []))
                if missing.size < points.size and all(
                    self.recorder.is_over(point, step) for point in missing
                ):
                    leaves = checkpoints.load(step)
                    if leaves is not None:
                        return notes, leaves
                else:
                    checkpoints.remove(step, "it does not hold these points")
            return None

        restored = distributed.broadcast_from_first(found)
        if restored is None:
            return None
        notes, leaves = restored
        stored = np.array(notes["points"])
        self._add_seconds(notes)
        return state_of(leaves, self.placed.shapes(stored)), stored

    def _add_seconds(self, notes: dict[str, Any] | None) -> None:
        """Add the seconds of earlier processes to this job's."""
        if notes is not None:
            self.began = min(self.began, time.monotonic() - notes.get("seconds", 0.0))

    def _model(self, best: tuple[float, ...]) -> PyTree | None:
        """Return the best point's model, of its first seed; ``None`` if its checkpoint was damaged.

        A job all of whose points diverged has none, which is an empty tree.
        """
        point = self.names.index(best)
        if self.recorder.is_over(point, self.settings.num_rounds):
            return ()
        (part,) = (part for part in self.parts if point in part)
        restored = self._restore(*self._newest(part), np.array([point]))
        if restored is None or int(restored[0].round) < self.settings.num_rounds:
            return None
        state, stored = restored
        state = take_points(state, np.flatnonzero(stored == point)[:1])
        model = read_model(self.job.algorithm, take(self.job.grid, np.array([point])), state)
        return jax.tree.map(lambda leaf: leaf[0, 0], jax.device_get(model))


def _save_model(path: pathlib.Path, model: PyTree) -> None:
    """Write a model as an npz file, which appears when it is complete."""
    arrays = {
        jax.tree_util.keystr(place, simple=True, separator=".") or "params": leaf
        for place, leaf in jax.tree_util.tree_flatten_with_path(model)[0]
    }
    if not arrays:
        return
    path.parent.mkdir(exist_ok=True)
    beside = path.with_suffix(".partial")
    with open(beside, "wb") as file:
        np.savez(file, **arrays)
    beside.replace(path)


def _rounds_done(behind: int, goal: int, before: float, part: float, rounds: int) -> float:
    """Return the rounds of the whole job that are done while one part of it runs."""
    return behind + before * (goal - behind) + part * (rounds - behind)
