"""Output to the terminal: progress, best points and the verdict."""

import contextlib
import errno
import os
import pathlib
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from experiments.process.errors import UserError
from experiments.report import tables
from experiments.report.plots import style
from experiments.report.summary import Criterion

# A line every 60 s, or every 10 % if 5 s have passed.
_SOON, _LATE = 5.0, 60.0
_MOST_ROWS = 25  # shown of a study's table


class Progress:
    """What an experiment reports while it runs: a line now and then.

    The end is estimated from the finished labels and the progress of this one. A label makes no
    progress while it compiles: its speed is measured over the rounds since then. The labels that
    follow are expected to take, for each run, as long as the slowest so far.

    Attributes:
      labels: the labels that are to come, with their numbers of runs.
    """

    def __init__(
        self,
        say: Callable[[str], None] = print,
        write: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Begin; ``say`` prints messages for the user, ``write`` lines on the progress."""
        self.say, self.write, self._clock = say, write, clock
        self.labels: dict[str, int] = {}
        self._runs, self._slowest = 1, 0.0  # of this label; in seconds a run
        self._label, self._began, self._first = "", clock(), (clock(), 0.0)
        self._last, self._told = (clock(), 0.0), False

    def share(self, label: str, done: float, what: str = "") -> None:
        """Report the share of a label's work that is done, and its activity if no round ended."""
        left, now = self.seconds_left(label, done), self._clock()
        if left and not what and done < 1:
            what = f"about {_duration(left)} left"
        when, share = self._last
        # Otherwise nothing would be printed while it compiles.
        first = label and what and not self._told
        due = now - when >= _SOON and int(10 * done) > int(10 * share)
        if first or (due or now - when >= _LATE) and (what or done < 1):
            self._line(label, done, what)

    def result(self, label: str, entry: Mapping[str, Any]) -> None:
        """Report the best point of a label."""
        score = f"{entry['criterion']['measure']} {tables.short(entry['score'])}"
        left = self.seconds_left(label, 1.0)
        told = f"best {score}, in {_duration(entry['seconds'])}"
        self._line(label, 1.0, told + (f"; about {_duration(left)} left" if left else ""))

    def seconds_left(self, label: str, done: float) -> float | None:
        """Return the seconds until all labels are done; ``None`` while they cannot be estimated."""
        now = self._clock()
        if label != self._label:
            self._label, self._began, self._first, self._last = label, now, (now, 0.0), (now, 0.0)
            self._runs = self.labels.pop(label, 1)
        if done and not self._first[1]:
            self._first = now, done
        when, share = self._first
        if not share < done:
            return None
        own = (now - when) / (done - share) * (1 - done)
        each = max(self._slowest, (now - self._began + own) / self._runs)
        self._slowest = each if done == 1 else self._slowest
        return own + each * sum(self.labels.values())

    def _line(self, label: str, done: float, what: str) -> None:
        self._last, self._told = (self._clock(), done), True
        told = ", ".join(filter(None, (f"{done:.0%}" if 0 < done < 1 else "", what)))
        self.write(f"{style(label)[0]}: {told}" if label else told)


def printed(text: str) -> None:
    """Print and flush; raise ``UserError`` if that fails, unless the reader closed the pipe."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _mute()
    except OSError as error:
        _mute()
        reason = os.strerror(error.errno or errno.EIO)
        raise UserError(f"the standard output cannot be written: {reason}.") from error


def _mute() -> None:
    """Discard later output, so that the end of the process is quiet."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def results(
    summary: dict[str, Any],
    workdir: pathlib.Path,
    shown: Sequence[str] = (),
    command: Sequence[str] = (),
) -> Iterator[str]:
    r"""Yield the best points with the measures in ``shown``, or those entries, and the verdict.

    Args:
      summary: the summary of the run.
      workdir: its folder.
      shown: measures of a sweep, or entries of a study's summary.
      command: the command of the run, from which the next one is made.

    Example:
      >>> [*results({"size": {"rows": 3}, "verdict": "It is small."}, pathlib.Path("w"), ["size"])]
      ['size\nrows  3', 'It is small.', 'Open w/index.html.']
    """
    entries = summary.get("algorithms", {})
    if entries:
        criterion = Criterion(**next(iter(entries.values()))["criterion"])
        title = f"best by {criterion.measure} over the last {criterion.last_rounds} rounds"
        points = tables.best_points(summary, ["suboptimality", *shown])
        seconds = [f"{entry['seconds']:.1f}" for entry in entries.values()]
        yield aligned(title, [p | {"s": s} for p, s in zip(points, seconds, strict=True)])
        yield from tables.remarks_on_points(summary)
    for name in () if entries else shown:
        entry = summary[name]
        more = len(entry) - _MOST_ROWS if isinstance(entry, list) else 0
        title = f"{name}, and {more:,} more in summary.json" if more > 0 else name
        if isinstance(entry, list):
            yield aligned(title, entry[:_MOST_ROWS])
        else:
            facts = [{"what": what, "value": value} for what, value in entry.items()]
            yield aligned(title, facts, headings=False)
    further = _further(summary, workdir, command)
    told = tables.headline(summary, brief="--quick" in command)
    yield from filter(None, (told, further, f"Open {workdir / 'index.html'}."))


def _further(summary: dict[str, Any], workdir: pathlib.Path, command: Sequence[str]) -> str:
    """Return the next command: the full run, a wider grid, or the table for a paper."""
    entries = summary.get("algorithms", {})
    if "--quick" in command:
        told, added, ending = "The full run", [], "full"
    elif command and any(entry.get("edges") for entry in entries.values()):
        told, added, ending = "Beyond the grid", ["--config.extend=True"], "wider"
    else:
        table = f"fcojax results {shlex.quote(str(workdir))} --format=latex"
        return f"A table for a paper: {table}" if entries and command else ""
    words = iter(command)
    kept = []
    for word in words:
        if word == "--workdir":
            next(words)
        elif word != "--quick" and not word.startswith("--workdir="):
            kept.append(word)
    return f"{told}: {shlex.join([*kept, *added, f'--workdir={workdir}_{ending}'])}"


def aligned(title: str, rows: Sequence[Mapping[str, Any]], headings: bool = True) -> str:
    """Return rows as a table in plain text, below its title."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [
        [tables.short(cell) if isinstance(cell, float | None) else str(cell) for cell in line]
        for line in ([row.get(name) for name in names] for row in rows)
    ]
    lines = [names, *cells] if headings else cells
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return "\n".join([title, *padded])


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
