"""A toy experiment that runs in the test's own process, in a workdir that a test may damage."""

import pathlib

from configs import lasso
from experiments.cli.console import Progress
from experiments.execution.experiment import prepared
from experiments.execution.sweep_runner import SweepRunner
from experiments.process.invocation import Watch
from experiments.report import rows as tidy
from experiments.storage.row_store import RowStore

TOY = {
    "algorithms": ("fed_dyn",),
    "num_rounds": 20,
    "eval_every": 5,
    "eval_all_until": 0,
    "num_clients": 4,
    "cohort_size": 2,
    "num_examples": 8,
    "dim": 6,
    "num_true": 2,
    "batch_size": 4,
    "num_steps": 2,
    "client_lr": (0.003, 0.01, 0.03),
    "server_lr": (1.0,),
    "seeds": (0,),
    "criterion": "objective",
    "criterion_goal": "min",
    "criterion_rounds": 10,
}


class Toy:
    """Return one job of a sweep, for several runners of a test."""

    def __init__(self, sweep=lasso.EXPERIMENT, **changes):
        config = lasso.get_config()
        with config.ignore_type(), config.unlocked():
            config.update(TOY | changes)
        # Without panels: clients on disk have no optimum, and the toys solve for none.
        self.given = prepared(sweep._replace(panels=()), config)
        self.settings, self.problem = self.given.settings, self.given.problem
        (self.job,) = self.given.jobs
        # Shared by all runners, so that they share compiled programs.
        self.observe = self.runner(pathlib.Path(), Progress()).observe

    def runner(self, workdir, progress):
        store = RowStore(workdir / "rows.jsonl")
        return SweepRunner(self.given, workdir, store, {}, progress, Watch(), 0.0)

    def run(self, workdir, size=None, share=lambda label, done, what="": None):
        """Run or resume; return the summary without its seconds, the rows, and the messages."""
        workdir.mkdir(exist_ok=True)
        said = []
        progress = Progress(said.append)
        progress.share = share
        job = self.job._replace(plan=self.job.plan._replace(point_chunk_size=size))
        runner = self.runner(workdir, progress)
        runner.observe = self.observe
        summary = runner.run(job)
        del summary["seconds"]
        return summary, tidy.load(workdir / "rows.jsonl"), said


class Killed(Exception):
    """Raised to simulate the end of the process, without any cleanup."""


def killed_after(blocks):
    """Return a ``share`` that stops the job after ``blocks`` blocks."""
    left = iter(range(blocks + 1))  # it is also called before compilation

    def share(label, done, what=""):
        if next(left, None) is None:
            raise Killed

    return share
