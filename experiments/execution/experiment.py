"""Both kinds of experiment: checked before anything is written, and then run in a workdir."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from experiments.cli.console import Progress
from experiments.config.settings import Settings, resolve
from experiments.execution.accounts import (
    epsilons_of,
    fingerprint_of,
    ledger,
    within_budget,
)
from experiments.execution.evaluation import columns, has_optimum, solve_optima
from experiments.execution.jobs import Job, build, described
from experiments.execution.sweep_runner import SweepRunner
from experiments.process import distributed
from experiments.process.errors import UserError, suggest
from experiments.process.signals import Watch
from experiments.report import rows as tidy
from experiments.report.rows import Row
from experiments.storage.workdir import Workdir
from experiments.study import Study, Sweep
from fcojax import citation
from fcojax.extend import num_points
from fcojax.problems import Problem
from fcojax.transforms import Penalty

_SECONDS_BETWEEN_WRITES = 1.0  # for the rows of a study


def run_study(
    study: Study, config: ConfigDict, workdir: Workdir, progress: Progress
) -> dict[str, Any]:
    """Write the study's rows as they come; return its summary.

    Studies are short and do not resume; an interrupted study starts over.
    """
    began = time.monotonic()
    store = workdir.rows()
    for label in list(store.rows):
        store.replace(label, [])
    for rows in in_batches(study.rows(config), _SECONDS_BETWEEN_WRITES):
        store.append([tidy.plain(row) for row in rows])
        store.sync()
        progress.share("", 0.0, str(rows[-1]["part"]))
    found = study.summarise(config, tidy.load(store.path))
    return found | {"seconds": round(time.monotonic() - began, 3)}


def in_batches(rows: Iterator[Row], seconds: float) -> Iterator[list[Row]]:
    """Yield rows in groups of about the same time, including those before an error.

    Every write waits for the disk; thousands of writes take longer than the computation.
    """
    batch, began = [], time.monotonic()
    try:
        for row in rows:
            batch.append(row)
            if time.monotonic() - began >= seconds:
                yield batch
                batch, began = [], time.monotonic()
    except Exception:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


class Prepared(NamedTuple):
    """A sweep that has been checked.

    Attributes:
      sweep: the experiment.
      settings: its settings, with the rounds that a privacy budget allows.
      problem: loss, clients and measures.
      penalty: psi.
      jobs: the algorithms with their grids.
      data: the data in one sentence.
      remarks: further sentences on the data.
      stopped: a message if a budget allows fewer rounds.
    """

    sweep: Sweep
    settings: Settings
    problem: Problem
    penalty: Penalty
    jobs: list[Job]
    data: str
    remarks: str
    stopped: str | None


def prepared(sweep: Sweep, config: ConfigDict) -> Prepared:
    """Build a sweep; raise ``ValueError`` or ``UserError`` for the first mistake."""
    settings = resolve(config, sweep)
    problem, penalty = sweep.problem(config), sweep.penalty(config)
    jobs = build(sweep, config, settings, problem, penalty)
    settings, stopped = within_budget(jobs, settings)
    for job in jobs:  # runs that cannot be accounted are refused before they start
        epsilon = epsilons_of(job, settings)
        _ = epsilon and epsilon(0, 1)
    solved = has_optimum(sweep, problem, penalty, settings.criterion)
    measure, known = settings.criterion.measure, columns(problem, solved, settings.by_client)
    if measure not in known:
        raise UserError(
            f"criterion is {measure!r}, which is not a measure; {suggest(measure, known)}"
        )
    if not solved and any(panel.measure == "suboptimality" for panel in sweep.panels):
        raise UserError(
            "a panel shows the suboptimality, which needs solve_optimum=True, clients in memory, "
            "and a problem and a penalty that are convex; pass Panel('objective', 'objective')."
        )
    data, remarks = described(problem, config, settings.seeds), sweep.remarks(config)
    return Prepared(sweep, settings, problem, penalty, jobs, data, remarks, stopped)


def run_sweep(
    given: Prepared, workdir: Workdir, progress: Progress, watch: Watch, checkpoint_every: float
) -> dict[str, Any]:
    """Run or resume all jobs of a sweep; return its summary, which is written after each job."""
    settings, problem, penalty, jobs = given.settings, given.problem, given.penalty, given.jobs
    parts = [part for job in jobs for part in (job.algorithm, job.plan)]
    summary: dict[str, Any] = {"algorithms": {}, "data": f"{given.data} {given.remarks}".strip()}
    summary["citation"] = citation(penalty, *parts)
    private = any(job.plan.uploads.noisy for job in jobs)
    if private:
        distributed.broadcast_from_first(
            lambda: workdir.refuse_other_data(fingerprint_of(problem.train))
        )
    for sentence in filter(None, (given.remarks, given.stopped)):
        progress.say(sentence)
    store = distributed.broadcast_from_first(workdir.rows)
    store.writes = distributed.is_first()
    for unknown in set(store.rows) - {job.label for job in jobs}:
        store.replace(unknown, [])
    optima: dict[float, dict[str, float]] = {}
    if has_optimum(given.sweep, problem, penalty, settings.criterion):
        optima = distributed.broadcast_from_first(lambda: _optima(given, progress))
        summary["optimum"] = {f"{scale:g}": measures for scale, measures in optima.items()}
    runner = SweepRunner(
        settings,
        problem,
        penalty,
        workdir.path,
        store,
        {scale: measures["objective"] for scale, measures in optima.items()},
        progress,
        watch,
        checkpoint_every,
    )
    progress.labels = {job.label: num_points(job.grid) * len(settings.seeds) for job in jobs}
    for job in jobs:
        summary["algorithms"][job.label] = runner.run(job)
        progress.result(job.label, summary["algorithms"][job.label])
        if distributed.is_first():
            workdir.write_summary(summary)
    if private:
        summary["privacy"] = ledger(jobs, settings, store)
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
