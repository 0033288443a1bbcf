"""Time and memory of a round against the size of the population (W5) or of the cohort (W6).

    python -m benchmarks.scaling --workload=W5 [--algorithm=fed_dual_avg]

It prints one JSON line. Every size runs in a fresh process. Memory is the process's peak minus its
memory with the data: ``beyond_data_mb`` in a first run, which compiles, and ``rounds_mb`` in a
second run, which only runs the rounds.
"""

import ctypes
import gc
import json
import pathlib
import statistics
import time

from absl import app, flags

from benchmarks.processes import in_fresh_process, num_bytes
from benchmarks.workloads import SCALES, WORKLOADS, draw

FLAGS = flags.FLAGS
_SECONDS = 2.0  # timed for each size, in at least three runs


def measure(name: str, algorithm: str, size: int) -> dict:
    """Measure one size in this process."""
    import jax

    from benchmarks.settings import ours

    field, _ = SCALES[name]
    workload = WORKLOADS[name]._replace(**{field: size})
    run = ours(workload, algorithm, *draw(workload))

    def peak_mb():
        before = _settle()
        jax.block_until_ready(run(jax.random.key(0)))
        return num_bytes("VmHWM") / 2**20 - before

    first, second = peak_mb(), peak_mb()
    times = []
    while len(times) < 3 or sum(times) < _SECONDS:
        began = time.perf_counter()
        jax.block_until_ready(run(jax.random.key(len(times))))
        times.append(time.perf_counter() - began)
    middle = 1e3 * statistics.median(times) / workload.num_rounds
    return {"ms_per_round": middle, "beyond_data_mb": first, "rounds_mb": second}


def compare(name: str, algorithm: str) -> dict:
    """Measure all sizes, each in a fresh process; return the JSON line as a dict."""
    field, sizes = SCALES[name]
    results = [
        in_fresh_process("scaling", workload=name, algorithm=algorithm, size=size) for size in sizes
    ]
    milliseconds = [result["ms_per_round"] for result in results]
    memory = [result["beyond_data_mb"] for result in results]
    return {
        "workload": name,
        "algorithm": algorithm,
        field: list(sizes),
        "ms_per_round": [round(value, 4) for value in milliseconds],
        "beyond_data_mb": [round(value, 1) for value in memory],
        "rounds_mb": [round(result["rounds_mb"], 1) for result in results],
        "time_last_over_first": round(milliseconds[-1] / milliseconds[0], 2),
        "memory_last_over_first": round(memory[-1] / memory[0], 2),
    }


def _settle() -> float:
    """Return the megabytes held after free memory is returned to the system; reset the peak."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    return num_bytes("VmRSS") / 2**20


def main(argv: list[str]) -> None:
    """Print the JSON line, or measure one size in this process."""
    del argv
    if FLAGS.size:
        print(json.dumps(measure(FLAGS.workload, FLAGS.algorithm, FLAGS.size)))
    else:
        print(json.dumps(compare(FLAGS.workload, FLAGS.algorithm)))


if __name__ == "__main__":
    flags.DEFINE_enum("workload", "W5", list(SCALES), "Which workload.")
    flags.DEFINE_string("algorithm", "fed_dual_avg", "Which algorithm.")
    flags.DEFINE_integer("size", None, "Measure one size in this process.")
    app.run(main)
