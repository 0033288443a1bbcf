"""Evaluate the claims of a finished run again, and draw its figures and its page.

    fcojax figures NAME|FILE --workdir=DIR

In a clone: ``python -m experiments.publishing.figures --config=FILE.py --workdir=DIR``.
"""

import json
import pathlib
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from absl import app, flags
from ml_collections import ConfigDict

from experiments.cli.console import printed
from experiments.config import config_file
from experiments.config.config_file import ConfigFile
from experiments.process import invocation
from experiments.process.errors import CANNOT, UserError, sentence, suggest
from experiments.report import charts, heatmaps, page, plots, tables
from experiments.report import rows as tidy
from experiments.report.look import Look, house, looking
from experiments.report.names import words
from experiments.report.rows import Row, Summary
from experiments.report.summary import Criterion, at_best
from experiments.storage.workdir import read_json, refuse_links
from experiments.study import Study, Sweep
from fcojax import citation


def draw(
    workdir: pathlib.Path,
    file: ConfigFile,
    config: ConfigDict,
    rows: list[Row],
    measures: Sequence[str] = (),
    over: plots.Over = "round",
) -> list[pathlib.Path]:
    """Draw all figures of a finished run and its page; return the paths of the figures.

    Args:
      workdir: the folder of the run.
      file: its config file.
      config: its numbers.
      rows: the rows from which the figures are drawn.
      measures: the measures whose curves are drawn; by default those of the experiment.
      over: the horizontal axis of the curves.
    """
    experiment = file.experiment
    summary = json.loads((workdir / "summary.json").read_text("utf-8"))
    directory = workdir / "figures"
    directory.mkdir(exist_ok=True)
    drawn, curves = [], None
    with house():
        if isinstance(experiment, Sweep):
            drawn, curves = _draw_sweep(directory, experiment, rows, summary, measures, over)
        elif measures or over != "round":
            raise UserError("--panels and --over are for sweeps; a study draws its own figures.")
        drawn += experiment.figures(config, rows, summary, directory)
    drawn = [figure for figure in drawn if figure.exists()]
    run = json.loads((workdir / "config.json").read_text("utf-8"))
    captions = _CAPTIONS | dict(experiment.captions)
    shown = [page.Shown(figure, captions.get(figure.stem, "")) for figure in drawn]
    if shown:
        shown[0] = shown[0]._replace(charts=curves)
    data = summary.get("data", "")
    page.write(
        workdir / "index.html",
        experiment.title,
        _shell_lines(run["command"]),
        shown,
        _tables(experiment, summary),
        verdict=tables.headline(summary),
        about=" ".join(filter(None, (file.summary, data if isinstance(data, str) else ""))),
        warnings=tables.privacy_warnings(summary),
        citation=summary.get("citation") or citation(),
        files=_files(workdir),
        notes=experiment.notes,
        facts=_facts(run, summary),
    )
    return drawn


def _shell_lines(command: list[str]) -> str:
    """Return a command as one would type it, with one option per line."""
    words = [shlex.quote(word) for word in command]
    return "".join(f" \\\n    {w}" if w.startswith("--") else f" {w}" for w in words).strip()


_CAPTIONS = {
    "curves": "Each method at the best point of its grid: mean and range over the seeds. A cross "
    "marks where a seed diverged. On a logarithmic axis what is zero to rounding lies at the foot.",
    "rates": "The score over client_lr and server_lr, the best over all other hyperparameters, of "
    "the algorithms with several values of both. The cross is the point reported; hatched points "
    "diverged, grey ones were stopped early.",
    "clients": "The clients' training losses in the last round at the best points, mean over the "
    "seeds: all clients count equally, and the worst tenth is a mean.",
}


def _draw_sweep(
    directory: pathlib.Path,
    sweep: Sweep,
    rows: list[Row],
    summary: Summary,
    measures: Sequence[str] = (),
    over: plots.Over = "round",
) -> tuple[list[pathlib.Path], charts.Charts]:
    """Draw the curves at the best points, and the score over the two rates.

    Returns:
      The figures, the curves first, and the curves for the page.
    """
    known = {panel.measure: panel for panel in sweep.panels}
    columns = {name for name, value in rows[-1].items() if isinstance(value, int | float)}
    unknown = [measure for measure in measures if measure not in columns]
    if unknown:
        raise UserError(f"there is no measure {unknown[0]}; {suggest(unknown[0], columns)}")
    panels = [
        known.get(name, plots.Panel(name, words(name), name == "suboptimality"))
        for name in measures or known
    ]
    if over not in columns:
        raise UserError("this run has no hours; they need a clock, as --config.clock=constant:1,0.")
    if over != "round":
        panels = [panel._replace(over=over) for panel in panels]
    entries = summary["algorithms"]
    best = {name: entry["best"] for name, entry in entries.items()}
    by_name = {name: [row for row in rows if row["algorithm"] == name] for name in entries}
    # Hyperparameters with a single value in the whole grid would only crowd the legend.
    swept = {
        name: [field for field in point if len({row[field] for row in by_name[name]}) > 1]
        for name, point in best.items()
    }
    scales = {point.get("penalty_scale") for point in best.values()} - {None}
    optimum = summary.get("optimum", {}).get(f"{scales.pop():g}") if len(scales) == 1 else None
    at_bests = {name: at_best(rows, name, point) for name, point in best.items()}
    path = directory / "curves.png"
    drawn = [plots.over_rounds(path, panels, at_bests, sweep.title, swept, optimum)]
    criterion = Criterion(**next(iter(entries.values()))["criterion"])
    rates = heatmaps.maps(directory / "rates.png", by_name, best, criterion)
    drawn += [rates] if rates else []
    if spreads := tables.by_client(summary):
        drawn.append(plots.over_clients(directory / "clients.png", spreads, sweep.title))
    return drawn, charts.charts(panels, at_bests, swept, optimum)


def _tables(experiment: Sweep | Study, summary: Summary) -> list[page.Table]:
    panels = experiment.panels if isinstance(experiment, Sweep) else ()
    points = tables.best_points(
        summary, [*(panel.measure for panel in panels), *experiment.printed]
    )
    return [
        page.Table("Best points", points, " ".join(tables.remarks_on_points(summary))),
        page.Table(
            "What each client gets",
            tables.by_client(summary),
            "Training losses. The gain is the share of clients whose own model has a smaller one.",
        ),
        page.Table("What the source says", tables.claims(summary, source=True)),
        page.Table("What we expect", tables.claims(summary, source=False)),
        *(
            page.Table(name.capitalize(), value if isinstance(value, list) else _fact_rows(value))
            for name, value in summary.items()
            if name not in _SHOWN_ELSEWHERE and isinstance(value, list | dict)
        ),
    ]


_SHOWN_ELSEWHERE = ("algorithms", "claims", "optimum")


def _files(workdir: pathlib.Path) -> list[str]:
    """Return the files that the page links to: rows, summary, config, figures as PDF, models."""
    patterns = ("rows.jsonl", "summary.json", "config.json", "figures/*.pdf", "models/*.npz")
    found = [path for pattern in patterns for path in sorted(workdir.glob(pattern))]
    return [path.relative_to(workdir).as_posix() for path in found]


def _fact_rows(facts: dict) -> list[dict]:
    """Return a row for each fact, or no rows if a value is a table itself."""
    if any(isinstance(value, dict | list) for value in facts.values()):
        return []
    return [{"what": name, "value": value} for name, value in facts.items()]


def _facts(run: dict, summary: Summary) -> dict[str, str]:
    """Return date, time, versions and machine of a run, and the megabytes that it sent."""
    entries = summary.get("algorithms", {})
    sent = [
        f"{plots.style(name)[0]} {entry['last'].get('bytes_up', 0) / 1e6:.4g} up, "
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


_ADDED = ("claims", "finished")


def judge(
    workdir: pathlib.Path, file: ConfigFile, config: ConfigDict, rows: list[Row], quick: bool
) -> None:
    """Write the claims, and a study's tables, of the rows into the summary."""
    path = workdir / "summary.json"
    summary = json.loads(path.read_text("utf-8"))
    # A finished run adds these entries after its claims are evaluated.
    known = {name: value for name, value in summary.items() if name not in _ADDED}
    if isinstance(file.experiment, Study):
        known |= file.experiment.summarise(config, rows)
    claims = file.experiment.claims(config, rows, known)
    added = {name: summary[name] for name in _ADDED if name in summary}
    summary = known | added | {"claims": [claim.as_json(quick) for claim in claims]}
    tidy.write_json(path, summary)


def _require_labels(rows: list[Row], labels: Mapping[str, str]) -> None:
    """Raise ``UserError`` unless every label is that of a method in these rows."""
    known = {row["algorithm"] for row in rows if "algorithm" in row}
    for label in labels:
        if label not in known:
            what = suggest(label, known) if known else "this study names none in its rows."
            raise UserError(f"there is no method {label}; {what}")


def _parsed(argv: list[str]) -> list[str]:
    if {"--help", "-h", "-help", "--helpshort"} & set(argv):
        printed(_manual())
        sys.exit()
    try:
        return flags.FLAGS(argv)
    except flags.Error as error:
        missing = re.match(r"flag (--\w+)=None", str(error))
        _leave(f"{missing[1]} is missing; see --help." if missing else str(error).splitlines()[0])


def _manual() -> str:
    known = flags.FLAGS.flags_by_module_dict()[sys.argv[0]]
    return "\n".join(
        [
            "usage: fcojax figures NAME|FILE --workdir=DIR [flags]",
            "",
            (__doc__ or "").partition("\n")[0],
            "",
            *(f"  --{flag.name:10}{flag.help}" for flag in known if flag.name != "config"),
        ]
    )


def _main(argv: list[str]) -> None:
    try:
        if len(argv) > 1:
            raise UserError(f"unexpected argument {argv[1]}; the run is given as --workdir=DIR.")
        with looking(look := _look()):
            drawn = _drawn(flags.FLAGS.workdir, look.labels)
    except Exception as error:
        if flags.FLAGS.traceback:
            raise
        _leave(sentence(error))
    pdfs = [figure.with_suffix(".pdf") for figure in drawn]
    printed("\n".join(map(str, drawn + [pdf for pdf in pdfs if pdf.exists()])))


def _drawn(name: str, labels: Mapping[str, str]) -> list[pathlib.Path]:
    """Evaluate the claims of a run again, draw it, and return the paths."""
    if not name:
        raise UserError("--workdir is empty; pass the folder of a run.")
    workdir = pathlib.Path(name)
    if not (workdir / "summary.json").is_file():
        raise UserError(f"{workdir} holds no finished run.")
    refuse_links(workdir)
    file = config_file.load(flags.FLAGS.config)
    try:
        run = json.loads((workdir / "config.json").read_text("utf-8"))
        config = ConfigDict(run["config"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{workdir} has a damaged config.json; run its command again.") from None
    if read_json(workdir / "summary.json") is None:
        raise UserError(f"{workdir} has a damaged summary.json; run its command again.")
    rows = tidy.load(workdir / "rows.jsonl")
    _require_labels(rows, labels)
    judge(workdir, file, config, rows, "--quick" in run["command"])
    return draw(workdir, file, config, rows, flags.FLAGS.panels, flags.FLAGS.over)


def _look() -> Look:
    """Return the changes of the figures that the flags ask for."""
    given = flags.FLAGS
    pairs = [pair.partition("=") for pair in given.labels]
    if not all(label and name for label, _, name in pairs):
        raise UserError(
            "--labels cannot be read; write it as in --labels=fed_avg=Ours,fed_mid=Old."
        )
    size = re.fullmatch(r"([\d.]+)x([\d.]+)", given.size or "1x1")
    if size is None or not all(0 < _number(side) <= 50 for side in size.groups()):
        raise UserError(f"--size is {given.size}; pass width and height in inches, as in 7x3.")
    return Look(
        {label: name for label, _, name in pairs},
        (_number(size[1]), _number(size[2])) if given.size else None,
        given.font,
        given.title,
        given.font_size,
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _leave(message: str) -> NoReturn:
    invocation.speak("figures", message)
    sys.exit(CANNOT)


if __name__ == "__main__":
    flags.DEFINE_string("workdir", None, "The workdir of a run.", required=True)
    flags.DEFINE_string("config", None, "The config file of the run.", required=True)
    flags.DEFINE_list("labels", [], "Names of methods, as fed_avg=Ours,fed_mid=Theirs.")
    flags.DEFINE_list("panels", [], "The measures whose curves are drawn, as f1,suboptimality.")
    flags.DEFINE_enum(
        "over",
        "round",
        ["round", "bytes_up", "bytes_down", "hours"],
        "The horizontal axis of the curves.",
    )
    flags.DEFINE_string("size", None, "Width and height of each figure in inches, as 7x3.")
    flags.DEFINE_string("title", None, "The heading of each figure; --title= leaves it out.")
    flags.DEFINE_string("font", None, "The family of the font, as serif.")
    flags.DEFINE_float(
        "font_size", None, "Points of the labels of axes; the rest is in proportion.", 4.0, 40.0
    )
    flags.DEFINE_bool("traceback", False, "Show the traceback of an error.")
    app.run(_main, flags_parser=_parsed)
