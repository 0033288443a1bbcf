"""Evaluate the claims of a finished run again, and draw its figures, as PNG and PDF, and its page.

fcojax figures NAME|FILE --workdir=DIR
"""

import argparse
import base64
import json
import os
import pathlib
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jinja2
from ml_collections import ConfigDict

from experiments.cli.console import printed
from experiments.config import config_file
from experiments.config.config_file import ConfigFile
from experiments.process import invocation
from experiments.process.invocation import CANNOT, UserError, sentence, suggest
from experiments.report import axes, plots, tables
from experiments.report import rows as tidy
from experiments.report.rows import Row, Summary, replacing
from experiments.report.summary import Criterion, at_best
from experiments.storage.workdir import read_json, refuse_links
from experiments.study import Study, Sweep
from fcojax import citation

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent / "templates"), autoescape=True
)
_CAPTIONS = {
    "curves": "Each method at the best point of its grid: mean and range over the seeds. A cross "
    "marks where a seed diverged. On a logarithmic axis what is zero to rounding lies at the foot.",
    "rates": "The score over client_lr and server_lr, the best over all other hyperparameters, of "
    "the algorithms with several values of both. The cross is the point reported; hatched points "
    "diverged, grey ones were stopped early.",
}
_CUTS = (
    "Density counts entries beyond the first of the problem's cuts; the smaller ones stay in "
    "models/*.npz."
)
_FACTS = ("date", "versions", "devices", "machine", "xla_flags", "git_commit")
_SHOWN_ELSEWHERE = ("algorithms", "claims", "optimum")
_LINKED = ("rows.jsonl", "summary.json", "config.json", "figures/*.pdf", "models/*.npz")

Table = tuple[str, Sequence[Mapping[str, Any]], str]  # heading, rows, and a sentence below


def conclude(
    workdir: pathlib.Path,
    file: ConfigFile,
    config: ConfigDict,
    rows: list[Row],
    summary: Summary,
    quick: bool,
    measures: Sequence[str] = (),
    over: str = "round",
    **look: Any,
) -> list[pathlib.Path]:
    """Write claims into the summary, all figures and the page; return the paths of the figures.

    The curves are those of ``measures``, by default those of the experiment, over the column
    ``over``; ``look`` changes the figures, as in ``axes.house``.
    """
    experiment = file.experiment
    summary["claims"] = [c.as_json(quick) for c in experiment.claims(config, rows, summary)]
    tidy.write_json(workdir / "summary.json", summary)
    known = tidy.plain(summary)
    directory = workdir / "figures"
    directory.mkdir(exist_ok=True)
    drawn = []
    with axes.house(**look):
        if isinstance(experiment, Sweep):
            drawn += _draw_sweep(directory, experiment, rows, known, measures, over)
        elif measures or over != "round":
            raise UserError("--panels and --over are for sweeps; a study draws its own figures.")
        drawn += experiment.figures(config, rows, known, directory)
        drawn = [figure for figure in drawn if figure.exists()]
        _page(workdir, file, known, drawn)
    return drawn


def _draw_sweep(
    directory: pathlib.Path,
    sweep: Sweep,
    rows: list[Row],
    summary: Summary,
    measures: Sequence[str],
    over: str,
) -> list[pathlib.Path]:
    """Draw the curves at the best points, and the score over the two rates."""
    known = {panel.measure: panel for panel in sweep.panels}
    columns = {name for name, value in rows[-1].items() if isinstance(value, int | float)}
    for measure in measures:
        if measure not in columns:
            raise UserError(f"there is no measure {measure}; {suggest(measure, columns)}")
    if over not in columns:
        raise UserError("this run has no hours; they need a clock, as --config.clock=constant:1,0.")
    panels = []
    for name in measures or known:
        panel = known.get(name, plots.Panel(name, plots.words(name), name == "suboptimality"))
        panels.append(panel._replace(over=over) if over != "round" else panel)
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
    shown = {name: at_best(rows, name, point) for name, point in best.items()}
    lines = panels, shown, sweep.title, swept, optimum
    criterion = Criterion(**next(iter(entries.values()))["criterion"])
    curves = plots.over_rounds(directory / "curves.png", *lines)
    rates = plots.over_rates(directory / "rates.png", by_name, best, criterion)
    return [curves, rates] if rates else [curves]


def write_page(
    path: os.PathLike,
    title: str,
    figures: Mapping[pathlib.Path, str] | None = None,
    shown: Sequence[Table] = (),
    **texts: Any,
) -> None:
    """Write a page of one file that needs no network; all text is escaped.

    Figures are PNG files with their captions; a table without rows is omitted; the other texts are
    those of ``templates/page.html``, by name.
    """
    drawn = [
        (file.stem.replace("_", " "), base64.b64encode(file.read_bytes()).decode(), caption)
        for file, caption in (figures or {}).items()
    ]
    found = [
        (heading, names, [[line.get(name) for name in names] for line in lines], below)
        for heading, lines, below in shown
        if (names := list(dict.fromkeys(name for line in lines for name in line)))
    ]
    page = _TEMPLATES.get_template("page.html")
    text = page.render(texts, title=title, figures=drawn, tables=found)
    with replacing(path) as file:
        file.write(text.encode() + b"\n")


def _page(
    workdir: pathlib.Path, file: ConfigFile, summary: Summary, drawn: Sequence[pathlib.Path]
) -> None:
    """Write the page of a finished run, with these figures."""
    run = json.loads((workdir / "config.json").read_text("utf-8"))
    experiment, data = file.experiment, summary.get("data", "")
    captions = _CAPTIONS | dict(experiment.captions)
    linked = [path for pattern in _LINKED for path in sorted(workdir.glob(pattern))]
    words, privacy = [shlex.quote(word) for word in run["command"]], summary.get("privacy", {})
    write_page(
        workdir / "index.html",
        experiment.title,
        {figure: captions.get(figure.stem, "") for figure in drawn},
        [*_tables(experiment, summary)],
        command="".join(f" \\\n    {w}" if w.startswith("--") else f" {w}" for w in words).strip(),
        verdict=tables.headline(summary),
        about=" ".join(filter(None, (file.summary, data if isinstance(data, str) else ""))),
        # A budget that ended the runs, and a large delta.
        warnings=[privacy[name] for name in ("budget", "large delta") if name in privacy],
        citation=summary.get("citation") or citation(),
        files=[path.relative_to(workdir).as_posix() for path in linked],
        notes=experiment.notes,
        facts={"seconds": f"{tables.seconds_of(summary):.1f}", "seeds": run["config"].get("seeds")}
        | {name: run.get(name) for name in _FACTS},
    )


def _tables(experiment: Any, summary: Summary) -> Iterator[Table]:
    panels = experiment.panels if isinstance(experiment, Sweep) else ()
    shown = {panel.measure for panel in panels} | {*experiment.printed, "bytes_up", "bytes_down"}
    points = tables.best_points(summary, shown)
    remarks = tables.remarks_on_points(summary)
    if any("density" in point for point in points):
        remarks.append(_CUTS)
    yield "Best points", points, " ".join(remarks)
    yield "What the source says", tables.claims(summary, source=True), ""
    yield "What we expect", tables.claims(summary, source=False), ""
    for name, entry in summary.items():
        if name not in _SHOWN_ELSEWHERE and isinstance(entry, dict):
            is_table = any(isinstance(value, dict | list) for value in entry.values())
            facts = [{"what": what, "value": value} for what, value in entry.items()]
            yield name.capitalize(), [] if is_table else facts, ""
        elif name not in _SHOWN_ELSEWHERE and isinstance(entry, list):
            yield name.capitalize(), entry, ""


def _again(given: argparse.Namespace, look: Mapping[str, Any]) -> list[pathlib.Path]:
    """Evaluate the claims of a run again, draw it, and return the paths."""
    workdir = given.workdir
    refuse_links(workdir)
    file = config_file.load(given.config)
    run, summary = (read_json(workdir / f"{name}.json") for name in ("config", "summary"))
    if summary == {}:
        raise UserError(f"{workdir} holds no finished run.")
    if summary is None or not run:
        which = "summary" if run else "config"
        raise UserError(f"{workdir} has a damaged {which}.json; run its command again.")
    rows = tidy.load(workdir / "rows.jsonl")
    known = {row["algorithm"] for row in rows if "algorithm" in row}
    for label in look["labels"]:
        if label not in known:
            raise UserError(f"there is no method {label}; {suggest(label, known)}")
    config = ConfigDict(run["config"])
    if isinstance(file.experiment, Study):
        summary |= file.experiment.summarise(config, rows)
    quick = "--quick" in run["command"]
    return conclude(workdir, file, config, rows, summary, quick, given.panels, given.over, **look)


def _labels(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(label and name for label, _, name in pairs):
        raise argparse.ArgumentTypeError("write it as in fed_avg=Ours,fed_mid=Old")
    return {label: name for label, _, name in pairs}


def _size(text: str) -> tuple[float, float]:
    sides = re.fullmatch(r"(\d*\.?\d+)x(\d*\.?\d+)", text)
    if sides is None or not all(0 < float(side) <= 50 for side in sides.groups()):
        raise argparse.ArgumentTypeError("pass width and height in inches, as in 7x3")
    return float(sides[1]), float(sides[2])


def main() -> int:
    """Draw the run, and print the paths of the figures."""
    parser = argparse.ArgumentParser(
        "fcojax figures", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--workdir", type=pathlib.Path, required=True, help="the workdir of a run")
    add("--config", required=True, help="the config file of the run, in place of NAME|FILE")
    measures: dict[str, Any] = {"type": lambda names: names.split(","), "default": []}
    add("--panels", **measures, help="the measures of the curves: f1,suboptimality")
    across: dict[str, Any] = {"choices": list(plots.ACROSS), "default": "round"}
    add("--over", **across, help="the horizontal axis of the curves")
    add("--labels", type=_labels, default={}, help="names of methods: fed_avg=Ours,fed_mid=Old")
    add("--size", type=_size, help="width and height of each figure in inches: 7x3")
    add("--title", help="the heading of each figure; --title= leaves it out")
    add("--font", help="the family of the font: serif")
    add("--font_size", type=float, help="points of the labels of axes; the rest in proportion")
    add("--traceback", action="store_true", help="show the traceback of an error")
    given = parser.parse_args()
    look = {name: getattr(given, name) for name in ("labels", "size", "title", "font", "font_size")}
    try:
        drawn = _again(given, look)
        pdfs = [figure.with_suffix(".pdf") for figure in drawn]
        printed("\n".join(map(str, drawn + [pdf for pdf in pdfs if pdf.exists()])))
    except Exception as error:
        if given.traceback:
            raise
        invocation.speak("figures", sentence(error))
        return CANNOT
    return 0


if __name__ == "__main__":
    sys.exit(main())
