"""Both kinds of experiment: checked before anything is written, and then run in a workdir."""

import time
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from experiments.cli.console import Progress
from experiments.config.settings import Settings, resolve
from experiments.execution.accounts import (
    epsilons_of,
    within_budget,
)
from experiments.execution.evaluation import columns, has_optimum
from experiments.execution.jobs import Job, build, described
from experiments.process.errors import UserError, suggest
from experiments.report import rows as tidy
from experiments.storage.workdir import Workdir
from experiments.study import Study, Sweep
from fcojax.problems import Problem
from fcojax.transforms import Penalty


def run_study(
    study: Study, config: ConfigDict, workdir: Workdir, progress: Progress
) -> dict[str, Any]:
    """Write the study's rows as they come; return its summary.

    Studies are short and do not resume; an interrupted study starts over.
    """
    began = time.monotonic()
    path = workdir.path / "rows.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        for row in study.rows(config):
            file.write(tidy.line(tidy.plain(row)))
            progress.share("", 0.0, str(row["part"]))
    found = study.summarise(config, tidy.load(path))
    return found | {"seconds": round(time.monotonic() - began, 3)}


class Prepared(NamedTuple):
    """A sweep that has been checked.

    Attributes:
      sweep: the experiment.
      settings: its settings, with the rounds that a privacy budget allows.
      problem: loss, clients and measures.
      penalty: psi.
      jobs: the algorithms with their grids.
      solves: whether to solve for the optima.
      data: the data in one sentence.
      remarks: further sentences on the data.
      stopped: a message if a budget allows fewer rounds.
    """

    sweep: Sweep
    settings: Settings
    problem: Problem
    penalty: Penalty
    jobs: list[Job]
    solves: bool
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
    solves = has_optimum(sweep, problem, penalty, settings.criterion)
    measure, known = settings.criterion.measure, columns(problem, solves)
    if measure not in known:
        raise UserError(
            f"criterion is {measure!r}, which is not a measure; {suggest(measure, known)}"
        )
    if not solves and any(panel.measure == "suboptimality" for panel in sweep.panels):
        raise UserError(
            "a panel shows the suboptimality, which needs solve_optimum=True, clients in memory, "
            "and a problem and a penalty that are convex; pass Panel('objective', 'objective')."
        )
    data, remarks = described(problem, config, settings.seeds), sweep.remarks(config)
    return Prepared(sweep, settings, problem, penalty, jobs, solves, data, remarks, stopped)
