"""Many runs: by submitit here and with stand-ins for Slurm, by joblib and by Ray."""

import csv
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from tests.experiments.test_processes import RECIPES, assert_same, until
from tests.experiments.test_run import ROOT, TOY, environment

SHORT = ["lasso", *TOY[1:], "--config.algorithms=fed_dyn"]
# What Slurm does with the file that submitit hands to it: each task of the array by itself.
SBATCH = """#!/bin/sh
cp "$1" submitted.sh
export SLURM_ARRAY_JOB_ID=7
for task in 0 1; do
  # Slurm starts tasks after sbatch has ended and submitit has written what they run.
  (
    until [ -e runs.jobs/7_${task}_submitted.pkl ]; do sleep 0.1; done
    SLURM_JOB_ID=$((7 + task)) SLURM_ARRAY_TASK_ID=$task sh "$1"
  ) > /dev/null 2>&1 &
done
echo Submitted batch job 7
"""
SRUN = """#!/bin/sh
shift 5  # --unbuffered --output FILE --error FILE
SLURM_STEP_NUM_TASKS=1 exec "$@"
"""


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


def fcojax(folder, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "fcojax", *arguments],
        cwd=folder,
        env=around(folder),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def finished(folder):
    """Return the table of both runs."""
    results = fcojax(folder, "results", "size_2", "size_3", "--format=csv")
    said = results.communicate()[0]
    assert results.returncode == 0, said
    return list(csv.DictReader(said.splitlines()))


@pytest.mark.slow
def test_slurm_runs_each_line_of_a_file_as_one_task_of_an_array(tmp_path):
    pytest.importorskip("submitit")
    listed(tmp_path)
    tools = around(tmp_path)["PATH"].partition(os.pathsep)[0]
    for name, text in {"sbatch": SBATCH, "srun": SRUN}.items():
        (pathlib.Path(tools) / name).write_text(text)
        (pathlib.Path(tools) / name).chmod(0o755)
    launched = fcojax(tmp_path, "launch", "runs.sh", "--timeout_min=30", "--slurm_partition=gpu")
    said = launched.communicate()[0]
    assert launched.returncode == 0 and said.splitlines()[1].startswith("7_1: fcojax run"), said
    until(lambda: len([*(tmp_path / "runs.jobs").glob("7_*_result.pkl")]) == 2)
    script = (tmp_path / "submitted.sh").read_text()
    for option in ("array=0-1%2", "time=30", "partition=gpu", "signal=USR2@90"):
        assert f"#SBATCH --{option}\n" in script
    table = finished(tmp_path)
    assert [(row["run"], row["cohort_size"]) for row in table] == [("size_2", "2"), ("size_3", "3")]


@pytest.mark.slow
def test_a_job_at_its_time_limit_saves_and_is_submitted_again(tmp_path):
    pytest.importorskip("submitit")
    once, cut = tmp_path / "once", tmp_path / "cut"
    for folder in (once, cut):
        folder.mkdir()
        listed(folder, "--config.num_rounds=4000", "--config.eval_every=10")
        (folder / "ml_collections.py").write_text("raise AssertionError")  # is not for a NAME
    launched = fcojax(cut, "launch", "runs.sh", "--cluster=local")
    until((cut / "size_3" / "rows.jsonl").exists)
    controllers = [folder.name.partition("_")[0] for folder in (cut / "runs.jobs").glob("*.out")]
    for pid in controllers:
        task = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
        os.kill(int(task), signal.SIGUSR2)  # as submitit does before the limit
    said = launched.communicate()[0]
    assert launched.returncode == 0, said
    logs = [path.read_text() for path in (cut / "runs.jobs").glob("*.err")]
    assert any("stopped by SIGTERM; the same command goes on" in log for log in logs), logs
    launched = fcojax(once, "launch", "runs.sh", "--cluster=local")
    assert launched.wait() == 0
    for run in ("size_2", "size_3"):
        assert_same(cut / run, once / run)


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


@pytest.mark.parametrize(
    ("lines", "flags", "message"),
    [
        ("", [], "each line of runs.sh has to be a command fcojax run ..."),
        ("python train.py", [], "each line of runs.sh has to be a command fcojax run ..."),
        ("fcojax run lasso", ["--timeout=3"], "Parameter 'timeout' need to be prefixed"),
    ],
)
def test_launch_refuses_in_a_sentence(tmp_path, monkeypatch, capsys, lines, flags, message):
    # At its import submitit would close the handlers of pytest.
    monkeypatch.setenv("SUBMITIT_LOG_LEVEL", "NOCONFIG")
    pytest.importorskip("submitit")
    from experiments import launch

    (tmp_path / "runs.sh").write_text(lines)
    monkeypatch.chdir(tmp_path)
    assert launch.main(["runs.sh", *flags]) == 2 and message in capsys.readouterr().err


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
