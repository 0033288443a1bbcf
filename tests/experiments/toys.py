"""A toy experiment that runs in the test's own process, in a workdir that a test may damage."""

import contextlib

from configs import lasso
from experiments.campaign import Campaign
from experiments.entries import build
from experiments.ledger import Ledger
from experiments.lines import observer
from experiments.report import rows as tidy
from experiments.settings import resolve

TOY = {
    "algorithms": ("fed_dyn",), "num_rounds": 20, "eval_every": 5, "num_clients": 4,
    "cohort_size": 2, "num_examples": 8, "dim": 6, "num_true": 2, "batch_size": 4,
    "num_steps": 2, "client_lr": (0.003, 0.01, 0.03), "server_lr": (1.0,), "seeds": (0,),
    "criterion": "objective", "criterion_goal": "min", "criterion_rounds": 10,
}  # fmt: skip


class Toy:
    """One line of a sweep, which several campaigns of a test may run."""

    def __init__(self, sweep=lasso.EXPERIMENT, **changes):
        config = lasso.get_config()
        with config.ignore_type(), config.unlocked():
            config.update(TOY | changes)
        self.settings = resolve(config, sweep)
        self.problem, self.penalty = sweep.problem(config), sweep.penalty(config)
        # One for all campaigns, so that they share their compiled programs.
        self.observe = observer(self.problem, self.penalty, self.settings.penalty_scales[0])
        (self.entry,) = build(sweep, config, self.settings, self.problem, self.penalty)

    def run(self, workdir, **options):
        """Runs or resumes; returns the summary without its seconds, the rows, and what was said."""
        said, size = [], options.pop("size", None)
        workdir.mkdir(exist_ok=True)
        entry = self.entry._replace(plan=self.entry.plan._replace(point_chunk_size=size))
        campaign = Campaign(
            self.settings, self.problem, self.penalty, workdir, {},
            Ledger(workdir / "rows.jsonl"), say=said.append, checkpoint_every=0.0, **options,
        )  # fmt: skip
        campaign.observe = self.observe
        summary = campaign.run(entry)
        del summary["seconds"]
        return summary, tidy.load(workdir / "rows.jsonl"), said


class Killed(Exception):
    """Stands for the end of the process: nothing is tidied up by the launcher."""


def killed_after(blocks):
    """What ends a campaign before so many blocks, as ``around_block``."""
    left = iter(range(blocks))

    def around(block):
        if next(left, None) is None:
            raise Killed
        return contextlib.nullcontext()

    return around
