"""Output to the terminal: progress, best points and claims."""

import contextlib
import errno
import os
import pathlib
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from experiments.endings import Refused
from experiments.report import lines
from experiments.report.summary import Criterion

# Where there are no bars, a line is told after so long, or after a tenth and a little while.
_OFTEN, _SELDOM = 5.0, 60.0


class Tells(Protocol):
    """Who is told how far a run is."""

    def share(self, label: str, done: float) -> None:
        """So much of a label's work is done, from 0 to 1."""

    def stage(self, label: str, what: str) -> None:
        """What a label is at."""


class Bars:
    """One bar per label, with the time left."""

    def __init__(self, progress: Progress):
        self._progress, self._tasks = progress, {}

    def share(self, label: str, done: float) -> None:
        self._progress.update(self._task(label), completed=done, description=label)

    def stage(self, label: str, what: str) -> None:
        self._progress.update(self._task(label), description=f"{label}: {what}" if label else what)

    def _task(self, label: str) -> Any:
        if label not in self._tasks:
            self._tasks[label] = self._progress.add_task(label, total=1.0 if label else None)
        return self._tasks[label]


class Lines:
    """One line now and then, for output that is no terminal."""

    def __init__(self, console: Console, clock=time.monotonic):
        self._console, self._clock = console, clock
        self._began = clock()
        self._told: dict[str, tuple[float, float]] = {}

    def share(self, label: str, done: float) -> None:
        now = self._clock()
        when, share = self._told.setdefault(label, (now, 0.0))
        soon = now - when >= _OFTEN and int(10 * done) > int(10 * share)
        if (soon or now - when >= _SELDOM) and done < 1:
            self._tell(label, f"{done:.0%} done", now, done)

    def stage(self, label: str, what: str) -> None:
        now = self._clock()
        when, share = self._told.get(label, (-_SELDOM, 0.0))
        if label or now - when >= _SELDOM:
            self._tell(label, what, now, share)

    def _tell(self, label: str, what: str, now: float, share: float) -> None:
        self._told[label] = (now, share)
        text = f"{label}: {what}" if label else what
        printed(self._console, f"{text}, {now - self._began:.0f} s after the start")


@contextlib.contextmanager
def progress_on(console: Console) -> Iterator[Tells]:
    """Bars on a terminal, and lines elsewhere."""
    if not console.is_terminal:
        yield Lines(console)
        return
    bars = Progress(
        TextColumn("{task.description:<22}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
    )
    with bars:
        yield Bars(bars)


def printed(console: Console, text: str | Table, width: int | None = None) -> None:
    """Prints and flushes; raises ``Refused`` if that cannot be written, unless nobody reads it."""
    try:
        console.print(text, soft_wrap=True, width=width)
        console.file.flush()
    except BrokenPipeError:
        _mute()
    except OSError as error:
        _mute()
        reason = os.strerror(error.errno or errno.EIO)
        raise Refused(f"the standard output cannot be written: {reason}.") from error


def told(text: str) -> None:
    """Prints and flushes a plain text, of which its reader may take as little as it likes."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _mute()


def _mute() -> None:
    """Sends what is still to be printed nowhere, so that the end of the process is quiet."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def results(console: Console, summary: dict[str, Any], workdir: pathlib.Path) -> None:
    """Best points, claims, and where everything is."""
    entries = summary.get("algorithms", {})
    if entries:
        criterion = Criterion(**next(iter(entries.values()))["criterion"])
        _print_whole(console, best_points(summary, criterion))
    if summary.get("claims"):
        for table in claims_tables(summary["claims"]):
            printed(console, table, width=console.width)
    for warning in lines.edge_warnings(summary):
        printed(console, warning)
    left = [name for name in ("figures", "models") if any((workdir / name).glob("*"))]
    first, last = ", ".join(["rows", "summary", *left][:-1]), ["summary", *left][-1]
    printed(console, f"{first} and {last} are in {workdir}; open {workdir / 'index.html'}.")


def _print_whole(console: Console, table: Table) -> None:
    """Prints a table without cutting values: as blocks where a terminal is too narrow for it."""
    width = _natural_width(table)
    if width <= console.width:
        printed(console, table)
    elif console.is_terminal:
        printed(console, "\n".join(_blocks(table, console.width)))
    else:
        wide = Console(file=console.file, highlight=False, quiet=console.quiet, width=width)
        printed(wide, table)


def _natural_width(table: Table) -> int:
    return Console(width=10_000).measure(table).maximum


def _blocks(table: Table, width: int) -> Iterator[str]:
    """The rows of a table as a name each, and below it what the columns say, a few in a line."""
    yield from textwrap.wrap(str(table.title), width, break_long_words=False)
    headings = [str(column.header) for column in table.columns]
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        yield ""
        yield str(cells[0])
        pairs = zip(headings[1:], cells[1:], strict=True)
        yield from _filled([f"{name} {cell}" for name, cell in pairs if cell != "-"], width)
    yield ""


def _filled(items: Sequence[str], width: int) -> Iterator[str]:
    """Items with commas, as many in a line as there is room for; none is cut."""
    line = f"  {items[0]}"
    for item in items[1:]:
        if len(line) + len(", ,") + len(item) > width:
            yield f"{line},"
            line = f"  {item}"
        else:
            line += f", {item}"
    yield line


def best_points(summary: dict, criterion: Criterion) -> Table:
    """One line per algorithm; hyperparameters that all share are in the title."""
    entries = summary["algorithms"]
    fields = sorted({field for entry in entries.values() for field in entry["best"]})
    columns = {field: [entry["best"].get(field) for entry in entries.values()] for field in fields}
    varied = [field for field in fields if len(set(columns[field])) > 1 or len(entries) == 1]
    fixed = ", ".join(f"{field} {columns[field][0]:g}" for field in fields if field not in varied)
    title = f"best by {criterion.measure} over the last {criterion.last_rounds} rounds"
    table = _plain_table(f"{title}; {fixed}" if fixed else title)
    table.add_column("algorithm", no_wrap=True)
    for heading in (*varied, criterion.measure, "gap", "failed", "s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for name, entry in entries.items():
        table.add_row(
            name,
            *(_short(entry["best"].get(field)) for field in varied),
            _short(entry["score"]),
            _short(entry["last"].get("suboptimality")),
            f"{len(entry['diverged'])}/{entry['points'] * entry['seeds']}",
            f"{entry['seconds']:.1f}",
            entry["verdict"].split(":")[0],
        )
    return table


def claims_tables(claims: Sequence[dict]) -> list[Table]:
    """What the sources say, and what we expect; whether it holds, and the numbers that decide."""
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
        measured, needed = _told_apart(claim["measured"], claim["needed"])
        holds = {True: "yes", False: "NO", None: "needs the full run"}[claim["holds"]]
        table.add_row(claim["claim"], measured, f"{claim['relation']} {needed}", holds)
    return table


def _plain_table(title: str) -> Table:
    return Table(title=title, box=None, padding=(0, 1), pad_edge=False)


def _told_apart(measured: float | None, needed: float) -> tuple[str, str]:
    """Both with four digits, or with as many as it takes to tell them apart."""
    if measured is None or measured == needed:
        return _short(measured), _short(needed)
    digits = next(d for d in range(4, 18) if f"{measured:.{d}g}" != f"{needed:.{d}g}")
    return f"{measured:.{digits}g}", f"{needed:.{digits}g}"


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
