"""Compare finished runs: print their best points in one table, and write it as csv or as a page.

fcojax results DIR... [--csv=FILE.csv] [--page=FILE.html]

Beside the best points are the keys of the configs that differ.
"""

import argparse
import csv
import json
import pathlib
import shlex
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

from experiments.cli.console import aligned, printed
from experiments.process.errors import CANNOT, UserError, sentence
from experiments.process.invocation import speak
from experiments.report import charts, page, plots, tables
from experiments.report import rows as tidy
from experiments.report.names import words
from experiments.report.rows import Row
from experiments.report.summary import at_best


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
    keys = dict.fromkeys(key for run in runs for key in run.config)
    differ = [key for key in keys if len({repr(run.config.get(key)) for run in runs}) > 1]
    return [
        {"run": str(run.folder)} | {key: run.config.get(key) for key in differ} | point
        for run in runs
        for point in tables.best_points(run.summary)
    ]


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
    parser.add_argument("--csv", type=pathlib.Path, help="write the table to this file")
    parser.add_argument("--page", type=pathlib.Path, help="write a page with table and curves")
    given = parser.parse_args()
    try:
        runs = [read(folder) for folder in given.folders]
        rows = compared(runs)
        if given.csv:
            with open(given.csv, "w", newline="", encoding="utf-8") as file:
                columns = dict.fromkeys(column for row in rows for column in row)
                writer = csv.DictWriter(file, list(columns))
                writer.writeheader()
                writer.writerows(rows)
        if given.page:
            write_page(given.page, runs, rows)
        printed(aligned(f"{len(runs)} runs", rows))
    except (OSError, UserError) as error:
        speak("results", sentence(error))
        return CANNOT
    return 0


if __name__ == "__main__":
    sys.exit(main())
