"""Run and time sides of a benchmark in fresh processes; this file does not import JAX."""

import json
import pathlib
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any


def last_line(command: list[str]) -> dict:
    """Run a command in a fresh process; return its last line, which is JSON."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def in_fresh_process(module: str, **options) -> dict:
    """Run ``python -m benchmarks.MODULE --NAME=VALUE ...``; return its last line.

    On a CPU XLA is fast or slow for the life of a process, so medians are taken over processes.
    """
    given = [f"--{name}={value}" for name, value in options.items()]
    return last_line([sys.executable, "-m", f"benchmarks.{module}", *given])


def timed(run: Callable[[], Any], num_rounds: int, repeats: int = 5) -> tuple[float, Any]:
    """Return the median milliseconds per round of a warm function that waits, and its result."""
    times, result = [], run()
    for _ in range(repeats):
        began = time.perf_counter()
        result = run()
        times.append(1e3 * (time.perf_counter() - began) / num_rounds)
    return statistics.median(times), result


def num_bytes(what: str) -> int:
    """Return a field of Linux's status of this process, such as the peak ``VmHWM``."""
    found = re.search(rf"{what}:\s+(\d+) kB", pathlib.Path("/proc/self/status").read_text())
    assert found is not None, "this benchmark needs Linux"
    return 1024 * int(found[1])
