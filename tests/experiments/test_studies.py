"""A study through the whole launcher."""

import json
import os
import subprocess
import sys

import pytest

from experiments.execution.experiment import in_batches
from experiments.report import rows as tidy
from tests.experiments.test_run import ROOT, environment

STUDY = '''"""Squares, in one figure.

More about them.
"""

import matplotlib.pyplot as plt
from ml_collections import ConfigDict

from experiments.report.claims import Claim
from experiments.study import Study


def get_config():
    return ConfigDict({"count": 50, "slope": 2.0})


def quick(config):
    config.count = 3


def study(config):
    import jax.numpy as jnp

    for index in range(config.count):
        yield {"part": "squares", "x": index, "y": jnp.square(jnp.asarray(index, float)).item()}


def summarise(config, rows):
    return {"squares": rows[-2:]}


def claims(config, rows, summary):
    assert list(summary) == ["squares", "seconds"], list(summary)
    slope = (rows[2]["y"] - rows[0]["y"]) / 2
    book = "A Book, page 1"
    return [Claim("the first slope is the config's", slope, config.slope, source=book),
            Claim("it is small", slope, 1.0, at_least=False, source=book)]


def draw(config, rows, summary, directory):
    plt.plot([row["x"] for row in rows], [row["y"] for row in rows])
    plt.savefig(directory / "squares.png")
    plt.close()
    return [directory / "squares.png"]


EXPERIMENT = Study("Squares", study, summarise, claims, draw, x64=True)
'''


@pytest.mark.slow
def test_a_study_leaves_rows_a_summary_with_claims_a_figure_and_a_page(tmp_path):
    (tmp_path / "squares.py").write_text(STUDY)
    workdir = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "experiments.run",
        f"--config={tmp_path / 'squares.py'}",
        f"--workdir={workdir}",
        "--quick",
    ]
    options = {"cwd": ROOT, "env": environment(), "capture_output": True, "text": True}
    done = subprocess.run(command, check=False, **options)
    assert done.returncode == 0, done.stderr
    assert [row["y"] for row in tidy.load(workdir / "rows.jsonl")] == [0.0, 1.0, 4.0]
    summary = json.loads((workdir / "summary.json").read_text())
    assert [claim["holds"] for claim in summary["claims"]] == [True, False]
    assert summary["finished"] and summary["squares"][-1]["x"] == 2
    assert (
        "claims: 1 confirmed, 1 refuted." in done.stdout
        and os.fspath(workdir / "index.html") in done.stdout
    )
    page = (workdir / "index.html").read_text()
    assert "<h1>Squares</h1>" in page and "Squares, in one figure." in page
    assert "data:image/png;base64," in page and "--quick" in page
    again = subprocess.run(command, check=False, **options)
    assert again.returncode == 0 and "nothing to do" in again.stdout
    # Changed claims are decided on the same rows.
    claims = summary.pop("claims")
    (workdir / "summary.json").write_text(json.dumps(summary | {"claims": []}))
    drawn = subprocess.run(
        [sys.executable, "-m", "experiments.publishing.figures", *command[3:5]],
        check=False,
        **options,
    )
    assert drawn.returncode == 0 and drawn.stderr.count("\n") == 1
    assert "is drawn, but its summary.json was changed since the run" in drawn.stderr
    assert all(line.endswith(".png") for line in drawn.stdout.splitlines())
    assert json.loads((workdir / "summary.json").read_text()) == summary | {"claims": claims}


def test_rows_are_written_in_batches_and_before_an_error():
    def rows():
        yield from ({"x": 0}, {"x": 1}, {"x": 2})
        raise ValueError("no more")

    for seconds, expected in ((0.0, [[0], [1], [2]]), (60.0, [[0, 1, 2]])):
        seen = []
        with pytest.raises(ValueError, match="no more"):
            for batch in in_batches(rows(), seconds):
                seen.append([row["x"] for row in batch])
        assert seen == expected
    assert list(in_batches(iter(()), 0.0)) == []
