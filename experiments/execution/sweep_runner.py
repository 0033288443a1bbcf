"""Run the jobs of a sweep block by block, with rows, checkpoints and resumption.

A grid runs in parts that fit into memory; each part runs up to the next rung of the search.
"""

import dataclasses
import math
import pathlib
import time
from typing import Any

import jax
import numpy as np

from experiments.cli.console import Progress
from experiments.config.settings import Settings
from experiments.execution.accounts import epsilons_of
from experiments.execution.evaluation import observer, some_of, with_clients
from experiments.execution.jobs import Job, hours_of, keys_of
from experiments.execution.search import extended_grid, rungs, survivors
from experiments.process import distributed
from experiments.process.signals import Watch
from experiments.report.rows import Row, hparams_of, points_of, replacing
from experiments.report.summary import summarise
from experiments.storage.checkpoints import Checkpoint, newest, parts_of, save, state_of
from experiments.storage.row_store import Recorder, RowStore
from fcojax import State, read_model
from fcojax.extend import Block, Placed, num_points, on_disk, place, sweep_blocks, take, take_points
from fcojax.problems import ClientData, Problem, condensed
from fcojax.transforms import Penalty
from fcojax.types import PyTree

# Each extension multiplies one end of the grid by the ratio of its last two values.
_MAX_EXTENSIONS = 6
# A wider grid must improve the score by this share, or the valley is flat: FedDualAvg-OSP depends
# on the product of its rates alone but for the drift of clients, and on whole-brain scans ran from
# (0.01, 10) to (1e-5, 14,000) for five per cent of the objective.
_WORTHWHILE = 0.01


@dataclasses.dataclass
class SweepRunner:
    """Run the jobs of one sweep in one workdir.

    Attributes:
      settings: the settings of the sweep.
      problem: loss, data and measures.
      penalty: psi.
      workdir: the folder of the run.
      rows: the rows so far.
      optima: the optimal objective for each strength of the penalty, where it was computed.
      progress: reports the progress of the run.
      watch: tells whether a signal has asked the run to stop.
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
        """Build the observer that all jobs share, so that they share compiled programs.

        Evaluations of squared errors read as few rows as there are: with the 10,240 of the lasso
        they take longer than the rounds.
        """
        self.observe = observer(
            self.problem, self.penalty, self.settings.penalty_scales[0], self.settings.certificate
        )
        train, validation = self.problem.train, self.problem.validation
        self.evaluated = condensed(self.problem.loss, train)
        self.validation = validation and condensed(self.problem.loss, validation)

    def run(self, job: Job) -> dict[str, Any]:
        """Run or resume a job; return its part of the summary.

        With ``settings.extend`` the grid is widened while the best point lies at its edge and the
        last wider grid improved the score.
        """
        left, before = _MAX_EXTENSIONS if self.settings.extend else 0, math.inf
        while True:
            last = _JobRun(self, job)
            found = last.run()
            flat = abs(found["score"] - before) <= _WORTHWHILE * abs(before) < math.inf
            if not (left and found["edges"]) or flat:
                break
            job, left = job._replace(grid=extended_grid(job.grid, found["edges"])), left - 1
            before = found["score"]
        self.rows.replace(job.label, last.rows())
        if self.settings.extend and found["edges"]:
            self.progress.say(
                f"{job.label} is still best at an edge, but the last wider grid improved it by "
                f"less than {_WORTHWHILE:.0%}."
                if flat
                else f"{job.label} is still best at an edge after {_MAX_EXTENSIONS} extensions."
            )
        return found

    def place(self, job: Job) -> Placed:
        """Place a job on the devices, in parts that fit into their memory."""
        train, validation = self.problem.train, self.validation

        observe, clients = self.observe, ()
        if self.settings.by_client:
            # A block of a population on disk has the states of its own clients only.
            has_own = job.train is train and not on_disk(train)
            observe = with_clients(observe, job.algorithm, self.problem, has_own)
            clients = (some_of(train),)

        def context(data: ClientData) -> PyTree:
            rows = self.evaluated
            if on_disk(train) and jax.process_count() == 1:
                rows = some_of(train)
            elif rows is train and job.train is train:
                rows = data
            return rows, validation, *clients

        return place(
            job.algorithm,
            self.settings.scheduled(job.grid),
            self.problem.init,
            job.train,
            keys_of(job, self.settings),
            job.plan,
            ends=self.settings.ends(self.settings.num_rounds),
            observe=observe,
            context=context,
        )


class _JobRun:
    """The state of one job while its grid runs."""

    def __init__(self, runner: SweepRunner, job: Job):
        self.began = time.monotonic()
        self.runner, self.settings, self.job = runner, runner.settings, job
        self.progress, self.watch = runner.progress, runner.watch
        runs = num_points(job.grid) * len(self.settings.seeds)
        self.progress.share(job.label, 0.0, f"compiling for {runs} points and seeds")
        self.placed = runner.place(job)
        # For each point of the grid the values that identify it in rows.
        self.names = [tuple(point.values()) for point in points_of(job.grid)]
        # The time of the last checkpoint, the seconds that it took, and whether it is the last one.
        self.saved, self.saving, self.ends = self.began, 0.0, False
        self.recorder = Recorder(
            job.label,
            job.grid,
            self.settings.seeds,
            runner.optima,
            runner.rows,
            epsilons_of(job, self.settings),
            hours_of(job, self.settings),
        )
        self.folder = runner.workdir / "checkpoints" / job.label
        self.parts = distributed.broadcast_from_first(
            lambda: parts_of(self.folder, len(self.names), self.placed.size)
        )

    def rows(self) -> list[Row]:
        """Return the rows of the points of this grid."""
        rows, names = self.runner.rows.of(self.job.label), set(self.names)
        return [row for row in rows if hparams_of(row, self.job.grid._fields) in names]

    def run(self) -> dict[str, Any]:
        """Run all parts up to one rung after the other; save the best model."""
        settings, names, fields = self.settings, self.names, self.job.grid._fields
        goals = rungs(settings.search, len(names), settings.num_rounds, settings.eval_every)
        alive, before, behind = set(names), 0, 0
        with self.watch.deferred():
            for goal in goals:
                if behind:
                    rows = self.rows()
                    alive = survivors(rows, fields, settings.criterion, behind, before)
                left = [part[[names[point] in alive for point in part]] for part in self.parts]
                busy = [number for number, points in enumerate(left) if points.size]
                for turn, number in enumerate(busy):
                    self._advance(
                        self.parts[number], left[number], behind, goal, turn / len(busy), len(busy)
                    )
                before, behind = behind, goal
            summary = summarise(self.rows(), fields, settings.criterion)
            model = self._model(tuple(summary["best"].values()))
        if distributed.is_first():
            _save_model(self.runner.workdir / "models" / f"{self.job.label}.npz", model)
        return summary | {
            "seconds": round(time.monotonic() - self.began, 3),
            "client_chunk_size": self.placed.program.plan.client_chunk_size,
            "point_chunk_size": self.placed.program.plan.point_chunk_size,
        }

    def _advance(
        self, part: np.ndarray, points: np.ndarray, behind: int, goal: int, done: float, busy: int
    ) -> None:
        """Run or resume these points of one part.

        Args:
          part: the part.
          points: its points that have not been left out.
          behind: the rung before, which all have reached.
          goal: the next rung.
          done: the share of the parts that have reached it.
          busy: the number of parts on the way to it.
        """
        self.watch.stop_if_asked()
        found, state, stored = self._newest(part, points, goal), None, None
        if found is not None:
            self.watch.saved = True
            # Seconds of earlier processes.
            self.began = min(self.began, time.monotonic() - found.notes["seconds"])
            if found.round >= goal:
                return
            stored = np.array(found.notes["points"])
            state = state_of(found.leaves, self.placed.shapes(stored))
            points = np.intersect1d(points, stored)
        self.recorder.forget(points, -1 if found is None else found.round)
        self.saved, self.ends = time.monotonic(), False
        for block in sweep_blocks(
            self.placed,
            points,
            self.settings.ends(goal),
            state=state,
            stored=stored,
            is_over=self.recorder.is_over,
            wants_state=self._wants_state,
        ):
            self.recorder.add(block.rounds, block.points, block.history)
            if block.state is not None:
                self._save(part, block, block.state)
            rounds = behind + done * (goal - behind) + (block.rounds - behind) / busy
            self.progress.share(self.job.label, rounds / self.settings.num_rounds)
            if self.ends:
                break
        distributed.max_over_processes(0)  # no process continues or ends before the first has saved
        self.watch.stop_if_asked()

    def _wants_state(self) -> bool:
        """Return whether a checkpoint is due, or any process has received a signal to stop."""
        # A state that takes 2 s to write is saved half as often.
        least = self.runner.checkpoint_every * max(1.0, self.saving)
        due = int(time.monotonic() - self.saved > least)
        asked, due = distributed.max_over_processes(self.watch.asked or 0, due)
        if asked:
            self.watch.asked, self.ends = asked, True
        return bool(asked or due)

    def _save(self, part: np.ndarray, block: Block, state: State) -> None:
        began = time.monotonic()
        notes = {
            "seconds": began - self.began,
            "points": block.points.tolist(),
            "rows": self.recorder.fingerprint(part, block.rounds),
        }
        if distributed.is_first():
            self.runner.rows.sync()
            save(self._folder_of(part), block.rounds, state, notes)
        self.watch.saved = True
        self.saved = time.monotonic()
        self.saving = self.saved - began

    def _newest(self, part: np.ndarray, points: np.ndarray, goal: int) -> Checkpoint | None:
        """Return the newest checkpoint of a part that agrees with the rows.

        It belongs to round ``goal`` or a later one, or contains at least the ``points`` that have
        not diverged.
        """

        def refused(number: int, notes: dict[str, Any]) -> str | None:
            if notes["rows"] != self.recorder.fingerprint(part, number):
                return "rows.jsonl does not hold the rows that belong to it"
            missing = np.setdiff1d(points, notes["points"])
            over = all(self.recorder.is_over(point, number) for point in missing)
            if number < goal and not (over and missing.size < points.size):
                return "it does not hold these points"
            return None

        return distributed.broadcast_from_first(
            lambda: newest(self._folder_of(part), refused, self.progress.say)
        )

    def _folder_of(self, part: np.ndarray) -> pathlib.Path:
        return self.folder / f"{part[0]}-{part[-1]}"

    def _model(self, best: tuple[float, ...]) -> PyTree:
        """Return the best point's model for the first seed.

        If all points diverged there is no model, and the tree is empty.
        """
        point = self.names.index(best)
        if self.recorder.is_over(point, self.settings.num_rounds):
            return ()
        (part,) = (part for part in self.parts if point in part)
        found = self._newest(part, np.array([point]), self.settings.num_rounds)
        assert found is not None, "the last checkpoint was removed while the run ended"
        stored = np.array(found.notes["points"])
        state = state_of(found.leaves, self.placed.shapes(stored))
        state = take_points(state, np.flatnonzero(stored == point)[:1])
        model = read_model(self.job.algorithm, take(self.placed.grid, np.array([point])), state)
        return jax.tree.map(lambda leaf: leaf[0, 0], jax.device_get(model))


def _save_model(path: pathlib.Path, model: PyTree) -> None:
    """Write a model as an npz file; the file appears only when it is complete."""
    arrays = {
        jax.tree_util.keystr(place, simple=True, separator=".") or "params": leaf
        for place, leaf in jax.tree_util.tree_flatten_with_path(model)[0]
    }
    if not arrays:
        return
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as file:
        np.savez(file, **arrays)
