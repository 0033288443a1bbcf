"""Many runs: a few at a time, resumed, collected. The runs are small scripts."""

import csv
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from experiments import launch

# In place of experiments.run: records its times, fails as often as given, then finishes.
FAKE = """
import json, os, pathlib, signal, sys, time
folder, deaths, code = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
folder.mkdir(exist_ok=True, parents=True)
with open(folder.parent / "times", "a") as file:
    file.write(f"{folder.name} + {time.monotonic()}\\n")
time.sleep(0.1)
tries = folder / "tries"
seen = int(tries.read_text()) if tries.exists() else 0
tries.write_text(str(seen + 1))
with open(folder.parent / "times", "a") as file:
    file.write(f"{folder.name} - {time.monotonic()}\\n")
if seen < deaths:
    os.kill(os.getpid(), signal.SIGKILL)
if code:
    sys.exit(f"no such thing; pass another." if code == 2 else code)
entry = {"best": {"client_lr": 0.1}, "score": 1.5, "verdict": "converged", "diverged": []}
(folder / "summary.json").write_text(json.dumps({"finished": True, "algorithms": {"a": entry}}))
"""


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """Five runs: two fail at first, one always, one is refused."""
    (tmp_path / "fake.py").write_text(FAKE)
    plan = {"a": (0, 0), "b": (1, 0), "c": (2, 0), "d": (9, 0), "e": (0, 3)}

    def command(workdir, name, arguments):
        numbers = map(str, plan[name])
        return [sys.executable, os.fspath(tmp_path / "fake.py"), f"{workdir / name}", *numbers]

    monkeypatch.setattr(launch, "command", command)
    (tmp_path / "runs.py").write_text(f"RUNS = {dict.fromkeys(plan, ['--quick'])!r}\n")
    return tmp_path


def tries(workdir, name):
    return int((workdir / name / "tries").read_text())


@pytest.mark.slow
def test_runs_are_bounded_resumed_and_gathered(listed, capsys):
    workdir = listed / "w"
    code = launch.main([f"{listed / 'runs.py'}", f"--workdir={workdir}", "--at_once=2"])
    said = capsys.readouterr().out
    assert code == 1 and "3 of 5 runs are finished" in said
    assert [tries(workdir, name) for name in "abcde"] == [1, 2, 3, 3, 1]
    assert "b: started again" in said and "d: ended with exit code -9" in said
    running = most = 0
    for line in (workdir / "times").read_text().splitlines():
        running += 1 if " + " in line else -1
        most = max(most, running)
    assert most == 2
    rows = list(csv.DictReader((workdir / "runs.csv").read_text().splitlines()))
    assert [row["state"] for row in rows] == ["finished"] * 3 + ["not finished"] * 2
    assert rows[0]["best_client_lr"] == "0.1" and rows[0]["score"] == "1.5"
    launch.main([f"{listed / 'runs.py'}", f"--workdir={workdir}", "--at_once=5"])
    assert [tries(workdir, name) for name in "abcde"][:3] == [1, 2, 3]  # finished, not run again
    assert tries(workdir, "d") > 3


def test_a_signal_is_handed_on_and_nothing_is_started_any_more(tmp_path):
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    alarm = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    alarm.start()
    codes = launch.run_all(
        dict.fromkeys("abc", sleeping), lambda name: tmp_path / name, 2, lambda sentence: None
    )
    assert codes == {"a": -15, "b": -15}  # and 0 if they had slept to the end
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_script_for_slurm_runs_each_by_its_number(listed, capsys):
    script = listed / "job.sh"
    workdir = listed / "of several words"
    arguments = [f"{listed / 'runs.py'}", f"--workdir={workdir}", "--at_once=3"]
    assert launch.main([*arguments, f"--slurm={script}"]) == 0
    assert capsys.readouterr().out == f"sbatch {script}\n" and not (workdir / "a").exists()
    assert "#SBATCH --array=0-4%3\n" in script.read_text()
    task = os.environ | {"SLURM_ARRAY_TASK_ID": "0"}
    subprocess.run(["bash", script], env=task, check=True)
    assert json.loads((workdir / "a" / "summary.json").read_text())["finished"]
    assert launch.main([*arguments, "--table"]) == 1 and not (workdir / "b").exists()
