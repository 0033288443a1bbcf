"""Measured cases, each with its time or the reason for its failure, and a table of them."""

import statistics
import time
from collections.abc import Callable

import jax

_TIMED = 5
_SECONDS = 4.0  # no further repeat begins after this time


def timed(function: Callable, *args) -> tuple[float, float, object]:
    """Return the median milliseconds of a call, the seconds of the first call, and the result."""
    began = time.perf_counter()
    result = jax.block_until_ready(function(*args))
    first, times = time.perf_counter() - began, []
    began = time.perf_counter()
    while len(times) < _TIMED and time.perf_counter() - began < _SECONDS:
        before = time.perf_counter()
        result = jax.block_until_ready(function(*args))
        times.append(1e3 * (time.perf_counter() - before))
    return statistics.median(times), first, result


def attempt(case: str, measure: Callable[[], dict]) -> dict:
    """Return the row of a case, with the reason if it failed."""
    try:
        return {"case": case} | measure()
    except Exception as error:
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        return {"case": case, "failed": f"{type(error).__name__}: {reason[:200]}"}


def table(rows: list[dict], columns: dict[str, str]) -> str:
    """Return rows as a Markdown table, without columns that no row has.

    Args:
      rows: the rows, one for each case.
      columns: the heading of each field.
    """
    used = [name for name in columns if any(row.get(name) for row in rows)]
    lines = [[columns[name] for name in used], ["---"] * len(used)]
    lines += [[_shown(name, row.get(name)) for name in used] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _shown(name: str, value) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown('', each)}" for key, each in value.items())
    if not isinstance(value, float):
        return str(value).replace("|", "/")
    if name.startswith("of_"):
        return f"{100 * value:.2g} %"
    if "objective" in name:
        return f"{value:.7g}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
