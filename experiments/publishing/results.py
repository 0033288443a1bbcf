"""Print the best points of finished runs in one table, for the terminal or for a paper.

    fcojax results DIR... [--format=latex|csv|markdown]

Beside the best points are the keys of the configs that differ. With --format measures are means
over the seeds with a 95 % interval (Student's t).
"""

import argparse
import csv
import io
import math
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from experiments.cli.console import aligned, printed
from experiments.process.invocation import CANNOT, UserError, sentence, speak
from experiments.report import rows as tidy
from experiments.report import tables
from experiments.report.claims import over_seeds
from experiments.report.plots import style, without_math, words
from experiments.report.summary import Criterion, best_scores
from experiments.storage.workdir import read_json
from experiments.study import flattened

FORMATS = ("latex", "csv", "markdown")

Run = tuple[pathlib.Path, dict[str, Any], dict[str, Any]]  # folder, config, summary


def read(folder: pathlib.Path) -> Run:
    """Return a run; raise ``UserError`` if the folder has no finished sweep."""
    summary, known = (read_json(folder / f"{name}.json") for name in ("summary", "config"))
    if not (summary and known and summary.get("finished") and summary.get("algorithms")):
        raise UserError(f"{folder} holds no finished sweep; start its command again.")
    return folder, dict(flattened(known["config"])), summary


def _differing(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return for each run the keys in which the configs differ."""
    keys = dict.fromkeys(key for _, config, _ in runs for key in config)
    differ = [key for key in keys if len({repr(config.get(key)) for _, config, _ in runs}) > 1]
    return [{key: config.get(key) for key in differ} for _, config, _ in runs]


def for_paper(runs: Sequence[Run], form: str) -> str:
    """Return a table in one of ``FORMATS``, one row for each algorithm of each run.

    The measures are the criterion, and the suboptimality, those on held-out rows and the density,
    if the run has them: means over the seeds and half their 95 % intervals (Student's t), which
    are columns of their own in CSV. With one seed there is no interval.
    """
    found = []
    for (folder, _, summary), own in zip(runs, _differing(runs), strict=True):
        rows = tidy.load(folder / "rows.jsonl")
        for name, entry in summary["algorithms"].items():
            criterion = Criterion(**entry["criterion"])
            row: dict[str, Any] = {"run": str(folder)} if len(runs) > 1 else {}
            row |= own | {"algorithm": style(name)[0]}
            row |= {words(field): f"{value:g}" for field, value in entry["best"].items()}
            for measure in (criterion.measure, "suboptimality", *tables.HELD_OUT, "density"):
                if measure in entry["last"] and words(measure) not in row:
                    is_last = measure != criterion.measure
                    one = Criterion(measure, "min", 1) if is_last else criterion
                    claim = over_seeds("", best_scores(rows, name, entry, one), 0.0)
                    low, high = claim.interval or (math.nan, math.nan)
                    row[words(measure)] = claim.measured, (high - low) / 2
            found.append(row)
    if form == "csv":
        found = [dict(_in_two_columns(row)) for row in found]
    names = list(dict.fromkeys(name for row in found for name in row))
    lines = [[row.get(name, "") for name in names] for row in found]
    if form == "latex":
        seeds = {entry["seeds"] for *_, summary in runs for entry in summary["algorithms"].values()}
        head, *body = (" & ".join(map(_latex, line)) + r" \\" for line in [names, *lines])
        sides = "".join("r" if isinstance(cell, tuple) else "l" for cell in lines[0])
        told = f"% Means and 95 % intervals (Student's t); seeds: {', '.join(map(str, seeds))}."
        above = [told, "% \\usepackage{booktabs}", rf"\begin{{tabular}}{{{sides}}}", r"\toprule"]
        table = [*above, head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
        return "\n".join(table)
    names = [without_math(name) for name in names]
    if form == "csv":
        csv.writer(text := io.StringIO(), lineterminator="\n").writerows([names, *lines])
        return text.getvalue().rstrip()
    return tables.markdown([dict(zip(names, line, strict=True)) for line in lines])


def _in_two_columns(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        mean, *half = value if isinstance(value, tuple) else (value,)
        yield name, mean
        yield from ((f"{name} ±", each) for each in half)


def _latex(value: Any) -> str:
    if isinstance(value, tuple):
        text = tables.cell(value)
        return f"${text}$".replace("±", r"\pm") if "±" in text else text
    return str(value) if "$" in str(value) else re.sub(r"([%&#_])", r"\\\1", str(value))


def main() -> int:
    """Print the table of the given runs."""
    parser = argparse.ArgumentParser(
        "fcojax results", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--format", choices=FORMATS, help="print the table in this format")
    given = parser.parse_args()
    try:
        runs = [read(folder) for folder in given.folders]
        rows = [
            {"run": str(folder)} | own | point
            for (folder, _, summary), own in zip(runs, _differing(runs), strict=True)
            for point in tables.best_points(summary)
        ]
        table = aligned(f"{len(runs)} runs", rows)
        printed(for_paper(runs, given.format) if given.format else table)
    except (OSError, UserError) as error:
        speak("results", sentence(error))
        return CANNOT
    return 0


if __name__ == "__main__":
    sys.exit(main())
