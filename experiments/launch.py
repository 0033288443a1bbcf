"""Run a list of experiments: as local processes, a few at a time, or as an array of Slurm jobs.

python -m experiments.launch runs.py --workdir=runs/all [--at_once=2] [--slurm=job.sh] [--table]

``runs.py`` has ``RUNS``, which maps a name to the arguments of ``experiments.run``, as a list of
strings; each run gets the folder of its name under the workdir. The same command again resumes
runs that ended early and skips those that are finished. A table, ``runs.csv``, has the best points.
"""

import csv
import json
import os
import pathlib
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from experiments.process.invocation import speak, write_any_letter

_NAME = re.compile(r"[\w.+=-]+")
# The exit code of a run whose arguments are wrong, which another attempt does not change.
_REFUSED = 2
_MAX_ATTEMPTS = 3

Runs = dict[str, list[str]]


def read(path: str) -> Runs:
    """Return the runs that a file names; raise ``ValueError`` if it names none."""
    if not pathlib.Path(path).is_file():
        raise ValueError(f"there is no file {path}; pass a Python file with RUNS in it.")
    try:
        runs = runpy.run_path(path).get("RUNS")
    except (Exception, SystemExit) as error:  # the user's code may raise any exception
        raise ValueError(f"{path} cannot be run: {type(error).__name__}: {error}.") from error
    if not isinstance(runs, dict) or not runs:
        raise ValueError(f"{path} has no RUNS; give it a dict of names and lists of arguments.")
    for name, arguments in runs.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or set(name) == {"."}:
            raise ValueError(
                f"a run in {path} is called {name!r}; use letters, digits and any of _ . + = -, "
                "because it becomes a folder."
            )
        texts = isinstance(arguments, list | tuple) and all(isinstance(a, str) for a in arguments)
        if not texts:
            raise ValueError(f"the arguments of {name} in {path} are not a list of strings.")
        if any(argument.startswith("--workdir") for argument in arguments):
            raise ValueError(f"{name} in {path} has a --workdir; each run gets one by its name.")
    return {name: list(arguments) for name, arguments in runs.items()}


def command(workdir: pathlib.Path, name: str, arguments: Sequence[str]) -> list[str]:
    """Return the command line of one run."""
    return [sys.executable, "-m", "experiments.run", f"--workdir={workdir / name}", *arguments]


def summary_of(folder: pathlib.Path) -> dict[str, Any]:
    """Return the summary of a run so far; empty if there is none."""
    try:
        summary = json.loads((folder / "summary.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return summary if isinstance(summary, dict) else {}


def run_all(
    commands: dict[str, list[str]],
    logs: Callable[[str], pathlib.Path],
    at_once: int,
    say: Callable[[str], None],
) -> dict[str, int]:
    """Run all commands, a few at a time; return their exit codes.

    A run that a signal ended, as when memory runs out, gets three attempts in all; one that ended
    with another exit code gets no second. Ctrl-C and SIGTERM are passed on to all runs.

    Args:
      commands: the command line of each run, by name.
      logs: the file for the output of the run of this name.
      at_once: runs at a time.
      say: called with a message whenever a run starts or ends.
    """
    waiting, attempts = list(commands), dict.fromkeys(commands, 0)
    running: dict[str, subprocess.Popen] = {}
    codes: dict[str, int] = {}
    stopped: list[int] = []
    before = {
        number: signal.signal(number, lambda number, frame: stopped.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        while running or (waiting and not stopped):
            while waiting and len(running) < at_once and not stopped:
                name = waiting.pop(0)
                attempts[name] += 1
                running[name] = _start(commands[name], logs(name))
                say(f"{name}: started" + (" again" if attempts[name] > 1 else ""))
            for name in [name for name, process in running.items() if process.poll() is not None]:
                code = running.pop(name).returncode
                again = (code < 0 or code > 128) and attempts[name] < _MAX_ATTEMPTS
                codes[name] = code
                if again and not stopped:
                    waiting.append(name)
                say(f"{name}: {_outcome(code, logs(name))}")
            for number in stopped[:1]:
                for process in running.values():
                    process.send_signal(number)
                stopped[:] = [0]  # passed on once
            time.sleep(0.05)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return codes


def _start(arguments: list[str], log: pathlib.Path) -> subprocess.Popen:
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as file:
        # In its own session, so that only this process passes Ctrl-C on to it.
        return subprocess.Popen(
            arguments,
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def _outcome(code: int, log: pathlib.Path) -> str:
    if code == 0:
        return "finished"
    if code == 1:
        return "finished, but the best point of every algorithm diverged"
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    last = f": {lines[-1]}" if lines else ""
    return f"ended with exit code {code}{last}"


def slurm_script(commands: dict[str, list[str]], logs: pathlib.Path, at_once: int) -> str:
    """Return an array job with one task per run; submitted again, it resumes unfinished runs."""
    cases = "\n".join(
        f"  {index}) exec {shlex.join(arguments)} ;;"
        for index, arguments in enumerate(commands.values())
    )
    folder = shlex.quote(os.fspath(logs))
    return (
        "#!/bin/bash\n"
        f"#SBATCH --array=0-{len(commands) - 1}%{at_once}\n"
        f"#SBATCH --output={folder}/slurm-%A_%a.log\n"
        "#SBATCH --signal=TERM@60\n"
        "#SBATCH --requeue\n"
        "# Add what your cluster needs: --partition, --time, --gres=gpu:1, --mem.\n"
        f"cd {shlex.quote(os.getcwd())}\n"
        f"case $SLURM_ARRAY_TASK_ID in\n{cases}\nesac\n"
    )


def table(workdir: pathlib.Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return one row for each algorithm of each run: its best point, score and verdict."""
    rows = []
    for name in names:
        summary = summary_of(workdir / name)
        state = "finished" if summary.get("finished") else "not finished"
        for label, entry in summary.get("algorithms", {}).items():
            scores = {
                key: value for key, value in entry.items() if isinstance(value, str | int | float)
            }
            best = {f"best_{key}": value for key, value in entry.get("best", {}).items()}
            rows.append({"run": name, "state": state, "algorithm": label, **best, **scores})
        if not summary.get("algorithms"):
            rows.append({"run": name, "state": state})
    return rows


def write_table(path: pathlib.Path, rows: list[dict[str, Any]]) -> None:
    """Write rows with different columns as one csv file, and rename it when it is complete."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    beside = path.with_suffix(".partial")
    with open(beside, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    beside.replace(path)


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string(
        "workdir", None, "The folder for the folders of all runs.", flag_values=values
    )
    flags.DEFINE_integer(
        "at_once", 1, "The number of runs at a time.", lower_bound=1, flag_values=values
    )
    flags.DEFINE_string(
        "slurm", None, "Write a job script to this file and run nothing.", flag_values=values
    )
    flags.DEFINE_bool("table", False, "Gather the table and run nothing.", flag_values=values)
    return values


def main(argv: Sequence[str] | None = None) -> int:
    """Run the list, or write the script; return 0 if all runs are finished."""
    write_any_letter()
    argv, values = sys.argv[1:] if argv is None else argv, _flags()
    if {"--help", "-h"} & set(argv):
        print(f"{__doc__}\n{values.get_help()}")
        return 0
    try:
        files = values(["launch", *argv])[1:]
        if len(files) != 1 or not values["workdir"].value:
            raise ValueError("pass one FILE.py with RUNS, and --workdir=DIR.")
        runs = read(files[0])
        workdir = pathlib.Path(values["workdir"].value).expanduser().absolute()
        workdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        speak("launch", f"{error.filename}: {error.strerror}; pass another --workdir.")
        return _REFUSED
    except (ValueError, flags.Error) as error:
        speak("launch", str(error))
        return _REFUSED
    commands = {name: command(workdir, name, arguments) for name, arguments in runs.items()}
    given = values.flag_values_dict()
    logs, at_once, slurm = workdir / "logs", given["at_once"], given["slurm"]
    if slurm:
        logs.mkdir(exist_ok=True)
        pathlib.Path(slurm).write_text(slurm_script(commands, logs, at_once), "utf-8")
        print(f"sbatch {slurm}")
        return 0
    codes: dict[str, int] = {}
    if not values["table"].value:
        left = {n: c for n, c in commands.items() if not summary_of(workdir / n).get("finished")}
        codes = run_all(left, lambda name: logs / f"{name}.log", at_once, print)
    rows = table(workdir, list(runs))
    write_table(workdir / "runs.csv", rows)
    unfinished = {row["run"] for row in rows if row["state"] != "finished"}
    print(f"{len(runs) - len(unfinished)} of {len(runs)} runs are finished; {workdir / 'runs.csv'}")
    return 1 if unfinished or any(code != 0 for code in codes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
