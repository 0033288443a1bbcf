"""Sweeps whose seeds have data of their own: the rows are those of a run for each draw."""

import os

import jax
import pytest

from configs import lasso
from experiments.cli.console import Progress
from experiments.execution.sweep_runner import SweepRunner
from experiments.process.invocation import UserError, Watch
from experiments.report import rows as tidy
from experiments.storage.workdir import Workdir
from tests.experiments.toys import TOY, Killed, killed_after


def made(folder, share=lambda label, done, what="": None, **changes):
    """Run or resume a lasso with its optimum; return the summary and the rows."""
    folder.mkdir(exist_ok=True)
    config = lasso.get_config()
    with config.ignore_type(), config.unlocked():
        config.update(TOY | {"client_lr": (0.01, 0.03)} | changes)
    progress = Progress(print)
    progress.share, progress.result = share, lambda label, entry: None
    workdir = Workdir(os.fspath(folder), False, "yes", print)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):  # like the launcher
        runner = SweepRunner(lasso.EXPERIMENT, config)
        return runner.run(workdir, progress, Watch(), 0.0), tidy.load(folder / "rows.jsonl")


def ranked(rows):
    return sorted(rows, key=lambda row: (row["seed"], row["algorithm"], row["client_lr"]))


def test_each_seed_has_its_data_its_optimum_and_its_rows_also_after_a_kill(tmp_path):
    draws = {"data_by_seed": True, "data_seed": 5, "seeds": (0, 2)}
    alone = [
        made(tmp_path / f"{seed}", data_seed=5 + seed, seeds=(seed,)) for seed in draws["seeds"]
    ]
    with pytest.raises(Killed):  # in the second draw
        made(tmp_path / "draws", killed_after(8), **draws)
    half = tidy.load(tmp_path / "draws" / "rows.jsonl")
    summary, rows = made(tmp_path / "draws", **draws)
    assert {row["seed"] for row in half} == {0, 2} and len(half) < len(rows)
    assert ranked(rows) == ranked([row for _, own in alone for row in own])
    assert all("suboptimality" in row for row in rows)
    # The optimum of the figures is the mean; the best point is that of all draws.
    optima = [own["optimum"]["0.5"]["objective"] for own, _ in alone]
    assert optima[0] != optima[1]
    assert summary["optimum"]["0.5"]["objective"] == sum(optima) / 2
    assert summary["algorithms"]["fed_dyn"]["seeds"] == 2
    assert "drawn from seed 5 plus the run's" in summary["data"]


PRIVATE = {"clip_norm": 1.0, "noise_multiplier": 1.0}


@pytest.mark.parametrize("changes", [{"search": "halving"}, {"data_dir": "scans"}, PRIVATE])
def test_what_has_one_population_is_refused(tmp_path, changes):
    with pytest.raises((ValueError, UserError), match="data_by_seed"):
        made(tmp_path, data_by_seed=True, **changes)
