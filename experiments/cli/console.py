"""Output to the terminal: progress, best points and claims."""

import contextlib
import dataclasses
import errno
import os
import pathlib
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import rich.progress
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from experiments.process.errors import UserError
from experiments.report import tables
from experiments.report.plots import style
from experiments.report.rows import Row
from experiments.report.summary import Criterion

# Without bars: log every 60 s, or every 10 % if 5 s have passed.
_SOON, _LATE = 5.0, 60.0
_MOST_ROWS = 25  # of a table of a study


class Bars:
    """One bar per label, with the time left."""

    def __init__(self, bars: rich.progress.Progress):
        self._bars, self._tasks = bars, {}

    def share(self, label: str, done: float, what: str = "") -> None:
        name = style(label)[0]
        if label not in self._tasks:
            self._tasks[label] = self._bars.add_task(name, total=1.0 if label else None)
        described = f"{name}: {what}" if label and what else what or name
        self._bars.update(self._tasks[label], completed=done, description=described)


class Lines:
    """One line now and then, for output that is no terminal."""

    def __init__(self, console: Console, clock=time.monotonic):
        self._console, self._clock = console, clock
        self._began = clock()
        self._last: dict[str, tuple[float, float]] = {}

    def share(self, label: str, done: float, what: str = "") -> None:
        now = self._clock()
        when, share = self._last.setdefault(label, (-_LATE if what else now, 0.0))
        due = now - when >= _SOON and int(10 * done) > int(10 * share)
        if (due or now - when >= _LATE or (what and label)) and done < 1:
            self._last[label] = now, done
            said = f"{style(label)[0]}: " if label else ""
            said += what or f"{done:.0%} done"
            printed(self._console, f"{said}, {now - self._began:.0f} s after the start")


@dataclasses.dataclass
class Progress:
    """What an experiment reports while it runs.

    Attributes:
      write: takes sentences for the user.
      display: shows how far the run is; ``None`` for nothing.
      profile: the folder for a profile of the second block, the first one without compilation.
      grow: takes a label, the part of its grid, the points of the grid and their new rows.
    """

    write: Callable[[str], None] = print
    display: Bars | Lines | None = None
    profile: pathlib.Path | None = None
    grow: Callable[[str, str, Sequence[Row], Sequence[Row]], None] = lambda *rows: None

    def say(self, sentence: str) -> None:
        """Report something that the user should know."""
        self.write(sentence)

    def share(self, label: str, done: float, what: str = "") -> None:
        """Report which share of a label's work is done, and what it is at where no round ends."""
        if self.display is not None:
            self.display.share(label, done, what)

    def around_block(self, number: int) -> contextlib.AbstractContextManager:
        """Return the context in which a block of rounds is run."""
        if self.profile is not None and number == 1:
            return jax.profiler.trace(os.fspath(self.profile))
        return contextlib.nullcontext()


@contextlib.contextmanager
def display_on(console: Console) -> Iterator[Bars | Lines]:
    """Show bars on a terminal, and lines elsewhere."""
    if not console.is_terminal:
        yield Lines(console)
        return
    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with rich.progress.Progress(*columns, console=console) as bars:
        yield Bars(bars)


def printed(console: Console, text: str | Table, width: int | None = None) -> None:
    """Print and flush; raise ``UserError`` if that fails, except where the reader has gone."""
    try:
        console.print(text, soft_wrap=True, width=width)
        console.file.flush()
    except BrokenPipeError:
        _mute()
    except OSError as error:
        _mute()
        reason = os.strerror(error.errno or errno.EIO)
        raise UserError(f"the standard output cannot be written: {reason}.") from error


def print_plain(text: str) -> None:
    """Print and flush a plain text, quietly if its reader has gone, as in ``| head``."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _mute()


def _mute() -> None:
    """Discard later output, so that the end of the process is quiet."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def results(
    console: Console, summary: dict[str, Any], workdir: pathlib.Path, shown: Sequence[str] = ()
) -> None:
    """Print best points, the entries of the summary that are ``shown``, claims, and the folder."""
    entries = summary.get("algorithms", {})
    if entries:
        criterion = Criterion(**next(iter(entries.values()))["criterion"])
        _print_whole(console, best_points(summary, criterion))
        if any(entry["diverged"] for entry in entries.values()):
            printed(console, "diverged: runs that grew without bound, of all points times seeds.")
    for name in shown:
        _print_folded(console, _summary_table(name, summary[name]))
    for table in claims_tables(summary.get("claims", [])):
        _print_folded(console, table)
    for warning in tables.edge_warnings(summary):
        printed(console, warning)
    left = [name for name in ("figures", "models") if any((workdir / name).glob("*"))]
    first, last = ", ".join(["rows", "summary", *left][:-1]), ["summary", *left][-1]
    printed(console, f"{first} and {last} are in {workdir}; open {workdir / 'index.html'}.")


def _print_whole(console: Console, table: Table) -> None:
    """Print a table without cutting values: as blocks where the terminal is too narrow."""
    width = _natural_width(table)
    if width <= console.width:
        printed(console, table)
    elif console.is_terminal:
        printed(console, "\n".join(_blocks(table, console.width)))
    else:
        wide = Console(file=console.file, highlight=False, quiet=console.quiet, width=width)
        printed(wide, table)


def _print_folded(console: Console, table: Table) -> None:
    """Print a table whose long cells are folded, on a terminal, to its width."""
    if console.is_terminal:
        printed(console, table, width=console.width)
    else:
        _print_whole(console, table)


def _natural_width(table: Table) -> int:
    return Console(width=10_000).measure(table).maximum


def _blocks(table: Table, width: int) -> Iterator[str]:
    """Yield each row as its name and below it the other columns, a few in a line."""
    yield from textwrap.wrap(str(table.title), width, break_long_words=False)
    headings = [str(column.header) for column in table.columns]
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        yield ""
        yield str(cells[0])
        pairs = zip(headings[1:], cells[1:], strict=True)
        yield from _filled([f"{name} {cell}" for name, cell in pairs if cell != "-"], width)
    yield ""


def _filled(items: Sequence[str], width: int) -> Iterator[str]:
    """Yield lines of items with commas, as many as fit; none is cut."""
    line = f"  {items[0]}"
    for item in items[1:]:
        if len(line) + len(", ,") + len(item) > width:
            yield f"{line},"
            line = f"  {item}"
        else:
            line += f", {item}"
    yield line


def best_points(summary: dict, criterion: Criterion) -> Table:
    """Return a row per algorithm; hyperparameters that all share are in the title."""
    entries = summary["algorithms"]
    fields = sorted({field for entry in entries.values() for field in entry["best"]})
    columns = {field: [entry["best"].get(field) for entry in entries.values()] for field in fields}
    varied = [field for field in fields if len(set(columns[field])) > 1 or len(entries) == 1]
    fixed = ", ".join(f"{field} {columns[field][0]:g}" for field in fields if field not in varied)
    title = f"best by {criterion.measure} over the last {criterion.last_rounds} rounds"
    table = _plain_table(f"{title}; {fixed}" if fixed else title)
    table.add_column("algorithm", no_wrap=True)
    for heading in (*varied, criterion.measure, "suboptimality", "diverged", "s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for name, entry in entries.items():
        table.add_row(
            style(name)[0],
            *(_short(entry["best"].get(field)) for field in varied),
            _short(entry["score"]),
            _short(entry["last"].get("suboptimality")),
            tables.diverged_runs(entry),
            f"{entry['seconds']:.1f}",
            entry["verdict"].split(":")[0],
        )
    return table


def claims_tables(claims: Sequence[dict]) -> list[Table]:
    """Return the claims of the sources and ours, each with the numbers that decide."""
    headings = (("what the sources say", True), ("what we expect", False))
    tables = [
        _claims_table(heading, [claim for claim in claims if claim["source"] is source])
        for heading, source in headings
    ]
    return [table for table in tables if table.row_count]


def _claims_table(heading: str, claims: Sequence[dict]) -> Table:
    table = _plain_table(heading)
    table.add_column("claim", overflow="fold")
    for heading in ("measured", "needed", "holds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for claim in claims:
        measured, needed = _distinct(claim["measured"], claim["needed"])
        holds = {True: "yes", False: "NO", None: claim.get("open")}[claim["holds"]]
        table.add_row(claim["claim"], measured, f"{claim['relation']} {needed}", holds)
    return table


def _summary_table(title: str, entry: dict[str, Any] | list[dict[str, Any]]) -> Table:
    """Return a table of facts, or of the first rows of a list."""
    is_list = isinstance(entry, list)
    rows = entry if is_list else [{"what": what, "value": value} for what, value in entry.items()]
    more = len(rows) - _MOST_ROWS
    table = _plain_table(f"{title}, and {more:,} more in summary.json" if more > 0 else title)
    table.show_header = is_list
    for heading in rows[0] if rows else ():
        table.add_column(heading, overflow="fold")
    for row in rows[:_MOST_ROWS]:
        cells = (_short(cell) if isinstance(cell, float) else str(cell) for cell in row.values())
        table.add_row(*cells)
    return table


def _plain_table(title: str) -> Table:
    return Table(title=title, box=None, padding=(0, 1), pad_edge=False)


def _distinct(measured: float | None, needed: float) -> tuple[str, str]:
    """Return both with four digits, or as many as distinguish them."""
    if measured is None or measured == needed:
        return _short(measured), _short(needed)
    digits = next(d for d in range(4, 18) if f"{measured:.{d}g}" != f"{needed:.{d}g}")
    return f"{measured:.{digits}g}", f"{needed:.{digits}g}"


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
