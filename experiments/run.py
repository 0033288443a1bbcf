"""Runs an experiment from a config file and leaves rows, a summary, models and figures behind.

python -m experiments.run --config=configs/lasso.py --workdir=runs/lasso [--config.KEY=VALUE ...]

The same command resumes a run that was interrupted; a finished run says so and does nothing.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import pathlib
import subprocess
import sys
from typing import NoReturn

import jax
from absl import app, flags
from absl import logging as absl_logging
from ml_collections import config_flags
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from experiments import figures
from experiments.campaign import Campaign, solve_optima
from experiments.settings import build_algorithm, load_module, resolve, suggest
from fcojax.engine.check import check_run
from fcojax.engine.round import Plan
from fcojax.report import rows as tidy

CONFIG = config_flags.DEFINE_config_file("config", help_string="The config file.")
WORKDIR = flags.DEFINE_string("workdir", None, "Where everything is written.")
QUICK = flags.DEFINE_bool("quick", False, "Shrink the run to under a minute.")
TENSORBOARD = flags.DEFINE_bool("tensorboard", False, "Write event files too.")
PROFILE = flags.DEFINE_bool("profile", False, "Wrap one block in the profiler.")

_PACKAGES = ("fcojax", "jax", "jaxlib", "numpy", "optax", "flax", "orbax-checkpoint")


class Refused(Exception):
    """What the user asked for cannot be; the message is one line."""


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the command line; a mistake ends in one line and exit code 2."""
    try:
        return flags.FLAGS(argv)
    except (flags.Error, AttributeError, TypeError, ValueError, OSError) as error:
        _leave(_explain(argv, error))


def _explain(argv: list[str], error: Exception) -> str:
    overrides = [arg[len("--config.") :].split("=")[0] for arg in argv if arg[:9] == "--config."]
    paths = [arg[len("--config=") :] for arg in argv if arg.startswith("--config=")]
    if overrides and not paths:
        return "--config.KEY needs --config=FILE beside it."
    with contextlib.suppress(ValueError):
        known = list(load_module(paths[-1]).get_config()) if paths else []
        for key in overrides:
            if key.split(".")[0] not in known:
                return f"the config has no key {key}; {suggest(key, known)}"
    return str(error).splitlines()[0]


def _leave(message: str) -> NoReturn:
    sys.stderr.write(f"experiments.run: {' '.join(message.split())}\n")
    sys.exit(2)


def main(argv: list[str]) -> None:
    """The whole experiment."""
    try:
        if len(argv) > 1:
            raise Refused(
                f"unexpected argument {argv[1]}; settings are given as --config.KEY=VALUE."
            )
        status = _run()
    except (Refused, ValueError) as error:
        _leave(str(error))
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; the same command goes on from here.\n")
        sys.exit(130)
    sys.exit(status)


def _run() -> int:
    _prepare_jax()
    if not flags.FLAGS["config"].present:
        raise Refused("--config=FILE is missing; the configs we ship are in configs/.")
    if not WORKDIR.value:
        raise Refused("--workdir=DIR is missing; it says where results go.")
    if TENSORBOARD.value and importlib.util.find_spec("tensorboardX") is None:
        raise Refused("--tensorboard needs tensorboardX; pip install 'fcojax[tensorboard]'.")
    module = load_module(config_flags.get_config_filename(flags.FLAGS["config"]))
    config = CONFIG.value
    if QUICK.value:
        with config.unlocked():
            module.quick(config)
        config.update_from_flattened_dict(config_flags.get_override_values(flags.FLAGS["config"]))
    settings = resolve(config)
    console = Console(highlight=False)
    workdir = pathlib.Path(WORKDIR.value)
    resolved = json.loads(config.to_json_best_effort())
    summary = _claim(workdir, resolved)
    if summary.get("finished"):
        console.print(f"{workdir} is finished already; nothing to do.", soft_wrap=True)
        return 0
    problem, penalty = module.problem(config), module.penalty(config)
    plan = Plan(settings.work, settings.cohort, settings.client_chunk_size)
    for name, grid in settings.grids.items():
        first = jax.tree.map(lambda column: column[0], grid)
        algorithm = build_algorithm(name, problem, penalty)
        check_run(algorithm, plan, first, problem.train, settings.num_rounds, settings.eval_every)
    measures = jax.eval_shape(lambda key: problem.measures(problem.init(key)), jax.random.key(0))
    columns = ["objective", "loss", "suboptimality", *measures]
    if problem.validation is not None:
        columns.append("validation_loss")
    if settings.criterion.measure not in columns:
        raise Refused(
            f"there is no measure {settings.criterion.measure} to rank by; "
            f"{suggest(settings.criterion.measure, columns)}"
        )
    workdir.mkdir(parents=True, exist_ok=True)
    tidy.write_json(workdir / "config.json", {"config": resolved, **_surroundings()})
    with _progress(console) as progress:
        note = progress.add_task("optimum", total=len(settings.penalty_scales))
        optima = {}
        for scale, value in solve_optima(problem, penalty, settings.penalty_scales):
            optima[scale] = value
            progress.advance(note)
        tasks = {
            name: progress.add_task(name, total=settings.num_rounds) for name in settings.grids
        }
        campaign = Campaign(
            settings, problem, penalty, workdir, optima,
            on_block=lambda name, rounds: progress.update(tasks[name], completed=rounds),
            around_block=_profiler(workdir),
        )  # fmt: skip
        summary.setdefault("optimum", {f"{scale:g}": value for scale, value in optima.items()})
        for name in settings.grids:
            if name not in summary["algorithms"]:
                summary["algorithms"][name] = campaign.run(name)
                tidy.write_json(workdir / "summary.json", summary)
            progress.update(tasks[name], completed=settings.num_rounds)
    drawn = figures.draw(workdir, module)
    if TENSORBOARD.value:
        _write_events(workdir)
    tidy.write_json(workdir / "summary.json", summary | {"finished": True})
    console.print(_table(summary, settings.criterion))
    console.print(
        f"rows, summary and models are in {workdir}; the figure is {drawn}.", soft_wrap=True
    )
    entries = summary["algorithms"].values()
    return 0 if any(not entry["verdict"].startswith("diverged") for entry in entries) else 1


def _prepare_jax() -> None:
    """Quiet logs, and a compilation cache that outlives the process."""
    absl_logging.set_verbosity(absl_logging.WARNING)
    logging.getLogger("jax._src.xla_bridge").setLevel(logging.WARNING)
    if not jax.config.values["jax_compilation_cache_dir"]:
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
        jax.config.update("jax_compilation_cache_dir", os.fspath(cache / "fcojax" / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def _claim(workdir: pathlib.Path, resolved: dict) -> dict:
    """The summary so far of this very config, or a refusal if the workdir holds another."""
    known = workdir / "config.json"
    if known.exists():
        theirs = json.loads(known.read_text("utf-8"))["config"]
        for key in sorted(set(theirs) | set(resolved)):
            if theirs.get(key) != resolved.get(key):
                raise Refused(
                    f"{workdir} holds a run with {key} = {theirs.get(key)} and this one has "
                    f"{resolved.get(key)}; pass another --workdir."
                )
    elif workdir.exists() and (not workdir.is_dir() or any(workdir.iterdir())):
        raise Refused(
            f"{workdir} is not an empty folder and no run of ours; pass another --workdir."
        )
    if (workdir / "summary.json").exists():
        return json.loads((workdir / "summary.json").read_text("utf-8"))
    return {"algorithms": {}}


def _surroundings() -> dict:
    """Versions, devices, flags and commit: what one needs to know to repeat a run."""
    root = pathlib.Path(__file__).parent
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False
    )
    return {
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES}
        | {"python": sys.version.split()[0]},
        "devices": [str(device) for device in jax.devices()],
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "git_commit": commit.stdout.strip() or None,
    }


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def _profiler(workdir: pathlib.Path):
    """Wraps the second block, the first that is not compiled on the way."""

    def around(block: int):
        if PROFILE.value and block == 1:
            return jax.profiler.trace(os.fspath(workdir / "profile"))
        return contextlib.nullcontext()

    return around


def _write_events(workdir: pathlib.Path) -> None:
    from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]

    for name, entry in json.loads((workdir / "summary.json").read_text())["algorithms"].items():
        with SummaryWriter(os.fspath(workdir / "tensorboard" / name)) as writer:
            for row in figures.best_rows(workdir, name, entry):
                for measure, value in row.items():
                    if isinstance(value, float) and measure not in entry["best"]:
                        writer.add_scalar(measure, value, row["round"])


def _table(summary: dict, criterion) -> Table:
    """One line an algorithm; what all share stands in the title, gap is to the best F + psi."""
    entries = summary["algorithms"]
    fields = sorted({field for entry in entries.values() for field in entry["best"]})
    columns = {field: [entry["best"].get(field) for entry in entries.values()] for field in fields}
    varied = [field for field in fields if len(set(columns[field])) > 1 or len(entries) == 1]
    fixed = ", ".join(f"{field} {columns[field][0]:g}" for field in fields if field not in varied)
    title = f"best by {criterion.measure} over the last {criterion.last_rounds} rounds"
    table = Table(
        title=f"{title}; {fixed}" if fixed else title, box=None, padding=(0, 1), pad_edge=False
    )
    table.add_column("algorithm", no_wrap=True)
    for heading in (*varied, criterion.measure, "gap", "failed", "s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for name, entry in entries.items():
        table.add_row(
            name,
            *(_short(entry["best"].get(field)) for field in varied),
            _short(entry["score"]),
            _short(entry["last"].get("suboptimality")),
            f"{len(entry['diverged'])}/{entry['points'] * entry['seeds']}",
            f"{entry['seconds']:.1f}",
            entry["verdict"].split(":")[0],
        )
    return table


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
