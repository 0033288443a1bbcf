"""Peak throughput of this machine, and a lower bound on the time of a workload.

    python -m benchmarks.peaks

It prints one JSON line. The lower bound of a workload is the larger of two times: its products at
the peak of a large matrix product, and one pass over its minibatches in memory. Reading the state
and drawing random numbers are assumed to take no time.
"""

import json
import os
import threading
import time
from typing import NamedTuple

import numpy as np

from benchmarks.workloads import WORKLOADS, Workload

_SIDE = 2048
_MEGABYTES = 256
_TIMED = 7


class Peaks(NamedTuple):
    """The peaks of all cores together."""

    gflops: float
    gbytes: float


def peaks() -> Peaks:
    """Measure float32 products and reading from memory; the best of several tries."""
    square = np.random.default_rng(0).standard_normal((_SIDE, _SIDE), dtype=np.float32)
    product = min(_seconds(lambda: square @ square) for _ in range(_TIMED))
    rows = [np.ones(_MEGABYTES << 18, np.float32) for _ in range(os.cpu_count() or 1)]

    def read_all():
        readers = [threading.Thread(target=np.dot, args=(row, row)) for row in rows]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()

    reading = min(_seconds(read_all) for _ in range(_TIMED))
    read = sum(row.nbytes for row in rows)
    return Peaks(2e-9 * _SIDE**3 / product, 1e-9 * read / reading)


def needs(workload: Workload) -> tuple[float, float]:
    """Return operations of a round's forward and gradient products, and bytes of its steps' rows.

    Rows that remain in cache between steps are read once.
    """
    members = workload.cohort_size or workload.num_clients
    rows = workload.batch_size or workload.num_examples
    outputs = workload.num_classes or 1
    operations = 4.0 * members * workload.num_steps * rows * workload.dim * outputs
    fresh = workload.num_steps * rows if workload.batch_size else rows
    return operations, 4.0 * members * fresh * workload.dim


def floor_ms(workload: Workload, known: Peaks) -> float:
    """Return the milliseconds of one round at the machine's peaks."""
    operations, read = needs(workload)
    return 1e3 * max(operations / (1e9 * known.gflops), read / (1e9 * known.gbytes))


def shares(workload: Workload, milliseconds: float, known: Peaks, num_points: int = 1) -> dict:
    """Return the shares of both peaks in a round; a grid's points share one pass over the data."""
    operations, read = needs(workload)
    seconds = 1e-3 * milliseconds
    return {
        "share_of_peak_operations": round(
            num_points * operations / seconds / (1e9 * known.gflops), 3
        ),
        "share_of_peak_reading": round(read / seconds / (1e9 * known.gbytes), 3),
    }


def _seconds(work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Print the JSON line."""
    known = peaks()
    floors = {
        name: round(floor_ms(workload, known), 4)
        for name, workload in WORKLOADS.items()
        if name in ("W1", "W2", "W3")
    }
    print(json.dumps({**{k: round(v, 1) for k, v in known._asdict().items()}, "floor_ms": floors}))


if __name__ == "__main__":
    main()
