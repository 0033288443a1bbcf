"""Runs an experiment from a config file and leaves rows, a summary, models and figures behind.

python -m experiments.run --config=configs/lasso.py --workdir=runs/lasso [--config.KEY=VALUE ...]

The same command resumes a run that was interrupted; a finished run says so and does nothing.
"""

import contextlib
import functools
import json
import os
import pathlib
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any, NoReturn

import jax
from absl import app, flags
from ml_collections import ConfigDict
from rich.console import Console

from experiments import as_typed, command_line, config_file, figures, processes, writers
from experiments.endings import CANNOT, Refused, sentence
from experiments.machine import open_files, prepare
from experiments.manual import manual
from experiments.provenance import provenance
from experiments.report import rows as tidy
from experiments.running import prepared_study, prepared_sweep
from experiments.settings import refuse_numbers_beyond_range, resolve, set_precision
from experiments.signals import Stopped, Watch, watched
from experiments.study import Study
from experiments.terminal import printed, results, told
from experiments.workdir import Workdir


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line; a mistake ends in one line and exit code 2."""
    try:
        if {"--help", "-h", "-help", "--helpshort"} & set(argv):
            told(manual(command_line.config_among(argv), command_line.__name__))
            sys.exit()
        return command_line.parse(argv)
    except Refused as error:
        _leave(error)


def main(argv: list[str]) -> None:
    """Runs the experiment and exits with its status."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    # What fails while a checkpoint is being written is raised where its end is waited for.
    threading.excepthook = lambda args: None
    try:
        with watched() as watch:
            if len(argv) > 1:
                raise Refused(
                    f"unexpected argument {argv[1]}; settings are given as --config.KEY=VALUE."
                )
            status = _run(watch)
    except Stopped as stop:
        _say(stop.sentence)
        processes.leave()
        # Everything is on disk, and whoever sent the signal does not wait for threads.
        os._exit(stop.exit_code)
    except Exception as error:
        if flags.FLAGS.is_parsed() and command_line.TRACEBACK.value:
            traceback.print_exception(error)
            _exit(CANNOT)
        _leave(error)
    processes.leave()
    sys.exit(status)


def _run(watch: Watch) -> int:
    path = command_line.config_path()
    if path is None:
        what = "--config=FILE is missing"
        if as_typed.through_fcojax("run"):
            what = "the config is missing; type fcojax run NAME|FILE.py --workdir=DIR"
        raise Refused(f"{what}; `fcojax configs` lists those that we ship.")
    if not command_line.WORKDIR.value:
        raise Refused("--workdir=DIR is missing; it says where results go.")
    if command_line.WORKDIR.value.startswith("-"):
        raise Refused(f"--workdir is {command_line.WORKDIR.value}, a flag; pass --workdir=DIR.")
    chosen = writers.find(_writers())
    file = config_file.load(path)
    open_files()
    deterministic = command_line.DETERMINISTIC.value
    prepare(file.experiment.x64, deterministic, _connect)
    config = _config(file)
    if deterministic and config.get("time_chunks"):
        raise Refused("--deterministic and time_chunks contradict, for times are never the same.")
    processes.refuse(
        several_cannot={
            "compute a study": isinstance(file.experiment, Study),
            "time chunks": bool(config.get("time_chunks")),
            "look for --debug_nans": command_line.DEBUG_NANS.value,
        }
    )
    if isinstance(file.experiment, Study):
        prepared = functools.partial(prepared_study, file.experiment, config)
    else:
        settings = resolve(config, file.experiment)
        prepared = functools.partial(prepared_sweep, file.experiment, config, settings)
    workdir = Workdir(
        command_line.WORKDIR.value, command_line.OVERWRITE.value, command_line.RESUMING.value, _say
    )
    ours = provenance(
        json.loads(config.to_json_best_effort()), pathlib.Path(path),
        {"deterministic": deterministic},
    )  # fmt: skip
    console = Console(highlight=False, quiet=not processes.is_first())
    summary, finished = processes.told(lambda: _known(workdir, ours))
    if finished:
        printed(console, f"{workdir.path} is finished already; nothing to do.")
        return _status(summary)
    execute = prepared()
    with _claimed(workdir, ours, not isinstance(file.experiment, Study)) as summary:
        summary = {name: value for name, value in summary.items() if name != "finished"}
        summary = execute(workdir, summary, console, watch, _say)
        processes.told(lambda: _conclude(workdir, file, config, summary, chosen))
    results(console, summary, workdir.path)
    return _status(summary)


def _connect() -> None:
    processes.connect(
        command_line.COORDINATOR.value,
        command_line.NUM_PROCESSES.value,
        command_line.PROCESS_ID.value,
    )


@contextlib.contextmanager
def _claimed(workdir: Workdir, ours: dict[str, Any], resumes: bool) -> Iterator[dict[str, Any]]:
    """The workdir, held by the first process for all."""
    with contextlib.ExitStack() as stack:
        yield processes.told(lambda: stack.enter_context(workdir.claimed(ours, resumes)))


def _config(file: config_file.ConfigFile) -> ConfigDict:
    """The config with everything that the command line says, locked."""
    config = command_line.CONFIG.value
    set_precision(config)
    if command_line.QUICK.value:
        file.quick(config)
    command_line.refuse_unknown_keys(file, config)
    command_line.override(config)
    refuse_numbers_beyond_range(config)
    return config.lock()


def _writers() -> list[str]:
    extra = ["tensorboard"] if command_line.TENSORBOARD.value else []
    return list(dict.fromkeys([*command_line.WRITERS.value, *extra]))


def _conclude(
    workdir: Workdir,
    file,
    config: ConfigDict,
    summary: dict[str, Any],
    chosen: list[writers.Writer],
) -> None:
    """Claims, figures and the page, all from the rows; then the run is finished."""
    rows = tidy.load(workdir.path / "rows.jsonl")
    claims = file.experiment.claims(config, rows, summary)
    quick = command_line.QUICK.value
    summary["claims"] = [claim.as_json(quick) for claim in claims]
    workdir.write_summary(summary)
    figures.draw(workdir.path, file, config)
    writers.write(chosen, workdir.path, rows, summary)
    workdir.write_summary(summary | {"rows": workdir.ledger().fingerprints(), "finished": True})


def _known(workdir: Workdir, ours: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The summary of this very run so far, and whether there is nothing to do."""
    summary = workdir.look(ours)
    return summary, _is_finished(workdir, summary)


def _is_finished(workdir: Workdir, summary: dict[str, Any]) -> bool:
    """Whether there is nothing to do; says so if rows are not as the run left them."""
    if not summary.get("finished"):
        return False
    if summary.get("rows") == workdir.ledger().fingerprints():
        return True
    _say(f"{workdir.path} was finished, but its rows have changed since; they are made again.")
    return False


def _status(summary: dict[str, Any]) -> int:
    """1 if the best point of every algorithm diverged."""
    entries = summary.get("algorithms", {}).values()
    return 1 if entries and all(e["verdict"].startswith("diverged") for e in entries) else 0


def _say(message: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"experiments.run: {message}\n")
        sys.stderr.flush()


def _leave(error: Exception) -> NoReturn:
    if processes.is_of_another(error):
        processes.end_without_the_others()
    _say(sentence(error))
    _exit(CANNOT)


def _exit(code: int) -> NoReturn:
    if jax.distributed.is_initialized():
        sys.stdout.flush()
        os._exit(code)  # where some have failed nobody waits for all
    sys.exit(code)


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
