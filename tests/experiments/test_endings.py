"""The ends of commands: signals, and faults of the machine, in one line."""

import errno
import json
import os
import signal
import subprocess
import sys

import pytest

from experiments.process.invocation import UserError, sentence
from experiments.publishing import figures, results
from experiments.report import rows as tidy
from tests.experiments.test_run import ROOT, TOY, launch, one_line


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UserError("no such thing;\npass another."), "no such thing; pass another."),
        (OSError(errno.ENOSPC, "", "w/rows"), "w/rows: No space left on device; the same command"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 5 bytes."), "out of memory ("),
        (KeyError("scale"), "KeyError: 'scale'; pass --traceback to see how."),
    ],
)
def test_an_error_is_one_line(error, said):
    assert said in sentence(error) and "\n" not in sentence(error)


SIGNALLED = """
import os, signal
from experiments.process.invocation import Watch
number = {}
signal.signal(number, signal.SIG_DFL)  # a shell ignores SIGINT for programs in the background
signal.signal(signal.SIGHUP, signal.SIG_IGN)
watch = Watch()
watch.listen()
os.kill(os.getpid(), signal.SIGHUP)
with watch.saving():
    os.kill(os.getpid(), number)
    print("saved", watch.asked == number, flush=True)
    {}
os.kill(os.getpid(), number)
print("not here")
"""


@pytest.mark.parametrize(
    ("number", "name", "again"),
    [
        (signal.SIGINT, "Ctrl-C", "os.kill(os.getpid(), number); print('not here')"),
        (signal.SIGTERM, "SIGTERM", "pass"),
    ],
)
def test_a_signal_waits_for_what_can_be_saved_and_else_ends(number, name, again):
    """So does a second one at once; a signal that is ignored, as under nohup, stays so."""
    program = [sys.executable, "-c", SIGNALLED.format(int(number), again)]
    found = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 128 + number and found.stdout == "saved True\n", found.stderr
    assert found.stderr == f"fcojax run: stopped by {name}; the same command goes on.\n"


@pytest.fixture
def small_disk(tmp_path):
    """Mount a separate disk of 400 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", os.fspath(place)]
    if os.geteuid() or subprocess.run(mounted, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a file system")
    yield place
    subprocess.run(["umount", os.fspath(place)], check=True)


@pytest.mark.slow
def test_a_full_disk_is_told_in_a_sentence_and_the_run_goes_on_when_there_is_room(small_disk):
    arguments = [*TOY, "--config.algorithms=fed_mid", "--config.num_rounds=4000"]
    workdir = small_disk / "run"
    done = launch(*arguments, f"--workdir={workdir}")
    assert done.returncode == 2 and "No space left on device" in one_line(done)
    rows = tidy.load(workdir / "rows.jsonl")
    assert len(rows) > 100
    subprocess.run(["mount", "-o", "remount,size=100m", os.fspath(small_disk)], check=True)
    done = launch(*arguments, f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr
    assert tidy.load(workdir / "rows.jsonl")[: len(rows)] == rows


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


@pytest.mark.parametrize(
    ("arguments", "config", "told"),
    [
        ([], "", "KeyError in "),
        ([], "[" * 100_000, "has a damaged config.json"),
        (["--labels=fed_avf=Ours"], "", "there is no method fed_avf"),
    ],
)
def test_figures_says_in_a_line_what_it_cannot_draw(
    arguments, config, told, incomplete_run, monkeypatch, capsys
):
    if config:
        (incomplete_run / "config.json").write_text(config)
    given = ["--config=configs/lasso.py", f"--workdir={incomplete_run}", *arguments]
    monkeypatch.setattr(sys, "argv", ["figures", *given])
    monkeypatch.chdir(ROOT)
    assert figures.main() == 2
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1


def test_results_refuses_a_folder_without_a_finished_sweep(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["results", os.fspath(tmp_path)])
    assert results.main() == 2 and "holds no finished sweep" in capsys.readouterr().err
