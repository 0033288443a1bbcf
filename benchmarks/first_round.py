"""Time and memory from numpy arrays to the end of the first round.

    python -m benchmarks.first_round [--workload=W1,W2,W3] [--algorithm=fed_dual_avg] [--repeats=3]
    python -m benchmarks.first_round --workload=W3 --gigabytes=9 --side=ours

It prints one JSON line per workload. The sides run alternately in fresh processes, without a
compilation cache. The other side is hand-written JAX: ``jax.device_put`` of the arrays, then one
jitted round (``plain_jax.py``).

Seconds are listed for imports, for moving the population to the devices, and for the first round,
which traces and compiles; ``processor_s`` is the processor time of the last two, which other work
on the machine affects less. Megabytes count the whole process, including the user's own arrays, at
its peak and at the end; ``peak_over_population`` is the peak over the bytes of the arrays.
"""

import functools
import gc
import json
import os
import pathlib
import resource
import statistics
import time

import numpy as np
from absl import app, flags

from benchmarks import by_hand
from benchmarks.processes import in_fresh_process
from benchmarks.workloads import WORKLOADS, Workload, draw, start

FLAGS = flags.FLAGS
SIDES = ("ours", "plain_jax")
_STATUS = pathlib.Path("/proc/self/status")


def measure_ours(workload: Workload, algorithm: str) -> dict:
    """Measure the library's side in this process, with default settings and a device per core."""
    clock = _Clock()
    import jax

    from benchmarks import settings

    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    clock.lap("import_s")
    x, y = draw(workload)
    clock.lap()
    clock.population = x.nbytes + y.nbytes
    run = settings.ours(workload._replace(num_rounds=1), algorithm, x, y)
    clock.lap("population_s")
    jax.block_until_ready(run(jax.random.key(0)))
    clock.lap("first_round_s")
    return clock.row()


def measure_plain_jax(workload: Workload, algorithm: str) -> dict:
    """Measure hand-written JAX in this process, on JAX's default of one device."""
    clock = _Clock()
    import jax

    from benchmarks import plain_jax, settings

    clock.lap("import_s")
    x, y = draw(workload)
    members, indices = _draws(workload)
    clock.lap()
    clock.population = x.nbytes + y.nbytes
    shape = workload.num_clients, workload.num_examples
    data = {"x": x.reshape(*shape, -1), "y": y.reshape(shape)}
    data = jax.block_until_ready(jax.device_put(data))
    rates = {name: getattr(workload, name) for name in ("client_lr", "server_lr", "penalty_scale")}
    one_round = functools.partial(
        plain_jax.run,
        algorithm,
        settings.losses(workload.model),
        workload.num_steps,
        rates,
        start(workload),
        data,
        members,
        indices,
    )
    clock.lap("population_s")
    jax.block_until_ready(one_round())
    clock.lap("first_round_s")
    return clock.row()


def _draws(workload: Workload) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the members of one round, and their minibatches."""
    rng = np.random.default_rng(1)
    cohort_size = workload.cohort_size or workload.num_clients
    members = rng.permutation(workload.num_clients)[None, :cohort_size]
    if workload.batch_size is None:
        return members, None
    used = workload.num_steps * workload.batch_size
    each = [
        rng.permutation(workload.num_examples)[np.arange(used) % workload.num_examples]
        for _ in range(cohort_size)
    ]
    shape = (1, cohort_size, workload.num_steps, workload.batch_size)
    return members, np.reshape(each, shape)


class _Clock:
    """Seconds by step, and memory."""

    def __init__(self):
        self.population = 0
        self._steps: dict[str, float] = {}
        self._processor: dict[str, float] = {}
        self._began, self._processor_began = time.perf_counter(), time.process_time()

    def lap(self, step: str | None = None) -> None:
        """Record the time since the last lap for this step; discard it without a name."""
        now, of_processor = time.perf_counter(), time.process_time()
        if step is not None:
            self._steps[step] = now - self._began
            self._processor[step] = of_processor - self._processor_began
        self._began, self._processor_began = time.perf_counter(), time.process_time()

    def row(self) -> dict:
        gc.collect()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        held = next(
            int(line.split()[1]) / 1024
            for line in _STATUS.read_text().splitlines()
            if line.startswith("VmRSS:")
        )
        steps = self._steps
        whole, of_processor = (
            found["population_s"] + found["first_round_s"] for found in (steps, self._processor)
        )
        ratio = peak * 2**20 / self.population
        return {
            **steps,
            "to_first_round_s": whole,
            "processor_s": of_processor,
            "peak_mb": peak,
            "held_mb": held,
            "population_mb": self.population / 2**20,
            "peak_over_population": ratio,
        }


def compare(name: str, algorithm: str, repeats: int) -> dict:
    """Return the JSON line as a dict: medians of both sides over fresh processes."""
    rows: dict[str, list[dict]] = {side: [] for side in SIDES}
    for _ in range(repeats):
        for side, found in rows.items():
            given = {"workload": name, "algorithm": algorithm, "gigabytes": FLAGS.gigabytes}
            found.append(in_fresh_process("first_round", **given, side=side))
    medians = {
        side: {step: round(statistics.median(row[step] for row in found), 3) for step in found[0]}
        for side, found in rows.items()
    }
    whole = [row["to_first_round_s"] for row in rows["ours"]]
    return {
        "workload": name,
        "algorithm": algorithm,
        **medians,
        "to_first_round_s": [round(seconds, 2) for seconds in whole],
        "repeats": repeats,
    }


def sized(workload: Workload, gigabytes: float) -> Workload:
    """Return the workload with as many clients as fill this size; zero leaves it unchanged."""
    if not gigabytes:
        return workload
    per_client = 4 * workload.num_examples * workload.dim
    return workload._replace(num_clients=int(gigabytes * 1e9 / per_client))


def main(argv: list[str]) -> None:
    """Print the JSON lines, or measure one side in this process."""
    del argv
    for name in FLAGS.workload:
        workload = sized(WORKLOADS[name], FLAGS.gigabytes)
        if FLAGS.side == "ours":
            print(json.dumps(measure_ours(workload, FLAGS.algorithm)))
        elif FLAGS.side == "plain_jax":
            print(json.dumps(measure_plain_jax(workload, FLAGS.algorithm)))
        else:
            print(json.dumps(compare(name, FLAGS.algorithm, FLAGS.repeats)), flush=True)


if __name__ == "__main__":
    flags.DEFINE_list("workload", ["W1", "W2", "W3"], "Which workloads.")
    flags.DEFINE_enum("algorithm", "fed_dual_avg", by_hand.ALGORITHMS, "Which algorithm.")
    flags.DEFINE_integer("repeats", 3, "Fresh processes per side.", lower_bound=1)
    flags.DEFINE_float("gigabytes", 0, "Use as many clients as fill this size.", lower_bound=0)
    flags.DEFINE_enum("side", None, SIDES, "Measure one side in this process.")
    app.run(main)
