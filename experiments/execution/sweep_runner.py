"""A sweep: checked before anything is written, then run by blocks with rows and checkpoints.

A grid runs in parts that fit into memory; each part runs up to the next rung of the search.
"""

import math
import os
import pathlib
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from experiments.cli.console import Progress
from experiments.config.settings import Settings, resolve
from experiments.execution.accounts import epsilons_of, fingerprint_of, ledger, within_budget
from experiments.execution.evaluation import columns, has_optimum, observer, solve_optima, some_of
from experiments.execution.jobs import Job, build, described, hours_of, keys_of
from experiments.execution.search import extended_grid, rungs, survivors
from experiments.process import distributed
from experiments.process.invocation import UserError, Watch, suggest
from experiments.report.rows import points_of, replacing, write_json
from experiments.report.summary import summarise
from experiments.storage.checkpoints import load, parts_of, save, state_of
from experiments.storage.row_store import Recorder, RowStore
from experiments.storage.workdir import Workdir
from experiments.study import Sweep
from fcojax import State, citation, read_model
from fcojax.extend import Block, Placed, on_disk, place, sweep_blocks, take, take_points
from fcojax.problems import ClientData, condensed
from fcojax.types import PyTree

# Each extension multiplies one end of the grid by the ratio of its last two values.
_MAX_EXTENSIONS = 6
# A wider grid must improve the score by this share, or the valley is flat: FedDualAvg-OSP depends
# on the product of its rates alone but for the drift of clients, and on whole-brain scans ran from
# (0.01, 10) to (1e-5, 14,000) for five per cent of the objective.
_WORTHWHILE = 0.01


class SweepRunner:
    """A sweep that has been checked, and its jobs in one workdir, one after the other.

    Attributes:
      settings: its settings, with the rounds that a privacy budget allows.
      problem: loss, clients and measures.
      jobs: the algorithms with their grids.
      data: the data in one sentence; ``remarks`` has more.
      draws: with ``data_by_seed`` a runner for each seed, with data of its own; otherwise itself.
    """

    def __init__(self, sweep: Sweep, config: ConfigDict, settings: Settings | None = None):
        """Build a sweep; raise ``ValueError`` or ``UserError`` for the first mistake.

        The runner of one draw is given its settings, of which the grids are those of all draws.

        All jobs share the observer, and so their compiled programs. Evaluations of squared errors
        read as few rows as there are: with the 10,240 of the lasso they take longer than the
        rounds.
        """
        own = settings is None
        settings = settings or resolve(config, sweep)
        problem, penalty = sweep.problem(config), sweep.penalty(config)
        self.jobs = build(sweep, config, settings, problem, penalty)
        settings, self.stopped = within_budget(self.jobs, settings)
        for job in self.jobs:  # runs that cannot be accounted are refused before they start
            epsilon = epsilons_of(job, settings)
            _ = epsilon and epsilon(0, 1)
        self.solves = has_optimum(sweep, problem, penalty, settings.criterion)
        measure, known = settings.criterion.measure, columns(problem, self.solves)
        if measure not in known:
            raise UserError(
                f"criterion is {measure!r}, which is not a measure; {suggest(measure, known)}"
            )
        self.shows_gap = "suboptimality" in (measure, *(panel.measure for panel in sweep.panels))
        if self.shows_gap and not self.solves:
            raise UserError(
                "a panel shows the suboptimality, which needs solve_optimum=True, clients in "
                "memory, and a problem and a penalty that are convex; pass Panel('objective', "
                "'objective')."
            )
        self.settings, self.problem, self.penalty = settings, problem, penalty
        self.data = described(problem, config, settings.keys.seeds)
        self.remarks = sweep.remarks(config)
        self.observe = observer(problem, penalty, settings.penalty_scales[0])
        train, validation = problem.train, problem.validation
        self.evaluated = condensed(problem.loss, train)
        self.validation = validation and condensed(problem.loss, validation)
        self.draws, keys = [self], settings.keys
        if own and keys.data_by_seed:
            if any(job.plan.uploads.noisy for job in self.jobs):
                raise UserError("data_by_seed draws several populations, but epsilon is of one.")
            self.draws = []
            for seed in keys.seeds:
                of_seed = config.copy_and_resolve_references()
                with of_seed.unlocked():
                    of_seed.data_seed = keys.data_seed + int(seed)
                alone = settings._replace(keys=keys._replace(seeds=(seed,)))
                self.draws.append(SweepRunner(sweep, of_seed, alone))

    def run(
        self, workdir: Workdir, progress: Progress, watch: Watch, checkpoint_every: float = 15.0
    ) -> dict[str, Any]:
        """Run or resume all jobs; return the summary, which is written after each job.

        Args:
          workdir: the folder of the run.
          progress: reports the progress of the run.
          watch: tells whether a signal has asked the run to stop.
          checkpoint_every: seconds between two checkpoints.
        """
        parts = [part for job in self.jobs for part in (job.algorithm, job.plan)]
        summary: dict[str, Any] = {"algorithms": {}}
        summary["data"] = f"{self.data} {self.remarks}".strip()
        summary["citation"] = citation(self.penalty, *parts)
        private = any(job.plan.uploads.noisy for job in self.jobs)
        if private:
            distributed.broadcast_from_first(
                lambda: workdir.refuse_other_data(fingerprint_of(self.problem.train))
            )
        for sentence in filter(None, (self.remarks, self.stopped)):
            progress.say(sentence)
        self.rows = distributed.broadcast_from_first(lambda: RowStore(workdir.path / "rows.jsonl"))
        self.rows.writes = distributed.is_first()
        given = workdir.path, progress, watch, checkpoint_every, self.rows
        found = [draw._begin(*given) for draw in self.draws]
        if self.solves:
            scales = found[0] if all(found) else ()
            summary["optimum"] = {
                f"{scale:g}": _mean([of[scale] for of in found]) for scale in scales
            }
        ahead = self._compiled_ahead()
        for job in self.jobs:
            if job.label in ahead:
                ahead[job.label].result()
            summary["algorithms"][job.label] = self._run_job(job)
            progress.result(job.label, summary["algorithms"][job.label])
            if distributed.is_first():
                write_json(workdir.path / "summary.json", summary)
        if private:
            summary["privacy"] = ledger(self.jobs, self.settings, self.rows)
            summary["privacy"] |= {"budget": self.stopped} if self.stopped else {}
        return summary

    def _begin(
        self,
        workdir: pathlib.Path,
        progress: Progress,
        watch: Watch,
        checkpoint_every: float,
        rows: RowStore,
    ) -> dict[float, dict[str, float]]:
        """Take what all draws of the data share; return the measures at the optima of this one."""
        self.workdir, self.progress, self.rows = workdir, progress, rows
        self.watch, self.checkpoint_every, self.turn = watch, checkpoint_every, (0, 1)
        optima = distributed.broadcast_from_first(self._optima) if self.solves else {}
        self.optima = {scale: measures["objective"] for scale, measures in optima.items()}
        return optima

    def _optima(self) -> dict[float, dict[str, float]]:
        """Return the measures at the optima; none, after a sentence, if they take too long."""
        scales = self.settings.penalty_scales
        many = "s"[: len(scales) - 1]
        self.progress.write(f"solving for the optimum of {len(scales)} strength{many}")
        try:
            return dict(solve_optima(self.problem, self.penalty, scales))
        except TimeoutError as error:
            if self.shows_gap:
                raise UserError(f"{error}; show the objective in its place.") from error
            self.progress.say(f"{error}.")
            return {}

    def _compiled_ahead(self) -> dict[str, Future]:
        """Begin to compile the programs of all jobs side by side, on one device that is no CPU.

        There compiling, and the timing of kernels for products, takes most of a short run, and one
        program uses few of the host's cores. The jobs find the programs in JAX's caches.
        """
        one = jax.device_count() == 1 and not on_disk(self.problem.train)
        if jax.default_backend() == "cpu" or not one:
            return {}
        pool, first = ThreadPoolExecutor(os.cpu_count()), self.draws[0]
        first.progress.write(f"compiling {len(first.jobs)} programs side by side")
        return {
            job.label: pool.submit(first._place(job).traced().lower().compile) for job in first.jobs
        }

    def _run_job(self, job: Job) -> dict[str, Any]:
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

    def _place(self, job: Job) -> Placed:
        """Place a job on the devices, in parts that fit into their memory."""
        train, validation = self.problem.train, self.validation

        def context(data: ClientData) -> PyTree:
            rows = self.evaluated
            if on_disk(train) and jax.process_count() == 1:
                rows = some_of(train)
            elif rows is train and job.train is train:
                rows = data
            return rows, validation

        settings, ends = self.settings, self.settings.ends(self.settings.keys.num_rounds)
        given = job.algorithm, settings.scheduled(job.grid), self.problem.init, job.train
        options: dict[str, Any] = {"observe": self.observe, "context": context}
        return place(*given, keys_of(job, settings), job.plan, ends=ends, **options)

    def _run_grid(self, job: Job) -> dict[str, Any]:
        """Run a job on all draws, one after the other; save the best model, of the first seed."""
        keys, fields = self.settings.keys, job.grid._fields
        # For each point of the grid the values that identify it in rows.
        names, rows, seconds = [tuple(point.values()) for point in points_of(job.grid)], [], 0.0
        for turn, draw in enumerate(self.draws):
            draw.turn = turn, len(self.draws)
            draw._run_draw(job, names)
            rows += draw.recorder.rows(range(len(names)))
            seconds += time.monotonic() - draw.began
        summary = summarise(rows, fields, self.settings.criterion)
        point, first = names.index(tuple(summary["best"].values())), self.draws[0]
        if not first.recorder.is_over(point, keys.num_rounds):
            first._save_model(next(part for part in first.parts if point in part), point)
        plan, sizes = first.placed.program.plan, ("client_chunk_size", "point_chunk_size")
        seen = {"seconds": round(seconds, 3)} | {name: getattr(plan, name) for name in sizes}
        return summary | seen

    def _run_draw(self, job: Job, names: list[tuple]) -> None:
        """Run all parts of a job's grid up to one rung after the other."""
        own = next(own for own in self.jobs if own.label == job.label)
        self.job, self.began = own._replace(grid=job.grid), time.monotonic()
        job, settings, keys = self.job, self.settings, self.settings.keys
        runs = len(names) * len(keys.seeds)
        self._share(0.0, f"compiling for {runs} points and seeds")
        self.placed = self._place(job)
        of_draw = f"draw_{keys.seeds[0]}" if keys.data_by_seed else ""
        self.folder = self.workdir / "checkpoints" / job.label / of_draw
        given = job.label, job.grid, keys.seeds, self.optima, self.rows
        self.recorder = Recorder(*given, epsilons_of(job, settings), hours_of(job, settings))
        self.parts = parts = distributed.broadcast_from_first(
            lambda: parts_of(self.folder, len(names), self.placed.size)
        )
        alive, before, behind = set(names), 0, 0
        for goal in rungs(keys.search, len(names), keys.num_rounds, keys.eval_every):
            if behind:
                rows = self.recorder.rows(range(len(names)))
                alive = survivors(rows, job.grid._fields, settings.criterion, behind, before)
            left = [part[[names[point] in alive for point in part]] for part in parts]
            busy = [number for number, points in enumerate(left) if points.size]
            for turn, number in enumerate(busy):
                share = turn / len(busy), len(busy)
                self._advance(parts[number], left[number], behind, goal, *share)
            before, behind = behind, goal

    def _share(self, done: float, what: str = "") -> None:
        """Report the share of a job that is done, on all draws."""
        turn, turns = self.turn
        self.progress.share(self.job.label, (turn + done) / turns, what)

    def _advance(
        self, part: np.ndarray, points: np.ndarray, behind: int, goal: int, done: float, busy: int
    ) -> None:
        """Run or resume these points of one part from the rung ``behind`` to ``goal``.

        ``done`` of the ``busy`` parts on this way have reached it.
        """
        found, state, stored, at = self._checkpoint(part, points, goal), None, None, -1
        if found is not None:
            notes, stored, state = found
            # Seconds of earlier processes.
            self.began = min(self.began, time.monotonic() - notes["seconds"])
            at = notes["round"]
            if at >= goal:
                return
            points = np.intersect1d(points, stored)
        self.recorder.forget(points, at)
        self.saved, self.ends = time.monotonic(), False
        asks = {"is_over": self.recorder.is_over, "wants_state": self._wants_state}
        given: dict[str, Any] = {"state": state, "stored": stored, **asks}
        with self.watch.saving():
            for block in sweep_blocks(self.placed, points, self.settings.ends(goal), **given):
                self.recorder.add(block.rounds, block.points, block.history)
                if block.state is not None:
                    self._save(part, block)
                rounds = behind + done * (goal - behind) + (block.rounds - behind) / busy
                self._share(rounds / self.settings.keys.num_rounds)
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
        notes = {"round": block.rounds, "points": block.points.tolist()}
        notes["seconds"] = time.monotonic() - self.began
        notes["rows"] = len(self.recorder.rows(part, block.rounds))
        if distributed.is_first():
            self.rows.sync()
            save(self._path_of(part), block.state, notes)
        self.saved = time.monotonic()

    def _checkpoint(
        self, part: np.ndarray, points: np.ndarray, goal: int
    ) -> tuple[dict[str, Any], np.ndarray, State] | None:
        """Return the notes, points and state of a part's checkpoint if it agrees with the rows.

        It belongs to round ``goal`` or a later one, or contains at least the ``points`` that have
        not diverged.
        """
        path = self._path_of(part)
        found = distributed.broadcast_from_first(lambda: load(path))
        if found is not None:
            notes, leaves = found
            at, stored = notes["round"], np.array(notes["points"])
            missing = np.setdiff1d(points, stored)
            over = all(self.recorder.is_over(point, at) for point in missing)
            holds = at >= goal or (over and missing.size < points.size)
            if holds and notes["rows"] == len(self.recorder.rows(part, at)):
                return notes, stored, state_of(leaves, self.placed.shapes(stored))
        if distributed.is_first() and path.exists():
            self.progress.say(f"{path} is damaged or of other rows, so its points start over.")
        return None

    def _path_of(self, part: np.ndarray) -> pathlib.Path:
        return self.folder / f"{part[0]}-{part[-1]}.npz"

    def _save_model(self, part: np.ndarray, point: int) -> None:
        """Write a point's model for the first seed, from its checkpoint, as an npz file."""
        found = self._checkpoint(part, np.array([point]), self.settings.keys.num_rounds)
        assert found is not None, "the checkpoint was removed while the run ended"
        _, stored, state = found
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


def _mean(measures: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each measure."""
    return {name: sum(of[name] for of in measures) / len(measures) for name in measures[0]}
