"""A toy experiment that runs in the test's own process, in a workdir that a test may damage."""

import os

from configs import lasso
from experiments.cli.console import Progress
from experiments.execution.sweep_runner import SweepRunner
from experiments.process.invocation import Watch
from experiments.report import rows as tidy
from experiments.storage.workdir import Workdir

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
    """One job of a sweep, for several runs of a test, which share compiled programs."""

    def __init__(self, sweep=lasso.EXPERIMENT, **changes):
        config = lasso.get_config()
        with config.ignore_type(), config.unlocked():
            config.update(TOY | changes)
        # Clients on disk have no optimum, and the toys solve for none.
        plain = sweep._replace(panels=(), solve_optimum=False, remarks=lambda config: "")
        self.runner = SweepRunner(plain, config)
        self.settings, self.problem = self.runner.settings, self.runner.problem
        (self.job,) = self.runner.jobs

    def run(self, workdir, size=None, share=lambda label, done, what="": None):
        """Run or resume; return the summary without its seconds, the rows, and the messages."""
        workdir.mkdir(exist_ok=True)
        said = []
        progress = Progress(said.append)
        progress.share, progress.result = share, lambda label, entry: None
        plan = self.job.plan._replace(point_chunk_size=size)
        self.runner.jobs = [self.job._replace(plan=plan)]
        folder = Workdir(os.fspath(workdir), False, "yes", said.append)
        summary = self.runner.run(folder, progress, Watch(), 0.0)["algorithms"][self.job.label]
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
