"""The HTML page of a run: verdicts, figures with captions, tables and provenance in one file."""

import base64
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jinja2

from experiments.report.charts import Charts

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
)


class Shown(NamedTuple):
    """A figure on the page.

    Attributes:
      file: the PNG, which is embedded.
      caption: the text below it.
      claims: the rows of a table of claims that the figure is evidence for.
      charts: the same curves to hover over, shown in place of the PNG.
    """

    file: pathlib.Path
    caption: str
    claims: Sequence[dict[str, Any]] = ()
    charts: Charts | None = None


def write(
    path: os.PathLike,
    title: str,
    command: str,
    figures: Sequence[Shown],
    tables: Mapping[str, Sequence[dict[str, Any]]],
    *,
    notes: str = "",
    warnings: Sequence[str] = (),
    facts: Mapping[str, str] | None = None,
) -> None:
    """Write a page that needs neither the network nor other files; all text is escaped.

    Args:
      path: the file to write.
      title: the heading of the page.
      command: the command that makes the same run.
      figures: the figures, in order.
      tables: by heading, the rows of each table; empty tables are left out.
      notes: paragraphs below the heading, separated by blank lines.
      warnings: sentences to read before the numbers.
      facts: by name, when, where and with which versions the run was made; shown at the end.
    """
    shown = [
        {
            "name": figure.file.stem.replace("_", " "),
            "png": base64.b64encode(figure.file.read_bytes()).decode(),
            "charts": figure.charts,
            "caption": figure.caption,
            "claims": _table(figure.claims) if figure.claims else None,
        }
        for figure in figures
    ]
    text = _TEMPLATES.get_template("page.html").render(
        title=title,
        command=command,
        notes=notes,
        warnings=warnings,
        figures=shown,
        facts=facts,
        tables={heading: _table(lines) for heading, lines in tables.items() if lines},
    )
    path = pathlib.Path(path)
    beside = path.with_suffix(".partial")
    beside.write_text(text + "\n", "utf-8")
    beside.replace(path)


def _table(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    headings = list(dict.fromkeys(key for line in lines for key in line))
    return {"headings": headings, "rows": [[line.get(key) for key in headings] for line in lines]}
