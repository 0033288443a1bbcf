"""Compare finished runs: print their best points in one table, for a paper too, or as a page.

fcojax results DIR... [--format=latex|csv|markdown] [--page=FILE.html]

Beside the best points are the keys of the configs that differ. With ``--format`` measures are means
over the seeds with a 95 % interval (Student's t).
"""

import argparse
import csv
import io
import json
import math
import pathlib
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from experiments.cli.console import aligned, printed
from experiments.process.errors import CANNOT, UserError, sentence
from experiments.process.invocation import speak
from experiments.report import charts, page, plots, tables
from experiments.report import rows as tidy
from experiments.report.claims import over_seeds
from experiments.report.names import without_math, words
from experiments.report.rows import Row
from experiments.report.summary import Criterion, at_best, best_scores


class Run(NamedTuple):
    """A finished run: its folder, its config by flat keys, and its summary."""

    folder: pathlib.Path
    config: dict[str, Any]
    summary: dict[str, Any]


def read(folder: pathlib.Path) -> Run:
    """Return a run; raise ``UserError`` if the folder has no finished sweep."""
    try:
        summary = json.loads((folder / "summary.json").read_text("utf-8"))
        config = json.loads((folder / "config.json").read_text("utf-8"))["config"]
    except (OSError, ValueError, KeyError, RecursionError):
        summary, config = {}, {}
    if not (summary.get("finished") and summary.get("algorithms")):
        raise UserError(f"{folder} holds no finished sweep; start its command again.")
    return Run(folder, dict(_flat(config)), summary)


def compared(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return one row for each algorithm of each run: keys that differ, best point, score."""
    return [
        {"run": str(run.folder)} | own | point
        for run, own in zip(runs, _differing(runs), strict=True)
        for point in tables.best_points(run.summary)
    ]


def _differing(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return for each run the keys in which the configs differ."""
    keys = dict.fromkeys(key for run in runs for key in run.config)
    differ = [key for key in keys if len({repr(run.config.get(key)) for run in runs}) > 1]
    return [{key: run.config.get(key) for key in differ} for run in runs]


def with_intervals(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return one row for each algorithm of each run; a measure is a mean and half its interval.

    The measures are the criterion, and the suboptimality, those on held-out rows and the density,
    if the run has them. The interval is that of 95 % by Student's t; NaN with one seed.
    """
    found = []
    for run, own in zip(runs, _differing(runs), strict=True):
        rows = tidy.load(run.folder / "rows.jsonl")
        for name, entry in run.summary["algorithms"].items():
            criterion = Criterion(**entry["criterion"])
            row: dict[str, Any] = {"run": str(run.folder)} if len(runs) > 1 else {}
            row |= own | {"algorithm": plots.style(name)[0]}
            row |= {words(field): f"{value:g}" for field, value in entry["best"].items()}
            for measure in (criterion.measure, "suboptimality", *tables.HELD_OUT, "density"):
                if measure in entry["last"] and words(measure) not in row:
                    is_last = measure != criterion.measure
                    one = Criterion(measure, "min", 1) if is_last else criterion
                    claim = over_seeds("", best_scores(rows, name, entry, one), 0.0)
                    low, high = claim.interval or (math.nan, math.nan)
                    row[words(measure)] = claim.measured, (high - low) / 2
            found.append(row)
    return found


def formatted(rows: Sequence[dict[str, Any]], form: str) -> str:
    """Return such rows as a table in one of ``FORMATS``; in CSV half an interval is a column."""
    if form == "csv":
        rows = [dict(_in_two_columns(row)) for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[_cell(name, form) for name in names]]
    lines += [[_cell(row.get(name, ""), form) for name in names] for row in rows]
    if form == "csv":
        csv.writer(text := io.StringIO(), lineterminator="\n").writerows(lines)
        return text.getvalue().rstrip()
    if form == "markdown":
        lines.insert(1, ["---"] * len(names))
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)
    columns = "".join("r" if isinstance(rows[0].get(name), tuple) else "l" for name in names)
    head, *body = (" & ".join(line) + r" \\" for line in lines)
    note = "% Mean and 95 % interval over the seeds; \\usepackage{booktabs}."
    begin = rf"\begin{{tabular}}{{{columns}}}"
    parts = [note, begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
    return "\n".join(parts)


def _in_two_columns(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        mean, *half = value if isinstance(value, tuple) else (value,)
        yield name, mean
        yield from ((f"{name} ±", each) for each in half)


def _cell(value: Any, form: str) -> str:
    """Return a mean with the two digits that its interval leaves, or four; other values as text."""
    if isinstance(value, tuple):
        mean, half = value
        if not half > 5e-5 * abs(mean):
            return tables.short(mean)
        digits = max(0, 1 - math.floor(math.log10(half)))
        sign, ends = (r"\pm", "$") if form == "latex" else ("±", "")
        return f"{ends}{mean:.{digits}f} {sign} {half:.{digits}f}{ends}"
    if form == "latex":
        return str(value) if "$" in str(value) else re.sub(r"([%&#_])", r"\\\1", str(value))
    return without_math(str(value))


FORMATS = ("latex", "csv", "markdown")


def write_page(path: pathlib.Path, runs: Sequence[Run], rows: list[dict[str, Any]]) -> None:
    """Write the table as a page, with the curves of the best points over the rounds."""
    entries = [entry for run in runs for entry in run.summary["algorithms"].values()]
    measures = dict.fromkeys(entry["criterion"]["measure"] for entry in entries)
    best: dict[str, list[Row]] = {}
    for run in runs:
        found = tidy.load(run.folder / "rows.jsonl")
        for name, entry in run.summary["algorithms"].items():
            best[f"{run.folder} {name}"] = at_best(found, name, entry["best"])
    panels = [plots.Panel(measure, words(measure)) for measure in measures]
    fields: dict[str, tuple[str, ...]] = dict.fromkeys(best, ())
    with tempfile.TemporaryDirectory() as folder:
        drawn = plots.over_rounds(pathlib.Path(folder) / "curves.png", panels, best, "", fields)
        curves = charts.charts(panels, best, fields)
        shown = page.Shown(drawn, "Each method of each run at its best point.", curves)
        command = shlex.join(["fcojax", "results", *sys.argv[1:]])
        files = [str(run.folder.absolute() / "index.html") for run in runs]
        points = page.Table("Best points", rows)
        page.write(path, f"{len(runs)} runs", command, [shown], [points], files=files)


def _flat(config: dict[str, Any], section: str = ""):
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{section}{key}.")
        else:
            yield f"{section}{key}", value


def main() -> int:
    """Print the table, and write what the flags name."""
    parser = argparse.ArgumentParser("fcojax results", description=__doc__)
    parser.add_argument("folders", nargs="+", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--format", choices=FORMATS, help="print the table in this format")
    parser.add_argument("--page", type=pathlib.Path, help="write a page with table and curves")
    given = parser.parse_args()
    try:
        runs = [read(folder) for folder in given.folders]
        rows = compared(runs)
        if given.page:
            write_page(given.page, runs, rows)
        table = aligned(f"{len(runs)} runs", rows)
        printed(formatted(with_intervals(runs), given.format) if given.format else table)
    except (OSError, UserError) as error:
        speak("results", sentence(error))
        return CANNOT
    return 0


if __name__ == "__main__":
    sys.exit(main())
