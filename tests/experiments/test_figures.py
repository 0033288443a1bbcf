"""The command that draws figures: its one-line errors, and its help."""

import json
import subprocess
import sys

import pytest

from tests.experiments.test_run import ROOT, environment, one_line


@pytest.fixture
def incomplete_run(tmp_path):
    """Return a finished run whose rows lack columns that its claims need."""
    point = {"algorithm": "fed_dual_avg", "seed": 0, "round": 0, "status": "improving"}
    entry = {"best": {}, "criterion": {}}
    named = dict.fromkeys(("fed_dual_avg", "fed_mid"), entry)
    (tmp_path / "summary.json").write_text(json.dumps({"algorithms": named}))
    (tmp_path / "rows.jsonl").write_text(json.dumps(point) + "\n")
    config = {"criterion_rounds": 1, "eval_every": 1, "num_rounds": 1}
    (tmp_path / "config.json").write_text(json.dumps({"config": config, "command": []}))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "config", "sentence"),
    [
        ([], "", "KeyError in "),
        ([], "[" * 100_000, "has a damaged config.json"),
        (["--labels=fed_avf=Ours"], "", "there is no method fed_avf"),
    ],
)
def test_errors_are_one_line(arguments, config, sentence, incomplete_run):
    if config:
        (incomplete_run / "config.json").write_text(config)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "experiments.publishing.figures",
            "--config=configs/lasso.py",
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
