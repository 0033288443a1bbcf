"""Judges a finished run's claims anew, a study's tables too, and draws it and its page.

    fcojax figures NAME|FILE.py --workdir=DIR[,DIR,...]

The same in a clone is ``python -m experiments.figures --config=FILE.py --workdir=DIR``.
"""

import json
import pathlib
import re
import shlex
import sys
from typing import NoReturn, cast

from absl import app, flags
from ml_collections import ConfigDict

from experiments import as_typed, config_file, side_by_side
from experiments.config_file import ConfigFile
from experiments.endings import CANNOT, Refused, sentence
from experiments.report import heat, lines, page, plots
from experiments.report import rows as tidy
from experiments.report.summary import Criterion, at_best
from experiments.study import Study, Sweep
from experiments.terminal import told


def draw(workdir: pathlib.Path, file: ConfigFile, config: ConfigDict) -> list[pathlib.Path]:
    """Draws all figures of a finished run, and its page; returns the figures."""
    experiment = file.experiment
    summary = json.loads((workdir / "summary.json").read_text("utf-8"))
    rows = tidy.load(workdir / "rows.jsonl")
    directory = workdir / "figures"
    directory.mkdir(exist_ok=True)
    drawn = []
    if isinstance(experiment, Sweep):
        drawn += _draw_sweep(directory, experiment, rows, summary)
    drawn += experiment.figures(config, rows, summary, directory)
    drawn = [figure for figure in drawn if figure.exists()]
    run = json.loads((workdir / "config.json").read_text("utf-8"))
    captions = _CAPTIONS | dict(experiment.captions)
    data = summary.get("data", "")
    shown = [
        page.Shown(figure, f"{captions.get(figure.stem, '')} {data}".strip()) for figure in drawn
    ]
    if shown:
        shown[0] = shown[0]._replace(claims=lines.claims(summary, source=True))
    page.write(
        workdir / "index.html", experiment.title, _typed(run["command"]), shown,
        _tables(summary), notes="\n\n".join(filter(None, (file.summary, experiment.remarks))),
        warnings=lines.edge_warnings(summary), facts=_facts(run, summary),
    )  # fmt: skip
    return drawn


def _typed(command: list[str]) -> str:
    """What to type, an option a line."""
    words = [shlex.quote(word) for word in command]
    return "".join(f" \\\n    {w}" if w.startswith("--") else f" {w}" for w in words).strip()


_CAPTIONS = {
    "curves": "Each method at the best point of its grid: mean and range over the seeds. A cross "
    "marks where a seed diverged.",
    "rates": "The score over client_lr and server_lr, the best over all other hyperparameters, of "
    "the algorithms with several values of both. The cross is the point reported; hatched points "
    "failed.",
}


def _draw_sweep(directory, sweep: Sweep, rows, summary) -> list[pathlib.Path]:
    """The curves at the best points, and the score over the two rates."""
    entries = summary["algorithms"]
    best = {name: entry["best"] for name, entry in entries.items()}
    by_name = {name: [row for row in rows if row["algorithm"] == name] for name in entries}
    # What has one value in the whole grid is in the config, and would crowd the legend.
    swept = {
        name: [field for field in point if len({row[field] for row in by_name[name]}) > 1]
        for name, point in best.items()
    }
    scales = {point.get("penalty_scale") for point in best.values()} - {None}
    optimum = summary.get("optimum", {}).get(f"{scales.pop():g}") if len(scales) == 1 else None
    curves = plots.over_rounds(
        directory / "curves.png",
        sweep.panels,
        {name: at_best(rows, name, point) for name, point in best.items()},
        sweep.title,
        swept,
        optimum,
    )
    criterion = Criterion(**next(iter(entries.values()))["criterion"])
    rates = heat.maps(directory / "rates.png", by_name, best, criterion)
    return [curves, rates] if rates else [curves]


def _tables(summary: dict) -> dict[str, list]:
    optimum = [
        {"strength": scale} | measures for scale, measures in summary.get("optimum", {}).items()
    ]
    further = {
        name: value if isinstance(value, list) else _of_facts(value)
        for name, value in summary.items()
        if name not in _SHOWN_APART and isinstance(value, list | dict)
    }
    return {
        "best points (a star marks the edge of a grid)": lines.best_points(summary),
        "what we expect": lines.claims(summary, source=False),
        "the optimum": optimum,
        **further,
        "what diverged": lines.diverged(summary),
    }


_SHOWN_APART = ("algorithms", "claims", "optimum", "rows")


def _of_facts(facts: dict) -> list[dict]:
    """A line for each fact; nothing where they are no plain values but tables in tables."""
    if any(isinstance(value, dict | list) for value in facts.values()):
        return []
    return [{"what": name, "value": value} for name, value in facts.items()]


def _facts(run: dict, summary: dict) -> dict[str, str]:
    """When, where and with what a run was made, and how much it sent."""
    entries = summary.get("algorithms", {})
    sent = [
        f"{name} {entry['last'].get('bytes_up', 0) / 1e6:.4g} up, "
        f"{entry['last'].get('bytes_down', 0) / 1e6:.4g} down"
        for name, entry in entries.items()
    ]
    seconds = summary.get("seconds") or sum(entry["seconds"] for entry in entries.values())
    seeds = run["config"].get("seeds")
    found = {
        "date": run.get("date", ""),
        "time": f"{seconds:.1f} s",
        "seeds": "" if seeds is None else str(seeds),
        "megabytes sent at the best point, all clients": "; ".join(sent),
        "versions": ", ".join(f"{name} {version}" for name, version in run["versions"].items()),
        "devices": ", ".join(run["devices"]),
        "machine": run.get("machine", ""),
        "XLA flags": run["xla_flags"],
        "commit": run["git_commit"] or "",
    }
    return {name: value for name, value in found.items() if value}


_ADDED = ("claims", "rows", "finished")


def judge(workdir: pathlib.Path, file: ConfigFile, config: ConfigDict, quick: bool) -> None:
    """Writes into the summary which claims the rows support, and what a study makes of them."""
    path = workdir / "summary.json"
    summary = json.loads(path.read_text("utf-8"))
    # What a finished run adds to its summary, which its claims have not seen.
    known = {name: value for name, value in summary.items() if name not in _ADDED}
    rows = tidy.load(workdir / "rows.jsonl")
    if isinstance(file.experiment, Study):
        known |= file.experiment.summarise(config, rows)
    claims = file.experiment.claims(config, rows, known)
    added = {name: summary[name] for name in _ADDED if name in summary}
    summary = known | added | {"claims": [claim.as_json(quick) for claim in claims]}
    tidy.write_json(path, summary)


def compare(
    workdirs: list[pathlib.Path], file: ConfigFile, folder: pathlib.Path
) -> list[pathlib.Path]:
    """Draws runs of one sweep together; returns figures and page."""
    side_by_side.refuse_what_cannot_be_compared(workdirs, file)
    rows, summary = side_by_side.gathered(workdirs)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    drawn = _draw_sweep(folder / "figures", cast(Sweep, file.experiment), rows, summary)
    return [*drawn, side_by_side.write(folder, workdirs, file, drawn, summary)]


def _parsed(argv: list[str]) -> list[str]:
    if {"--help", "-h", "-help", "--helpshort"} & set(argv):
        told(_manual())
        sys.exit()
    try:
        return flags.FLAGS(argv)
    except flags.Error as error:
        missing = re.match(r"flag (--\w+)=None", str(error))
        _leave(f"{missing[1]} is missing; see --help." if missing else str(error).splitlines()[0])


def _manual() -> str:
    typed = "fcojax figures NAME|FILE.py"
    if not as_typed.through_fcojax("figures"):
        typed = "python -m experiments.figures --config=FILE.py"
    known = flags.FLAGS.flags_by_module_dict()[sys.argv[0]]
    return "\n".join([
        f"usage: {typed} --workdir=DIR[,DIR,...] [flags]", "", (__doc__ or "").partition("\n")[0],
        "", *(f"  --{flag.name:10}{flag.help}" for flag in known if flag.name != "config"),
    ])  # fmt: skip


def _main(argv: list[str]) -> None:
    try:
        if len(argv) > 1:
            raise Refused(f"unexpected argument {argv[1]}; runs are given as --workdir=DIR,DIR.")
        drawn = _drawn([pathlib.Path(name) for name in flags.FLAGS.workdir])
    except Exception as error:
        if flags.FLAGS.traceback:
            raise
        _leave(sentence(error))
    told("\n".join(map(str, drawn)))


def _drawn(workdirs: list[pathlib.Path]) -> list[pathlib.Path]:
    """The figures of one run, judged anew, or of several side by side."""
    for workdir in workdirs:
        if not (workdir / "summary.json").exists():
            raise Refused(f"{workdir} holds no finished run.")
    file = config_file.load(flags.FLAGS.config)
    if len(workdirs) > 1:
        if not flags.FLAGS.into:
            raise Refused("several runs are drawn into a folder of their own; pass --into=FOLDER.")
        return compare(workdirs, file, pathlib.Path(flags.FLAGS.into))
    run = json.loads((workdirs[0] / "config.json").read_text("utf-8"))
    config = ConfigDict(run["config"])
    judge(workdirs[0], file, config, "--quick" in run["command"])
    return draw(workdirs[0], file, config)


def _leave(told: str) -> NoReturn:
    sys.stderr.write(f"experiments.figures: {told}\n")
    sys.exit(CANNOT)


if __name__ == "__main__":
    flags.DEFINE_list(
        "workdir", None, "A folder that experiments.run wrote, or several.", required=True
    )
    flags.DEFINE_string("config", None, "The config file it was run with.", required=True)
    flags.DEFINE_string("into", "", "Where figures and page of several runs go.")
    flags.DEFINE_bool("traceback", False, "Show where an error came from.")
    app.run(_main, flags_parser=_parsed)
