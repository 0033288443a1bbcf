"""Output to the terminal: progress, best points and the verdict."""

import contextlib
import dataclasses
import errno
import os
import pathlib
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import rich.progress
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.table import Table

from experiments.process.errors import UserError
from experiments.report import tables
from experiments.report.plots import style
from experiments.report.summary import Criterion

# Without bars: a line every 60 s, or every 10 % if 5 s have passed.
_SOON, _LATE = 5.0, 60.0
_MOST_ROWS = 25  # of a table of a study


class Bars:
    """One bar per label, with what is known of it behind."""

    def __init__(self, bars: rich.progress.Progress):
        self._bars, self._tasks = bars, {}

    def share(self, label: str, done: float, what: str = "") -> None:
        if label not in self._tasks:
            name = style(label)[0]
            self._tasks[label] = self._bars.add_task(name, total=1.0 if label else None, what="")
        self._bars.update(self._tasks[label], completed=done, what=what)

    line = share


class Lines:
    """One line now and then, for output that is no terminal."""

    def __init__(self, console: Console, clock=time.monotonic):
        self._console, self._clock = console, clock
        self._last: dict[str, tuple[float, float]] = {}
        self._told = False

    def share(self, label: str, done: float, what: str = "") -> None:
        now = self._clock()
        first = label and what and not self._told  # else nothing is said while it compiles
        when, share = self._last.setdefault(label, (now, 0.0))
        due = now - when >= _SOON and int(10 * done) > int(10 * share)
        if first or due or now - when >= _LATE:
            self.line(label, done, what)

    def line(self, label: str, done: float, what: str) -> None:
        self._last[label], self._told = (self._clock(), done), True
        told = ", ".join(filter(None, (f"{done:.0%}" if 0 < done < 1 else "", what)))
        printed(self._console, f"{style(label)[0]}: {told}" if label else told)


class Ends:
    """Estimates when all labels will be done, from those before and the share of the present one.

    A label begins with compilation, in which its share stands still: its speed is that of the
    rounds since, and its own time of compilation is expected of the labels that follow.
    """

    def __init__(self, labels: Sequence[str], clock=time.monotonic):
        self._left, self._clock = [*labels], clock
        self._label, self._began, self._first = "", clock(), (clock(), 0.0)

    def seconds(self, label: str, done: float) -> float | None:
        """Return the seconds that are left, or ``None`` while nobody can know."""
        now = self._clock()
        if label != self._label:
            self._label, self._began, self._first = label, now, (now, 0.0)
            self._left = [name for name in self._left if name != label]
        if done and not self._first[1]:
            self._first = now, done
        when, share = self._first
        if not share < done:
            return None
        own = (now - when) / (done - share) * (1 - done)
        return own + (now - self._began + own) * len(self._left)


@dataclasses.dataclass
class Progress:
    """What an experiment reports while it runs.

    Attributes:
      write: takes sentences for the user.
      display: shows how far the run is; ``None`` for nothing.
      ends: estimates the end of the run.
    """

    write: Callable[[str], None] = print
    display: Bars | Lines | None = None
    ends: Ends = dataclasses.field(default_factory=lambda: Ends(()))

    def say(self, sentence: str) -> None:
        """Report something that the user should know."""
        self.write(sentence)

    def share(self, label: str, done: float, what: str = "") -> None:
        """Report which share of a label's work is done, and what it is at where no round ends."""
        left = self.ends.seconds(label, done)
        if left and not what and done < 1:
            what = f"about {_duration(left)} left"
        if self.display is not None:
            self.display.share(label, done, what)

    def result(self, label: str, entry: Mapping[str, Any]) -> None:
        """Report the best point of a label."""
        score = f"{entry['criterion']['measure']} {tables.short(entry['score'])}"
        left = self.ends.seconds(label, 1.0)
        told = f"best {score}, in {_duration(entry['seconds'])}"
        told += f"; about {_duration(left)} left" if left else ""
        if self.display is not None:
            self.display.line(label, 1.0, told)


@contextlib.contextmanager
def display_on(console: Console) -> Iterator[Bars | Lines]:
    """Show bars on a terminal, and lines elsewhere."""
    if not console.is_terminal:
        yield Lines(console)
        return
    columns = (
        TextColumn("{task.description:<15}"),
        BarColumn(20),
        TaskProgressColumn(),
        TextColumn("{task.fields[what]}"),
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
    """Print best points, the entries of the summary that are ``shown``, the verdict, the page."""
    entries = summary.get("algorithms", {})
    if entries:
        criterion = Criterion(**next(iter(entries.values()))["criterion"])
        _print_whole(console, best_points(summary, criterion))
        if any(entry.get("edges") for entry in entries.values()):
            printed(console, tables.EDGE)
    for name in shown:
        _print_folded(console, _summary_table(name, summary[name]))
    for sentence in filter(None, (tables.headline(summary), f"Open {workdir / 'index.html'}.")):
        printed(console, sentence)


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
    """Return a row per algorithm; the title has what all share, away from a grid's edge."""
    entries = summary["algorithms"]
    fields = sorted({field for entry in entries.values() for field in entry["best"]})
    columns = {field: [entry["best"].get(field) for entry in entries.values()] for field in fields}
    starred = {field for entry in entries.values() for field in entry.get("edges", {})}
    varied = [
        field
        for field in fields
        if len(set(columns[field])) > 1 or len(entries) == 1 or field in starred
    ]
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
            *(_starred(entry, field) for field in varied),
            tables.short(entry["score"]),
            tables.short(entry["last"].get("suboptimality")),
            tables.diverged_runs(entry),
            f"{entry['seconds']:.1f}",
            entry["verdict"].split(":")[0],
        )
    return table


def _starred(entry: Mapping[str, Any], field: str) -> str:
    star = "*" if field in entry.get("edges", {}) else ""
    return tables.short(entry["best"].get(field)) + star


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
        cells = (
            tables.short(cell) if isinstance(cell, float) else str(cell) for cell in row.values()
        )
        table.add_row(*cells)
    return table


def _plain_table(title: str) -> Table:
    return Table(title=title, box=None, padding=(0, 1), pad_edge=False)


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
