"""Run the jobs of a sweep block by block, with rows, checkpoints and resumption.

A grid runs in parts that fit into memory; each part runs up to the next rung of the search.
"""

import math
import pathlib
import time
from typing import Any

import jax
import numpy as np

from experiments.cli.console import Progress
from experiments.execution.accounts import epsilons_of, fingerprint_of, ledger
from experiments.execution.evaluation import observer, solve_optima, some_of
from experiments.execution.experiment import Prepared
from experiments.execution.jobs import Job, hours_of, keys_of
from experiments.execution.search import extended_grid, rungs, survivors
from experiments.process import distributed
from experiments.process.errors import UserError
from experiments.process.invocation import Watch
from experiments.report.rows import points_of, replacing
from experiments.report.summary import summarise
from experiments.storage.checkpoints import Checkpoint, load, parts_of, save, state_of
from experiments.storage.row_store import Recorder, RowStore
from experiments.storage.workdir import Workdir
from fcojax import citation, read_model
from fcojax.extend import Block, Placed, num_points, on_disk, place, sweep_blocks, take, take_points
from fcojax.problems import ClientData, condensed
from fcojax.types import PyTree

# Each extension multiplies one end of the grid by the ratio of its last two values.
_MAX_EXTENSIONS = 6
# A wider grid must improve the score by this share, or the valley is flat: FedDualAvg-OSP depends
# on the product of its rates alone but for the drift of clients, and on whole-brain scans ran from
# (0.01, 10) to (1e-5, 14,000) for five per cent of the objective.
_WORTHWHILE = 0.01


def run_sweep(
    given: Prepared, workdir: Workdir, progress: Progress, watch: Watch, checkpoint_every: float
) -> dict[str, Any]:
    """Run or resume all jobs of a sweep; return its summary, which is written after each job."""
    jobs, optima = given.jobs, {}
    parts = [part for job in jobs for part in (job.algorithm, job.plan)]
    summary: dict[str, Any] = {"algorithms": {}, "data": f"{given.data} {given.remarks}".strip()}
    summary["citation"] = citation(given.penalty, *parts)
    private = any(job.plan.uploads.noisy for job in jobs)
    if private:
        distributed.broadcast_from_first(
            lambda: workdir.refuse_other_data(fingerprint_of(given.problem.train))
        )
    for sentence in filter(None, (given.remarks, given.stopped)):
        progress.say(sentence)
    store = distributed.broadcast_from_first(lambda: RowStore(workdir.path / "rows.jsonl"))
    store.writes = distributed.is_first()
    if given.solves:
        optima = distributed.broadcast_from_first(lambda: _optima(given, progress))
        summary["optimum"] = {f"{scale:g}": measures for scale, measures in optima.items()}
    objectives = {scale: measures["objective"] for scale, measures in optima.items()}
    runner = SweepRunner(given, workdir.path, store, objectives, progress, watch, checkpoint_every)
    for job in jobs:
        summary["algorithms"][job.label] = runner.run(job)
        progress.result(job.label, summary["algorithms"][job.label])
        if distributed.is_first():
            workdir.write_summary(summary)
    if private:
        summary["privacy"] = ledger(jobs, given.settings, store)
        summary["privacy"] |= {"budget": given.stopped} if given.stopped else {}
    return summary


def _optima(given: Prepared, progress: Progress) -> dict[float, dict[str, float]]:
    """Return the measures at the optima; none, after a sentence, if they take too long."""
    scales = given.settings.penalty_scales
    progress.write(f"solving for the optimum of {len(scales)} strength{'s'[: len(scales) - 1]}")
    try:
        return dict(solve_optima(given.problem, given.penalty, scales))
    except TimeoutError as error:
        panels = (panel.measure for panel in given.sweep.panels)
        if "suboptimality" in (given.settings.criterion.measure, *panels):
            raise UserError(f"{error}; show the objective in its place.") from error
        progress.say(f"{error}.")
        return {}


class SweepRunner:
    """Run the jobs of one sweep in one workdir, one after the other."""

    def __init__(
        self,
        given: Prepared,
        workdir: pathlib.Path,
        rows: RowStore,
        optima: dict[float, float],
        progress: Progress,
        watch: Watch,
        checkpoint_every: float = 15.0,
    ):
        """Build the observer that all jobs share, so that they share compiled programs.

        Evaluations of squared errors read as few rows as there are: with the 10,240 of the lasso
        they take longer than the rounds.

        Args:
          given: the sweep.
          workdir: the folder of the run.
          rows: the rows so far.
          optima: the optimal objective for each strength of the penalty, where it was computed.
          progress: reports the progress of the run.
          watch: tells whether a signal has asked the run to stop.
          checkpoint_every: seconds between two checkpoints.
        """
        self.settings, self.problem = given.settings, given.problem
        self.workdir, self.rows, self.optima = workdir, rows, optima
        self.progress, self.watch, self.checkpoint_every = progress, watch, checkpoint_every
        self.observe = observer(self.problem, given.penalty, self.settings.penalty_scales[0])
        train, validation = self.problem.train, self.problem.validation
        self.evaluated = condensed(self.problem.loss, train)
        self.validation = validation and condensed(self.problem.loss, validation)

    def run(self, job: Job) -> dict[str, Any]:
        """Run or resume a job; return its part of the summary.

        With ``extend`` the grid is widened while the best point lies at its edge and the last wider
        grid improved the score.
        """
        left, before = _MAX_EXTENSIONS if self.settings.keys.extend else 0, math.inf
        while True:
            found = self._run_grid(job)
            flat = abs(found["score"] - before) <= _WORTHWHILE * abs(before) < math.inf
            if not (left and found["edges"]) or flat:
                return found
            job, left = job._replace(grid=extended_grid(job.grid, found["edges"])), left - 1
            before = found["score"]

    def place(self, job: Job) -> Placed:
        """Place a job on the devices, in parts that fit into their memory."""
        train, validation = self.problem.train, self.validation

        def context(data: ClientData) -> PyTree:
            rows = self.evaluated
            if on_disk(train) and jax.process_count() == 1:
                rows = some_of(train)
            elif rows is train and job.train is train:
                rows = data
            return rows, validation

        return place(
            job.algorithm,
            self.settings.scheduled(job.grid),
            self.problem.init,
            job.train,
            keys_of(job, self.settings),
            job.plan,
            ends=self.settings.ends(self.settings.num_rounds),
            observe=self.observe,
            context=context,
        )

    def _run_grid(self, job: Job) -> dict[str, Any]:
        """Run all parts up to one rung after the other; save the best model."""
        self.job, self.began = job, time.monotonic()
        settings, fields = self.settings, job.grid._fields
        runs = num_points(job.grid) * len(settings.seeds)
        self.progress.share(job.label, 0.0, f"compiling for {runs} points and seeds")
        self.placed = self.place(job)
        self.folder = self.workdir / "checkpoints" / job.label
        self.recorder = Recorder(
            job.label,
            job.grid,
            settings.seeds,
            self.optima,
            self.rows,
            epsilons_of(job, settings),
            hours_of(job, settings),
        )
        # For each point of the grid the values that identify it in rows.
        names = [tuple(point.values()) for point in points_of(job.grid)]
        parts = distributed.broadcast_from_first(
            lambda: parts_of(self.folder, len(names), self.placed.size)
        )
        alive, before, behind = set(names), 0, 0
        for goal in rungs(
            settings.keys.search, len(names), settings.num_rounds, settings.keys.eval_every
        ):
            if behind:
                rows = self.recorder.rows(range(len(names)))
                alive = survivors(rows, fields, settings.criterion, behind, before)
            left = [part[[names[point] in alive for point in part]] for part in parts]
            busy = [number for number, points in enumerate(left) if points.size]
            for turn, number in enumerate(busy):
                share = turn / len(busy), len(busy)
                self._advance(parts[number], left[number], behind, goal, *share)
            before, behind = behind, goal
        summary = summarise(self.recorder.rows(range(len(names))), fields, settings.criterion)
        point = names.index(tuple(summary["best"].values()))
        if not self.recorder.is_over(point, settings.num_rounds):
            self._save_model(next(part for part in parts if point in part), point)
        return summary | {
            "seconds": round(time.monotonic() - self.began, 3),
            "client_chunk_size": self.placed.program.plan.client_chunk_size,
            "point_chunk_size": self.placed.program.plan.point_chunk_size,
        }

    def _advance(
        self, part: np.ndarray, points: np.ndarray, behind: int, goal: int, done: float, busy: int
    ) -> None:
        """Run or resume these points of one part from the rung ``behind`` to ``goal``.

        ``done`` of the ``busy`` parts on this way have reached it.
        """
        found, state, stored, at = self._checkpoint(part, points, goal), None, None, -1
        if found is not None:
            # Seconds of earlier processes.
            self.began = min(self.began, time.monotonic() - found.notes["seconds"])
            at = found.notes["round"]
            if at >= goal:
                return
            stored = np.array(found.notes["points"])
            state = state_of(found.leaves, self.placed.shapes(stored))
            points = np.intersect1d(points, stored)
        self.recorder.forget(points, at)
        self.saved, self.ends = time.monotonic(), False
        with self.watch.saving():
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
                    self._save(part, block)
                rounds = behind + done * (goal - behind) + (block.rounds - behind) / busy
                self.progress.share(self.job.label, rounds / self.settings.num_rounds)
                if self.ends:
                    break
            # No process continues or ends before the first has saved.
            (asked,) = distributed.max_over_processes(self.watch.asked or 0)
            if asked:
                distributed.leave()
                self.watch.end(asked)

    def _wants_state(self) -> bool:
        """Return whether a checkpoint is due, or any process has received a signal to stop."""
        due = int(time.monotonic() - self.saved > self.checkpoint_every)
        asked, due = distributed.max_over_processes(self.watch.asked or 0, due)
        self.ends = bool(asked)
        return bool(asked or due)

    def _save(self, part: np.ndarray, block: Block) -> None:
        notes = {
            "round": block.rounds,
            "seconds": time.monotonic() - self.began,
            "points": block.points.tolist(),
            "rows": len(self.recorder.rows(part, block.rounds)),
        }
        if distributed.is_first():
            self.rows.sync()
            save(self._path_of(part), block.state, notes)
        self.saved = time.monotonic()

    def _checkpoint(self, part: np.ndarray, points: np.ndarray, goal: int) -> Checkpoint | None:
        """Return the checkpoint of a part if it agrees with the rows.

        It belongs to round ``goal`` or a later one, or contains at least the ``points`` that have
        not diverged.
        """
        path = self._path_of(part)
        found = distributed.broadcast_from_first(lambda: load(path))
        if found is not None:
            at, notes = found.notes["round"], found.notes
            missing = np.setdiff1d(points, notes["points"])
            over = all(self.recorder.is_over(point, at) for point in missing)
            holds = at >= goal or (over and missing.size < points.size)
            if holds and notes["rows"] == len(self.recorder.rows(part, at)):
                return found
        if distributed.is_first() and path.exists():
            self.progress.say(f"{path} is damaged or of other rows, so its points start over.")
        return None

    def _path_of(self, part: np.ndarray) -> pathlib.Path:
        return self.folder / f"{part[0]}-{part[-1]}.npz"

    def _save_model(self, part: np.ndarray, point: int) -> None:
        """Write a point's model for the first seed, from its checkpoint, as an npz file."""
        found = self._checkpoint(part, np.array([point]), self.settings.num_rounds)
        assert found is not None, "the checkpoint was removed while the run ended"
        stored = np.array(found.notes["points"])
        state = state_of(found.leaves, self.placed.shapes(stored))
        state = take_points(state, np.flatnonzero(stored == point)[:1])
        grid = take(self.placed.grid, np.array([point]))
        model = jax.device_get(read_model(self.job.algorithm, grid, state))
        arrays = {
            jax.tree_util.keystr(place, simple=True, separator=".") or "params": leaf[0, 0]
            for place, leaf in jax.tree_util.tree_flatten_with_path(model)[0]
        }
        if distributed.is_first():
            path = self.workdir / "models" / f"{self.job.label}.npz"
            path.parent.mkdir(exist_ok=True)
            with replacing(path) as file:
                np.savez(file, **arrays)
