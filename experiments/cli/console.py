"""Output to the terminal: progress, best points and the verdict."""

import contextlib
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from experiments.process.invocation import UserError
from experiments.report import tables
from experiments.report.plots import style
from experiments.report.summary import Criterion

# A line every 60 s, or every 10 % if 5 s have passed.
_SOON, _LATE = 5.0, 60.0
_MOST_ROWS = 25  # shown of a study's table


class Progress:
    """What an experiment reports while it runs: a line now and then.

    A label makes no progress while it compiles: its speed is measured over the rounds since then.
    """

    def __init__(
        self,
        say: Callable[[str], None] = print,
        write: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Begin; ``say`` prints messages for the user, ``write`` lines on the progress."""
        self.say, self.write, self._clock = say, write, clock
        self._label, self._first, self._last = None, (clock(), 0.0), (clock(), 0.0)

    def share(self, label: str, done: float, what: str = "") -> None:
        """Report the share of a label's work that is done, and its activity if no round ended."""
        now, is_new = self._clock(), label != self._label
        if is_new:
            self._label, self._last = label, (now, 0.0)
        if not self._first[1] or is_new:
            self._first = now, done
        (when, share), (since, before) = self._first, self._last
        if share < done < 1 and not what:
            what = f"about {_duration((now - when) / (done - share) * (1 - done))} left"
        due = now - since >= _SOON and int(10 * done) > int(10 * before)
        # The first line comes before it compiles.
        if (label and is_new) or (due or now - since >= _LATE) and (what or done < 1):
            self._last = now, done
            told = ", ".join(filter(None, (f"{done:.0%}" if 0 < done < 1 else "", what)))
            self.write(f"{style(label)[0]}: {told}" if label else told)

    def result(self, label: str, entry: Mapping[str, Any]) -> None:
        """Report the best point of a label."""
        score = f"{entry['criterion']['measure']} {tables.short(entry['score'])}"
        self.write(f"{style(label)[0]}: best {score}, in {_duration(entry['seconds'])}")


def printed(text: str) -> None:
    """Print and flush; raise ``UserError`` if that fails, unless the reader closed the pipe."""
    try:
        print(text, flush=True)
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):  # the end of the process is quiet
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise UserError(f"the standard output cannot be written: {error.strerror}.") from error


def results(
    summary: dict[str, Any], workdir: pathlib.Path, shown: Sequence[str] = (), brief: bool = False
) -> Iterator[str]:
    r"""Yield the best points with the measures in ``shown``, or those entries, and the verdict.

    Args:
      summary: the summary of the run.
      workdir: its folder.
      shown: measures of a sweep, or entries of a study's summary.
      brief: whether it is a quick run, whose numbers are not those of the source.

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
    told = tables.headline(summary, brief=brief)
    yield from filter(None, (told, f"Open {workdir / 'index.html'}."))


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
