"""A toy experiment that runs in the test's own process, in a workdir that a test may damage."""

from configs import lasso
from experiments.cli.console import Progress
from experiments.config.settings import resolve
from experiments.execution.evaluation import observer
from experiments.execution.jobs import build
from experiments.execution.sweep_runner import SweepRunner
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
        self.settings = resolve(config, sweep)
        self.problem, self.penalty = sweep.problem(config), sweep.penalty(config)
        # Shared by all runners, so that they share compiled programs.
        self.observe = observer(
            self.problem, self.penalty, self.settings.penalty_scales[0], self.settings.certificate
        )
        (self.job,) = build(sweep, config, self.settings, self.problem, self.penalty)

    def run(self, workdir, size=None, share=lambda label, done, what="": None):
        """Run or resume; return the summary without its seconds, the rows, and the messages."""
        workdir.mkdir(exist_ok=True)
        said = []
        progress = Progress(said.append)
        progress.share = share
        job = self.job._replace(plan=self.job.plan._replace(point_chunk_size=size))
        runner = SweepRunner(
            self.settings,
            self.problem,
            self.penalty,
            workdir,
            RowStore(workdir / "rows.jsonl"),
            progress=progress,
            checkpoint_every=0.0,
        )
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
