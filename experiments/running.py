"""Both kinds of experiment, checked first and then run in a workdir."""

import contextlib
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
from ml_collections import ConfigDict
from rich.console import Console

from experiments import processes
from experiments.campaign import Campaign
from experiments.command_line import CHECKPOINT_EVERY, DEBUG_NANS, PROFILE
from experiments.endings import Refused
from experiments.entries import Entry, build, columns, described
from experiments.ledger import fingerprint
from experiments.lines import solve_optima
from experiments.report import rows as tidy
from experiments.report.rows import Row
from experiments.search import extended_grid
from experiments.settings import Settings
from experiments.signals import Watch
from experiments.study import Study, Sweep
from experiments.suggestions import suggest
from experiments.terminal import progress_on
from experiments.workdir import Workdir
from fcojax.engine.stream import on_disk

# Each multiplies one end of the grid by the ratio of its last two values.
_MOST_EXTENSIONS = 6
_SECONDS_BETWEEN_WRITES = 1.0  # of a study's rows

Say = Callable[[str], None]
# (workdir, summary so far, console, watch, say) -> summary.
Execute = Callable[[Workdir, dict[str, Any], Console, Watch, Say], dict[str, Any]]


def prepared_study(study: Study, config: ConfigDict) -> Execute:
    """What writes the study's rows as they come, and returns its summary.

    Studies are short and do not resume; one that was interrupted starts over.
    """

    def execute(workdir, summary, console, watch, say) -> dict[str, Any]:
        began = time.monotonic()
        ledger = workdir.ledger()
        for label in list(ledger.rows):
            ledger.replace(label, [])
        with progress_on(console) as progress:
            for rows in in_batches(study.rows(config), _SECONDS_BETWEEN_WRITES):
                ledger.append([tidy.plain(row) for row in rows])
                progress.stage("", str(rows[-1]["part"]))
        found = study.summarise(config, tidy.load(ledger.path))
        return summary | found | {"seconds": round(time.monotonic() - began, 3)}

    return execute


def in_batches(rows: Iterator[Row], seconds: float) -> Iterator[list[Row]]:
    """The rows that came in so many seconds together, and those before an error as well.

    Every write waits for the disk, thousands of them for longer than the study computes.
    """
    batch, began = [], time.monotonic()
    try:
        for row in rows:
            batch.append(row)
            if time.monotonic() - began >= seconds:
                yield batch
                batch, began = [], time.monotonic()
    except Exception:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def prepared_sweep(sweep: Sweep, config: ConfigDict, settings: Settings) -> Execute:
    """What runs all lines of the sweep; each one's summary is written as soon as it is done."""
    problem, penalty = sweep.problem(config), sweep.penalty(config)
    entries = build(sweep, config, settings, problem, penalty)
    known = columns(problem, sweep)
    if settings.criterion.measure not in known:
        raise Refused(
            f"there is no measure {settings.criterion.measure} to rank by; "
            f"{suggest(settings.criterion.measure, known)}"
        )

    def execute(workdir, summary, console, watch, say) -> dict[str, Any]:
        done, trusted = summary.setdefault("algorithms", {}), summary.setdefault("rows", {})
        summary["data"] = described(problem, config, settings.seeds)
        ledger = processes.told(workdir.ledger)
        ledger.writes = processes.is_first()
        for stranger in set(ledger.rows) - {entry.label for entry in entries}:
            ledger.replace(stranger, [])
        with progress_on(console) as progress:
            optima: dict[float, float] = {}
            # The optimum of all clients is not to be had from a sample of them.
            if sweep.solve_optimum and not on_disk(problem.train):
                scales = settings.penalty_scales

                def solved() -> dict[float, dict[str, float]]:
                    found = {}
                    for scale, seen in solve_optima(problem, penalty, scales):
                        found[scale] = seen
                        progress.share("optimum", len(found) / len(scales))
                    return found

                found = processes.told(solved)
                optima = {scale: seen["objective"] for scale, seen in found.items()}
                summary.setdefault("optimum", {f"{s:g}": seen for s, seen in found.items()})
            campaign = Campaign(
                settings, problem, penalty, workdir.path, optima, ledger, progress.share,
                _profiler(workdir.path), progress.stage, say, watch, DEBUG_NANS.value,
                CHECKPOINT_EVERY.value,
            )  # fmt: skip
            for entry in entries:
                label = entry.label
                if label not in done or trusted.get(label) != fingerprint(ledger.of(label)):
                    done[label] = run_and_extend(campaign, entry, settings.extend, say)
                    trusted[label] = fingerprint(ledger.of(label))
                    if processes.is_first():
                        workdir.write_summary(summary)
                progress.share(label, 1.0)
        return summary

    return execute


def run_and_extend(campaign: Campaign, entry: Entry, extend: bool, say: Say) -> dict[str, Any]:
    """Runs a line; with ``extend`` also what lies beyond its grid while the best is at its edge."""
    found = campaign.run(entry)
    for _ in range(_MOST_EXTENSIONS if extend else 0):
        if not found["edges"]:
            return found
        entry = entry._replace(grid=extended_grid(entry.grid, found["edges"]))
        found = campaign.run(entry)
    if extend and found["edges"]:
        say(f"{entry.label} is still best at an edge after {_MOST_EXTENSIONS} extensions.")
    return found


def _profiler(workdir: pathlib.Path):
    """Profiles the second block, the first one that does not include compilation."""

    def around(block: int):
        if PROFILE.value and block == 1 and processes.is_first():
            return jax.profiler.trace(os.fspath(workdir / "profile"))
        return contextlib.nullcontext()

    return around
