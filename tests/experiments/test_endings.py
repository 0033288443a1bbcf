"""The ends of commands: signals, faults of the machine, and unusual outputs."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from experiments.process.errors import UserError, sentence
from experiments.process.signals import Stopped, watched
from experiments.report import rows as tidy
from tests.experiments.test_run import ROOT, TOY, command, environment, launch, one_line


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UserError("no such thing;\npass another."), "no such thing; pass another."),
        (OSError(errno.ENOSPC, "", "w/rows"), "w/rows: No space left on device; free some space"),
        (RuntimeError("UNKNOWN: write failed: No space left on device [x]\nmore"), "No space left"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 5 bytes."), "out of memory ("),
        (KeyError("scale"), "KeyError: 'scale'; pass --traceback to see how."),
    ],
)
def test_an_error_is_one_line(error, said):
    assert said in sentence(error) and "\n" not in sentence(error)


def test_an_error_behind_another_is_told():
    try:
        try:
            raise OSError(errno.ENOSPC, "full")
        except OSError as full:
            raise ValueError("the checkpoint could not be written") from full
    except ValueError as error:
        assert "No space left on device" in sentence(error)


@pytest.mark.slow
def test_a_signal_in_the_callback_of_a_weak_reference_leaves_no_traceback():
    """Python prints and drops what is raised there; the process ends by itself after patience."""
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, signal, time, weakref\n"
            "from experiments.process.signals import watched\n"
            "class Kept: pass\n"
            "with watched():\n"
            "  kept = Kept()\n"
            "  link = weakref.ref(kept, lambda _: os.kill(os.getpid(), signal.SIGTERM))\n"
            "  del kept\n"
            "  time.sleep(60)\n",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 128 + signal.SIGTERM
    assert "stopped by SIGTERM" in found.stderr and "Traceback" not in found.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_stops_here_or_where_it_may(number):
    before = signal.getsignal(number)
    code = 128 + number
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, signal, sys; from experiments.process.signals import Stopped, watched\n"
            f"number = {int(number)}\n"
            # A shell ignores SIGINT for programs that it runs in the background.
            "signal.signal(number, signal.SIG_DFL)\n"
            "try:\n"
            "  with watched() as watch:\n"
            "    with watch.deferred():\n"
            "      os.kill(os.getpid(), number); print('saved', watch.asked == number)\n"
            "    print('not here')\n"
            "except Stopped as stop: print(stop); sys.exit(stop.exit_code)",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == code and found.stdout.startswith("saved True\nstopped by ")
    assert signal.getsignal(number) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")]
)
def test_a_signal_before_the_run_begins_ends_it_in_a_line(tmp_path, number, name):
    config = tmp_path / "early.py"
    config.write_text(f"import os, signal\nos.kill(os.getpid(), {int(number)})\n")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    try:
        done = launch(f"--config={config}", f"--workdir={tmp_path / 'run'}")
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.returncode == 128 + number
    assert one_line(done) == f"fcojax run: stopped by {name} before the run began."


def test_without_a_signal_handlers_are_as_they_were_and_ignored_ones_stay_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
        with watched() as watch:
            os.kill(os.getpid(), signal.SIGHUP)
            assert watch.asked is None
            assert signal.getsignal(signal.SIGTERM) != handlers[1]
        assert handlers == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    finally:
        signal.signal(signal.SIGHUP, before)
    assert Stopped(signal.SIGTERM).exit_code == 143
    for saved, ending in ((True, "goes on from here."), (False, "as nothing was saved.")):
        with pytest.raises(Stopped, match=ending), watched() as watch, watch.deferred():
            watch.saved = saved
            watch.handle(signal.SIGTERM, None)


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Return a run that a batch system ended."""
    workdir = tmp_path_factory.mktemp("endings") / "run"
    with subprocess.Popen(
        command(*LONG, f"--workdir={workdir}"),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while process.poll() is None and len(tidy.load(workdir / "rows.jsonl")) < 20:
            time.sleep(0.01)
        second = launch(*LONG, f"--workdir={workdir}")
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=60)
    return workdir, second, process.returncode, errors, out


LONG = [*TOY, "--config.algorithms=fed_mid", "--config.num_rounds=100000"]


@pytest.mark.slow
def test_sigterm_saves_and_exits_with_its_own_code(broken):
    _, _, code, errors, out = broken
    assert code == 143
    assert errors == "experiments.run: stopped by SIGTERM; the same command goes on from here.\n"
    first, second, *_ = out.splitlines()
    assert first == "solving for the optimum of 1 strength"
    assert second == "FedMiD: compiling for 2 points and seeds"


@pytest.mark.slow
def test_a_second_process_is_refused(broken):
    _, second, *_ = broken
    assert second.returncode == 2 and "is writing to" in one_line(second)


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
    assert done.returncode == 2 and "No space left on device; free some space" in one_line(done)
    rows = tidy.load(workdir / "rows.jsonl")
    assert len(rows) > 100
    subprocess.run(["mount", "-o", "remount,size=100m", os.fspath(small_disk)], check=True)
    done = launch(*arguments, f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr
    assert tidy.load(workdir / "rows.jsonl")[: len(rows)] == rows
    subprocess.run(["mount", "-o", "remount,ro", os.fspath(small_disk)], check=True)
    for folder, message in (("run2", "cannot be made: Read-only"), ("run", "Read-only file")):
        done = launch(
            *arguments,
            "--config.num_rounds=8000" if folder == "run2" else "--overwrite",
            f"--workdir={small_disk / folder}",
        )
        assert done.returncode == 2 and message in one_line(done)
