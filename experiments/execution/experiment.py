"""Both kinds of experiment, checked first and then run in a workdir."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from ml_collections import ConfigDict

from experiments.cli.console import Progress
from experiments.cli.options import CHECKPOINT_EVERY
from experiments.config.settings import Settings
from experiments.execution.accounts import (
    epsilons_of,
    fingerprint_of,
    ledger,
    within_budget,
)
from experiments.execution.evaluation import columns, solve_optima
from experiments.execution.jobs import build, described
from experiments.execution.sweep_runner import SweepRunner
from experiments.process import distributed
from experiments.process.errors import UserError, suggest
from experiments.process.signals import Watch
from experiments.report import rows as tidy
from experiments.report.rows import Row
from experiments.storage.workdir import Workdir
from experiments.study import Study, Sweep, check
from fcojax import citation
from fcojax.extend import on_disk

_SECONDS_BETWEEN_WRITES = 1.0  # of a study's rows

# (workdir, summary so far, progress, watch) -> summary.
Execute = Callable[[Workdir, dict[str, Any], Progress, Watch], dict[str, Any]]


def prepared_study(study: Study, config: ConfigDict) -> Execute:
    """Return a function that writes the study's rows as they come, and returns its summary.

    Studies are short and do not resume; an interrupted study starts over.
    """
    check(study, config)

    def execute(workdir, summary, progress, watch) -> dict[str, Any]:
        began = time.monotonic()
        store = workdir.rows()
        for label in list(store.rows):
            store.replace(label, [])
        for rows in in_batches(study.rows(config), _SECONDS_BETWEEN_WRITES):
            store.append([tidy.plain(row) for row in rows])
            store.sync()
            progress.share("", 0.0, str(rows[-1]["part"]))
        found = study.summarise(config, tidy.load(store.path))
        return summary | found | {"seconds": round(time.monotonic() - began, 3)}

    return execute


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


def prepared_sweep(sweep: Sweep, config: ConfigDict, settings: Settings) -> Execute:
    """Return a function that runs all jobs of the sweep and writes each one's summary when done."""
    problem, penalty = sweep.problem(config), sweep.penalty(config)
    jobs = build(sweep, config, settings, problem, penalty)
    settings, stopped = within_budget(jobs, settings)
    for job in jobs:  # runs that cannot be accounted are refused before they start
        epsilon = epsilons_of(job, settings)
        _ = epsilon and epsilon(0, 1)
    measure, known = settings.criterion.measure, columns(problem, sweep)
    if measure not in known:
        raise UserError(f"criterion is {measure!r}, which is no measure; {suggest(measure, known)}")

    def execute(workdir, summary, progress, watch) -> dict[str, Any]:
        done = summary.setdefault("algorithms", {})
        of_rows, of_models = summary.setdefault("rows", {}), summary.setdefault("models", {})
        summary["data"] = described(problem, config, settings.seeds)
        parts = [part for job in jobs for part in (job.algorithm, job.plan)]
        summary["citation"] = citation(penalty, *parts)
        private = [job for job in jobs if job.plan.aggregator.noisy]
        if private:
            distributed.broadcast_from_first(
                lambda: workdir.refuse_other_data(fingerprint_of(problem.train))
            )
        if stopped:
            progress.say(stopped)
        store = distributed.broadcast_from_first(workdir.rows)
        store.writes = distributed.is_first()
        for unknown in set(store.rows) - {job.label for job in jobs}:
            store.replace(unknown, [])
        optima: dict[float, float] = {}
        # A sample of the clients does not give the optimum of all.
        if sweep.solve_optimum and not on_disk(problem.train):
            scales = settings.penalty_scales

            def solved() -> dict[float, dict[str, float]]:
                found = {}
                for scale, measures in solve_optima(problem, penalty, scales):
                    found[scale] = measures
                    progress.share("optimum", len(found) / len(scales))
                return found

            found = distributed.broadcast_from_first(solved)
            optima = {scale: measures["objective"] for scale, measures in found.items()}
            summary["optimum"] = {f"{s:g}": measures for s, measures in found.items()}
        runner = SweepRunner(
            settings,
            problem,
            penalty,
            workdir.path,
            store,
            optima,
            progress,
            watch,
            CHECKPOINT_EVERY.value,
        )
        models = distributed.broadcast_from_first(workdir.models)
        progress.labels = [job.label for job in jobs]
        for job in jobs:
            label = job.label
            same_rows = of_rows.get(label) == store.fingerprint(store.of(label))
            if label not in done or not same_rows or of_models.get(label) != models.get(label):
                done[label] = runner.run(job)
                of_rows[label] = store.fingerprint(store.of(label))
                made = distributed.broadcast_from_first(workdir.models)
                of_models |= {name: made[name] for name in made if name == label}
                if distributed.is_first():
                    workdir.write_summary(summary)
            progress.result(job.label, done[job.label])
        if private:
            summary["privacy"] = ledger(jobs, settings, store)
            summary["privacy"] |= {"budget": stopped} if stopped else {}
        return summary

    return execute
