"""The HTML page of a run: verdicts, figures with captions, tables and surroundings in one file."""

import base64
import html
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
h1 { font-size: 1.4rem; line-height: 1.25; } h2 { font-size: 1.1rem; margin-top: 2rem; }
figure { margin: 1.5rem 0; } img { max-width: 100%; height: auto; }
figcaption { font-size: .9rem; color: #444; }
pre { background: #f4f4f4; padding: .6rem .8rem; overflow-x: auto; font-size: .85rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid #ddd; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 8rem; }
td.words { text-align: left; white-space: normal; min-width: 12rem; }
.no { color: #b00020; font-weight: 600; } .open { color: #666; }
.warning { border-left: 4px solid #E69F00; padding-left: .8rem; }
dt { font-weight: 600; margin-top: .4rem; } dd { margin-left: 0; overflow-wrap: anywhere; }
@media screen and (max-width: 40rem) { body { margin: .5rem auto; font-size: 15px; }
  img { max-width: none; width: 36rem; } th, td { padding: .25rem .4rem; }
  th:first-child, td:first-child { min-width: 5rem; } }
@media print { body { max-width: none; margin: 0; font-size: 10pt; }
  figure, table { break-inside: avoid; } .scroll { overflow: visible; }
  td { white-space: normal; } pre { white-space: pre-wrap; overflow-wrap: anywhere; } }
"""

_LONG = 20  # characters beyond which a cell's text is wrapped


class Shown(NamedTuple):
    """A figure on the page.

    Attributes:
      file: the PNG, which is embedded.
      caption: what it shows.
      claims: lines of a table of what it is evidence for.
    """

    file: pathlib.Path
    caption: str
    claims: Sequence[dict[str, Any]] = ()


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
    """Writes a page that needs neither the network nor other files.

    Args:
      path: where the page goes.
      title: its heading.
      command: what to type for the same run.
      figures: what is shown, in order.
      tables: by heading, the lines of a table, each with the same keys.
      notes: paragraphs under the heading.
      warnings: sentences that whoever reads the numbers has to know first.
      facts: by name, when, where and with what it was run; at the end.
    """
    parts = [
        f"<h1>{_escape(title)}</h1>",
        *(f"<p>{_escape(paragraph)}</p>" for paragraph in notes.split("\n\n") if paragraph),
        f"<pre>{_escape(command)}</pre>",
        *(f'<p class="warning">{_escape(warning)}</p>' for warning in warnings),
    ]
    for shown in figures:
        picture = base64.b64encode(shown.file.read_bytes()).decode()
        name = _escape(shown.file.stem.replace("_", " "))
        parts.append(
            f'<figure><div class="scroll"><img alt="{name}" '
            f'src="data:image/png;base64,{picture}"></div><figcaption>'
            f"{_escape(shown.caption)}</figcaption></figure>"
        )
        if shown.claims:
            parts.append(_table(shown.claims))
    for heading, lines in tables.items():
        if lines:
            parts.append(f"<h2>{_escape(heading)}</h2>{_table(lines)}")
    if facts:
        entries = [f"<dt>{_escape(k)}</dt><dd>{_escape(v)}</dd>" for k, v in facts.items()]
        parts.append(f"<h2>how it was run</h2><dl>{''.join(entries)}</dl>")
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
        return '<td class="open">-</td>'
    if isinstance(value, bool):
        return "<td>yes</td>" if value else '<td class="no">no</td>'
    if isinstance(value, int) and abs(value) >= 1000:
        return f"<td>{value:,}</td>"
    if isinstance(value, str) and len(value) > _LONG:
        return f'<td class="words">{_escape(value)}</td>'
    return f"<td>{value:.5g}</td>" if isinstance(value, float) else f"<td>{_escape(value)}</td>"


def _escape(text: Any) -> str:
    return html.escape(str(text))
