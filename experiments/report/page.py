"""The HTML page of a run: verdict, figures, tables, command and provenance in one file."""

import base64
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jinja2

from experiments.report.charts import Charts
from experiments.report.rows import replacing

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
)

_NUMBER = re.compile(r"-?[\d.]+|-$")  # how a cell of numbers begins, such as 0.1* and 84/147


class Shown(NamedTuple):
    """A figure on the page.

    Attributes:
      file: the PNG, which is embedded.
      caption: the text below it.
      charts: the same curves in SVG, with values on hovering, which replace the PNG.
    """

    file: pathlib.Path
    caption: str
    charts: Charts | None = None


class Table(NamedTuple):
    """A table on the page.

    Attributes:
      heading: the heading above it.
      lines: its rows; a table without rows is omitted.
      below: a sentence about it.
    """

    heading: str
    lines: Sequence[Mapping[str, Any]]
    below: str = ""


def write(
    path: os.PathLike,
    title: str,
    command: str,
    figures: Sequence[Shown],
    tables: Sequence[Table],
    *,
    verdict: str = "",
    about: str = "",
    warnings: Sequence[str] = (),
    citation: str = "",
    files: Sequence[str] = (),
    notes: str = "",
    facts: Mapping[str, str] | None = None,
) -> None:
    """Write a self-contained page that needs no network; all text is escaped.

    Args:
      path: the file to write.
      title: the heading of the page.
      command: the command that makes the same run.
      figures: the figures, in order.
      tables: the tables, in order.
      verdict: the results in a sentence or two.
      about: which experiment was run, and on which data.
      warnings: sentences to read before the numbers.
      citation: BibTeX entries for the algorithms and data.
      files: the files that the page links to, relative to its folder.
      notes: paragraphs on how to read the run, separated by blank lines.
      facts: date, machine and versions of the run, by name.
    """
    shown = [
        {
            "name": figure.file.stem.replace("_", " "),
            "png": base64.b64encode(figure.file.read_bytes()).decode(),
            "charts": figure.charts,
            "caption": figure.caption,
        }
        for figure in figures
    ]
    text = _TEMPLATES.get_template("page.html").render(
        title=title,
        verdict=verdict,
        about=about,
        warnings=warnings,
        figures=shown,
        tables=[_cells(table) for table in tables if table.lines],
        command=command,
        citation=citation,
        files=files,
        notes=notes,
        facts=facts or {},
    )
    with replacing(path) as file:
        file.write(text.encode() + b"\n")


def _cells(table: Table) -> dict[str, Any]:
    headings = list(dict.fromkeys(key for line in table.lines for key in line))
    rows = [[line.get(key) for key in headings] for line in table.lines]
    texts = [
        any(isinstance(cell, str) and not _NUMBER.match(cell) for cell in column)
        for column in zip(*rows, strict=True)
    ]
    found = {"heading": table.heading, "headings": headings, "rows": rows, "below": table.below}
    return found | {"texts": texts}
