"""One measured case of a section: its time, or the reason why it failed."""

import statistics
import time
from collections.abc import Callable

import jax

_TIMED = 5
_SECONDS = 4.0  # after which no further repeat is begun


def timed(function: Callable, *args) -> tuple[float, float, object]:
    """Return the median milliseconds of a call, the seconds of the first, and the result."""
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
    """Return the row of a case, or one with the reason why it failed."""
    try:
        return {"case": case} | measure()
    except Exception as error:
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        return {"case": case, "failed": f"{type(error).__name__}: {reason[:200]}"}
