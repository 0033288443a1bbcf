"""The command that draws figures: its errors in one line, and its help."""

import json
import subprocess
import sys

import pytest

from experiments.storage.workdir import sealed
from tests.experiments.test_run import ROOT, environment, one_line


@pytest.fixture
def incomplete_run(tmp_path):
    """A finished run whose rows lack columns that its claims need."""
    point = {"algorithm": "fed_dual_avg", "seed": 0, "round": 0, "status": "improving"}
    entry = {"best": {}, "criterion": {}}
    named = dict.fromkeys(("fed_dual_avg", "fed_mid"), entry)
    (tmp_path / "summary.json").write_text(json.dumps(sealed({"algorithms": named})))
    (tmp_path / "rows.jsonl").write_text(json.dumps(point) + "\n")
    config = {"criterion_rounds": 1, "eval_every": 1, "num_rounds": 1}
    (tmp_path / "config.json").write_text(json.dumps({"config": config, "command": []}))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--config=configs/lasso.py"], "KeyError in "),
        *(
            pytest.param(*row, marks=pytest.mark.slow)
            for row in (
                (["--config=configs/lasso.py", "again"], "unexpected argument again"),
                (["--config=configs/lasso.py", "--wrkdir=x"], "Unknown command line flag 'wrkdir'"),
                (["--config=configs/lassoo.py"], "there is no config file configs/lassoo.py"),
                ([], "--config is missing"),
                (["--config=configs/lasso.py", "--workdir="], "--workdir is empty"),
            )
        ),
    ],
)
def test_errors_are_one_line(arguments, sentence, incomplete_run):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "experiments.publishing.figures",
            f"--workdir={incomplete_run}",
            *arguments,
        ],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and sentence in one_line(done)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("summary", "sentence"),
    [
        ('{"algorithms": {"fed_mid": {}}}', "cannot be drawn: its summary.json was changed since"),
        ('{"algorithms": ', "has a damaged summary.json; the command in"),
        ("3", "has a damaged summary.json; the command in"),
        (None, "holds no finished run"),  # a folder
    ],
)
def test_a_summary_that_is_not_the_runs_is_told(incomplete_run, summary, sentence):
    path = incomplete_run / "summary.json"
    path.unlink()
    path.mkdir() if summary is None else path.write_text(summary)
    done = subprocess.run(
        [sys.executable, "-m", "fcojax", "figures", "lasso", f"--workdir={incomplete_run}"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and sentence in one_line(done)


@pytest.mark.slow
def test_the_help_lists_the_flags():
    done = subprocess.run(
        [sys.executable, "-m", "fcojax", "figures", "--help"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("usage: fcojax figures NAME|FILE.py --workdir=DIR")
    assert str(ROOT) not in done.stdout and "--into" in done.stdout
