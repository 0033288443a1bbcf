"""The HTML page of a run: the command, figures, tables and claims in one file."""

import base64
import html
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
img { max-width: 100%; height: auto; }
pre { background: #f4f4f4; padding: .6rem .8rem; overflow-x: auto; white-space: pre-wrap; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid #ddd; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; }
.no { color: #b00020; font-weight: 600; }
"""


def write(
    path: os.PathLike,
    title: str,
    command: str,
    figures: Sequence[pathlib.Path],
    tables: Mapping[str, Sequence[dict[str, Any]]],
    notes: str = "",
) -> None:
    """Writes a page that needs neither the network nor other files.

    Args:
      path: where the page goes.
      title: its heading.
      command: what to type for the same run.
      figures: PNG files, which are embedded.
      tables: by heading, the lines of a table, each with the same keys.
      notes: a paragraph under the heading.
    """
    parts = [
        f"<h1>{_escape(title)}</h1>",
        *(f"<p>{_escape(paragraph)}</p>" for paragraph in notes.split("\n\n") if paragraph),
        f"<pre>{_escape(command)}</pre>",
    ]
    for figure in figures:
        picture = base64.b64encode(figure.read_bytes()).decode()
        name = _escape(figure.stem.replace("_", " "))
        parts.append(f'<h2>{name}</h2><img alt="{name}" src="data:image/png;base64,{picture}">')
    for heading, lines in tables.items():
        if lines:
            parts.append(f"<h2>{_escape(heading)}</h2>{_table(lines)}")
    body = "\n".join(parts)
    content = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_escape(title)}</title><style>{_STYLE}</style></head>\n<body>{body}</body></html>"
    )
    path = pathlib.Path(path)
    beside = path.with_suffix(".partial")
    beside.write_text(content + "\n", "utf-8")
    beside.replace(path)


def _table(lines: Sequence[dict[str, Any]]) -> str:
    headings = list(dict.fromkeys(key for line in lines for key in line))
    head = "".join(f"<th>{_escape(heading)}</th>" for heading in headings)
    rows = [
        "<tr>" + "".join(_cell(line.get(heading)) for heading in headings) + "</tr>"
        for line in lines
    ]
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _cell(value: Any) -> str:
    if value is None:
        return "<td>-</td>"
    if isinstance(value, bool):
        return "<td>yes</td>" if value else '<td class="no">no</td>'
    return f"<td>{value:.5g}</td>" if isinstance(value, float) else f"<td>{_escape(value)}</td>"


def _escape(text: Any) -> str:
    return html.escape(str(text))
