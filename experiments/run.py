"""Run an experiment from a config file; write rows, a summary, models and figures.

python -m experiments.run --config=configs/lasso.py --workdir=runs/lasso [--config.KEY=VALUE ...]

The same command resumes a run that was interrupted; on a finished run it does nothing.
"""

import contextlib
import functools
import json
import logging
import os
import pathlib
import signal
import sys
import traceback
from types import FrameType
from typing import Any, NoReturn

if __name__ == "__main__":
    # A signal ends the imports at once: an exception in a callback of JAX would be ignored.
    def _end_early(number: int, frame: FrameType | None) -> NoReturn:
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        try:
            os.write(2, f"fcojax run: stopped by {name} before the run began.\n".encode())
        finally:
            os._exit(128 + number)

    for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(_number) is not signal.SIG_IGN:
            signal.signal(_number, _end_early)

import jax
from absl import app, flags
from ml_collections import ConfigDict

from experiments.cli import options
from experiments.cli.console import Progress, printed, results
from experiments.cli.help import manual
from experiments.config import config_file
from experiments.config.settings import refuse_numbers_beyond_range, set_precision
from experiments.execution.experiment import prepared, run_study, run_sweep
from experiments.process import distributed, invocation
from experiments.process.errors import CANNOT, UserError, sentence
from experiments.process.signals import Stopped, Watch, watched
from experiments.publishing import figures
from experiments.report import rows as tidy
from experiments.storage.provenance import provenance, unlike
from experiments.storage.row_store import fingerprints
from experiments.storage.workdir import Workdir
from experiments.study import Study, Sweep, check, split_names


def parse_flags(argv: list[str]) -> list[str]:
    """Parse the command line; a mistake ends in one line and exit code 2."""
    invocation.write_any_letter()
    try:
        if {"--help", "-h", "-help", "--helpshort"} & set(argv):
            printed(manual(options.config_among(argv), options.__name__))
            sys.exit()
        for word in argv[1:]:
            if word != word.encode("utf-8", "ignore").decode():
                raise UserError(f"{word!r} is not UTF-8, as the page of a run is; pass another.")
        return options.parse(argv)
    except Exception as error:
        _leave(error)


_say = functools.partial(invocation.speak, "run")


def main(argv: list[str]) -> None:
    """Run the experiment and end with its status."""
    try:
        with watched() as watch:
            if len(argv) > 1:
                raise UserError(
                    f"unexpected argument {argv[1]}; settings are given as --config.KEY=VALUE."
                )
            status = _run(watch)
            distributed.leave()
            invocation.end(status)
    except Stopped as stop:
        _say(str(stop))
        distributed.leave()
        invocation.end(stop.exit_code)
    except Exception as error:
        if flags.FLAGS.is_parsed() and options.TRACEBACK.value:
            traceback.print_exception(error)
            invocation.end(CANNOT)
        _leave(error)


def _run(watch: Watch) -> int:
    path = options.config_path()
    if path is None:
        what = "--config=FILE is missing"
        if invocation.through_fcojax("run"):
            what = "the config is missing; type fcojax run NAME|FILE.py --workdir=DIR"
        raise UserError(f"{what}; `fcojax configs` lists the shipped ones.")
    if not options.WORKDIR.value:
        raise UserError("--workdir=DIR is missing; pass the folder for the results.")
    if options.WORKDIR.value.startswith("-"):
        raise UserError(f"--workdir is {options.WORKDIR.value}, a flag; pass --workdir=DIR.")
    file = config_file.load(path)
    _set_up_jax(file.experiment.x64)
    config = _config(file)
    split_names(file.experiment, config)  # before they are stored
    ours = provenance(
        json.loads(config.to_json_best_effort()),
        pathlib.Path(path),
        invocation.command("run"),
    )
    distributed.require_alike(ours, unlike)
    if isinstance(file.experiment, Study) and jax.process_count() > 1:
        distributed.leave()
        raise UserError("several processes cannot compute a study together; start one.")
    workdir = Workdir(options.WORKDIR.value, options.OVERWRITE.value, options.RESUMING.value, _say)
    write = printed if distributed.is_first() else lambda text: None
    summary = distributed.broadcast_from_first(lambda: workdir.look(ours))
    if summary.get("finished"):
        write(f"{workdir.path} is finished already; nothing to do.")
        return _status(summary)
    progress = Progress(_say, write)
    if isinstance(file.experiment, Study):
        check(file.experiment, config)
        execute = functools.partial(run_study, file.experiment, config, workdir, progress)
    else:
        sweep = prepared(file.experiment, config)
        every = options.CHECKPOINT_EVERY.value
        execute = functools.partial(run_sweep, sweep, workdir, progress, watch, every)
    with contextlib.ExitStack() as stack:
        # The first process holds the lock of the workdir for all of them.
        claimed = workdir.claimed(ours, resumes=isinstance(file.experiment, Sweep))
        distributed.broadcast_from_first(lambda: stack.enter_context(claimed))
        summary = execute()
        distributed.broadcast_from_first(lambda: _conclude(workdir, file, config, summary))
    command = invocation.command("run")
    for text in results(summary, workdir.path, file.experiment.printed, command):
        write(text)
    return _status(summary)


def _set_up_jax(x64: bool) -> None:
    """Set up float64, quiet logs, a compilation cache, and a device for each core.

    Args:
      x64: whether to compute in double precision.
    """
    if x64:
        jax.config.update("jax_enable_x64", True)
    chosen = "--xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if jax.config.values["jax_num_cpu_devices"] < 1 and not chosen:
        # One device per core uses the cores better than XLA's own threads do.
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    logging.getLogger("jax._src.xla_bridge").setLevel(logging.WARNING)
    if not jax.config.values["jax_compilation_cache_dir"]:
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
        jax.config.update("jax_compilation_cache_dir", os.fspath(cache / "fcojax" / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    # After all options are set, and before JAX initialises its devices.
    distributed.connect(
        options.COORDINATOR.value, options.NUM_PROCESSES.value, options.PROCESS_ID.value
    )
    try:
        jax.devices()
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        raise UserError(
            f"JAX finds no device: {first}; unset JAX_PLATFORMS or set it to cpu."
        ) from error


def _config(file: config_file.ConfigFile) -> ConfigDict:
    """Return the config with the changes of the command line, locked."""
    config = options.CONFIG.value
    set_precision(config)
    if options.QUICK.value:
        file.quick(config)
    options.refuse_unknown_keys(file, config)
    options.override(config)
    refuse_numbers_beyond_range(config)
    return config.lock()


def _conclude(workdir: Workdir, file, config: ConfigDict, summary: dict[str, Any]) -> None:
    """Write claims, figures and the page from the rows, and mark the run as finished."""
    rows = tidy.load(workdir.path / "rows.jsonl")
    claims = file.experiment.claims(config, rows, summary)
    quick = options.QUICK.value
    summary["claims"] = [claim.as_json(quick) for claim in claims]
    workdir.write_summary(summary)
    figures.draw(workdir.path, file, config, rows)
    made = {"rows": fingerprints(rows), "models": workdir.models(summary)}
    workdir.write_summary(summary | made | {"finished": True})


def _status(summary: dict[str, Any]) -> int:
    """Return 1 if the best point of every algorithm diverged, else 0."""
    entries = summary.get("algorithms", {}).values()
    return 1 if entries and all(e["verdict"].startswith("diverged") for e in entries) else 0


def _leave(error: Exception) -> NoReturn:
    """End with a message; a process that failed does not wait for the others of its run."""
    if distributed.is_of_another(error):
        distributed.end_without_the_others()
    invocation.end(CANNOT, sentence(error))


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
