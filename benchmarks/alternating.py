"""Alternating timings, so that all candidates run in the same state of the machine."""

import time
from collections.abc import Callable

import jax

_SAMPLE_SECONDS = 2e-3


def alternate(ways: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Return seconds per call of each candidate, ``repeats`` times, without compilation.

    A short call is repeated for two milliseconds, and the sample is the mean. Only the last of
    these calls is waited for: on a CPU, JAX runs a larger call in another thread, and waking it
    takes as long as the work on a hundred thousand numbers.
    """
    calls = {}
    for name, way in ways.items():
        _seconds(way, 1)
        calls[name] = max(1, round(_SAMPLE_SECONDS / _seconds(way, 1)))
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            times[name].append(_seconds(way, calls[name]) / calls[name])
    return times


def _seconds(way: Callable[[], object], calls: int) -> float:
    result = None
    began = time.perf_counter()
    for _ in range(calls):
        result = way()
    jax.block_until_ready(result)
    return time.perf_counter() - began
