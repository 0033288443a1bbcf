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
import sys
import time
import traceback
from typing import Any, NoReturn

import jax
from absl import app, flags
from ml_collections import ConfigDict, config_flags

from experiments.cli import options
from experiments.cli.console import Progress, printed, results
from experiments.config import config_file
from experiments.execution.sweep_runner import SweepRunner
from experiments.process import distributed, invocation
from experiments.process.invocation import CANNOT, UserError, Watch, sentence
from experiments.publishing import figures
from experiments.report import rows as tidy
from experiments.storage.provenance import CODE, NUMBERS, difference, provenance, same_kernels
from experiments.storage.workdir import Workdir
from experiments.study import Study, check, split_names


def parse_flags(argv: list[str]) -> list[str]:
    """Parse the command line; a mistake ends in one line and exit code 2."""
    try:
        if {"--help", "-h", "-help", "--helpshort"} & set(argv):
            printed(options.manual(options.config_among(argv)))
            sys.exit()
        return options.parse(argv)
    except Exception as error:
        _leave(error)


_say = functools.partial(invocation.speak, "run")


def main(argv: list[str]) -> None:
    """Run the experiment and end with its status."""
    watch = Watch()
    watch.listen()
    try:
        if len(argv) > 1:
            raise UserError(
                f"unexpected argument {argv[1]}; settings are given as --config.KEY=VALUE."
            )
        status = _run(watch)
        distributed.leave()
        invocation.end(status)
    except Exception as error:
        if options.TRACEBACK.value:
            traceback.print_exception(error)
        _leave(error)


def _run(watch: Watch) -> int:
    if not flags.FLAGS["config"].present:
        raise UserError("the config is missing; `fcojax configs` lists the shipped ones.")
    path = config_flags.get_config_filename(flags.FLAGS["config"])
    file = config_file.load(path)
    _set_up_jax(file.experiment.x64)
    config = options.resolved(file)
    split_names(file.experiment, config)  # before they are stored
    ours = provenance(
        json.loads(config.to_json_best_effort()), pathlib.Path(path), invocation.command("run")
    )
    alike = functools.partial(difference, parts=(*NUMBERS, *CODE, "versions"))
    distributed.require_alike(ours, alike)
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
        execute = functools.partial(_run_study, file.experiment, config, workdir, progress)
    else:
        runner, every = SweepRunner(file.experiment, config), options.CHECKPOINT_EVERY.value
        execute = functools.partial(runner.run, workdir, progress, watch, every)
    with contextlib.ExitStack() as stack:
        # The first process holds the lock of the workdir for all of them.
        claimed = workdir.claimed(ours)
        distributed.broadcast_from_first(lambda: stack.enter_context(claimed))
        stack.enter_context(same_kernels(workdir.path))
        summary = execute()
        distributed.broadcast_from_first(lambda: _conclude(workdir, file, config, summary))
    for text in results(summary, workdir.path, file.experiment.printed, options.QUICK.value):
        write(text)
    return _status(summary)


def _run_study(
    study: Study, config: ConfigDict, workdir: Workdir, progress: Progress
) -> dict[str, Any]:
    """Write the study's rows as they come; return its summary.

    Studies are short and do not resume; an interrupted study starts over.
    """
    began, path = time.monotonic(), workdir.path / "rows.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        for row in study.rows(config):
            file.write(tidy.line(tidy.plain(row)))
            progress.share("", 0.0, str(row["part"]))
    found = study.summarise(config, tidy.load(path))
    return found | {"seconds": round(time.monotonic() - began, 3)}


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
    jax.devices()


def _conclude(workdir: Workdir, file, config: ConfigDict, summary: dict[str, Any]) -> None:
    """Write claims, figures and the page from the rows, and mark the run as finished."""
    rows = tidy.load(workdir.path / "rows.jsonl")
    figures.conclude(workdir.path, file, config, rows, summary, options.QUICK.value)
    tidy.write_json(workdir.path / "summary.json", summary | {"finished": True})


def _status(summary: dict[str, Any]) -> int:
    """Return 1 if the best point of every algorithm diverged, else 0."""
    entries = summary.get("algorithms", {}).values()
    return 1 if entries and all(e["verdict"].startswith("diverged") for e in entries) else 0


def _leave(error: Exception) -> NoReturn:
    """End with a message; a process that failed does not wait for the others of its run."""
    distributed.end_if_of_another(error)
    invocation.end(CANNOT, sentence(error))


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
