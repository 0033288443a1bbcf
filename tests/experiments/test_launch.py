"""Many runs: as a Slurm array with stand-ins, by joblib and by Ray; their table."""

import csv
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.experiments.test_processes import RECIPES
from tests.experiments.test_run import ROOT, TOY, environment

SHORT = ["lasso", *TOY[1:], "--config.algorithms=fed_dyn"]
SRUN = """#!/bin/sh
[ -e requeued ] && exec "$@"
"$@" & until [ -s size_2/rows.jsonl ]; do sleep 0.1; done
kill -TERM $!  # the limit of the first task
wait $!
"""
TOOLS = {"srun": SRUN, "scontrol": '#!/bin/sh\necho "$@" >> requeued\n'}


def around(folder):
    """Return the variables of a shell in which ``fcojax`` and stand-ins are found."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    path = f"{tools}{os.pathsep}{pathlib.Path(sys.executable).parent}{os.pathsep}{os.defpath}"
    return environment() | {"PYTHONPATH": os.fspath(ROOT), "PATH": path}


def listed(folder, *more):
    """Write a list of two runs."""
    flags = " ".join([*SHORT, *more])
    lines = [f"fcojax run {flags} --config.cohort_size={m} --workdir=size_{m}" for m in (2, 3)]
    (folder / "runs.sh").write_text("\n".join(lines) + "\n")


def finished(folder):
    """Return the table of both runs."""
    command = [sys.executable, "-P", "-m", "fcojax", "results", "size_2", "size_3", "--format=csv"]
    done = subprocess.run(command, cwd=folder, env=around(folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(csv.DictReader(done.stdout.splitlines()))


@pytest.mark.slow
def test_a_task_of_an_array_runs_its_line_and_is_queued_again_at_its_limit(tmp_path):
    listed(tmp_path, "--config.num_rounds=4000", "--config.eval_every=10")
    (tmp_path / "ml_collections.py").write_text("raise AssertionError")  # is not for a NAME
    tools = around(tmp_path)
    for name, text in TOOLS.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    codes = []
    for task in ("1", "1", "2"):
        of_task = {"SLURM_ARRAY_TASK_ID": task, "SLURM_JOB_ID": f"7{task}"}
        script = ["bash", os.fspath(RECIPES / "array.sh")]
        codes.append(subprocess.run(script, cwd=tmp_path, env=tools | of_task).returncode)
    assert codes == [143, 0, 0] and (tmp_path / "requeued").read_text() == "requeue 71\n"
    table = finished(tmp_path)
    assert [(row["run"], row["cohort_size"]) for row in table] == [("size_2", "2"), ("size_3", "3")]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["joblib", "ray"])
def test_the_recipes_run_each_line(tmp_path, engine):
    pytest.importorskip(engine)
    listed(tmp_path)
    recipe = [sys.executable, os.fspath(RECIPES / f"with_{engine}.py")]
    done = subprocess.run(
        recipe, cwd=tmp_path, env=around(tmp_path), capture_output=True, text=True
    )
    assert done.returncode == 0 and "exit codes [0, 0]" in done.stdout, done.stdout + done.stderr
    assert len(finished(tmp_path)) == 2


def test_a_table_for_a_paper_has_means_and_intervals(tmp_path, monkeypatch, capsys):
    from experiments.publishing import results as command
    from experiments.report import rows as tidy

    point = {"algorithm": "my_100%", "client_lr": 0.1, "round": 5, "status": "improving"}
    rows = [point | {"seed": s, "f1": f1} for s, f1 in enumerate((0.7, 0.8, 0.9))]
    (tmp_path / "rows.jsonl").write_text("".join(map(tidy.line, rows)))
    entry = {"best": {"client_lr": 0.1}, "score": 0.8, "last": {"f1": 0.8}, "seconds": 1.0}
    entry |= {"diverged": [], "points": 1, "seeds": 3, "verdict": "improving"}
    entry["criterion"] = {"measure": "f1", "goal": "max", "last_rounds": 1}
    (tmp_path / "config.json").write_text('{"config": {}}')
    summary = {"finished": True, "algorithms": {"my_100%": entry}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    half = 4.30265 * 0.1 / 3**0.5  # Student's t of two degrees of freedom
    for name, said in (
        ("latex", r"my\_100\% & 0.1 & $0.80 \pm 0.25$ \\"),
        ("markdown", "| my_100% | 0.1 | 0.80 ± 0.25 |"),
        ("csv", f"my_100%,0.1,0.8,{half:.4f}"),
    ):
        monkeypatch.setattr(sys, "argv", ["results", os.fspath(tmp_path), f"--format={name}"])
        assert command.main() == 0
        assert said[:-1] in re.sub(r"0\.79+\d+", "0.8", capsys.readouterr().out)
