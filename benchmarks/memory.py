"""Memory of each operation, in units of the population, to show which ones copy the examples.

    python -m benchmarks.memory [--megabytes=400] [--operations=spread,run,solve]

It prints one JSON line for each operation, which runs in its own process: first on a small
population, so that imports are done, then on one of this size, with rows of 784 floats as in W3.
``beyond`` is the peak minus the memory before, ``held`` the memory afterwards, ``arrays`` the part
of JAX in it, all in units of the population. The peak includes compilation, about 100 MB.
"""

import gc
import json
import os
import pathlib

import jax
import numpy as np
from absl import app, flags

import fcojax
from benchmarks.processes import in_fresh_process, num_bytes
from fcojax.transforms import euclidean, l1

FLAGS = flags.FLAGS
_DIM, _PER_CLIENT, _CLASSES = 784, 100, 10


def rows_of(size: int) -> tuple[dict[str, np.ndarray], list[int]]:
    """Return rows of ``size`` bytes and the sizes of clients."""
    num_clients = max(size // (4 * _DIM * _PER_CLIENT), 2)
    rng, num_rows = np.random.default_rng(0), num_clients * _PER_CLIENT
    x = rng.standard_normal((num_rows, _DIM), np.float32)
    labels = rng.integers(0, _CLASSES, num_rows).astype(np.int32)
    return {"x": x, "y": labels}, [_PER_CLIENT] * num_clients


def population_of(size: int) -> fcojax.ClientData:
    return fcojax.from_rows(*rows_of(size))


def setting(data):
    """Return the problem, FedDualAvg, hyperparameters, the start, a key, and a plan as in W3."""
    problem = fcojax.problems.softmax(data, num_classes=_CLASSES)
    algorithm = fcojax.algorithms.fed_dual_avg(problem.loss, euclidean(l1()))
    cohort = fcojax.uniform_cohort(cohort_size=2)
    plan = fcojax.Plan(fcojax.local_epochs(1, batch_size=20), cohort)
    hparams = algorithm.hparams_type(client_lr=0.01, penalty_scale=1e-4)
    key = jax.random.key(0)
    return problem, algorithm, hparams, problem.init(key), key, plan


def spread(data):
    _, algorithm, hparams, params, _, plan = setting(data)
    plan = plan._replace(cohort=fcojax.everyone())  # with few members one device is faster
    return fcojax.devices.spread(algorithm, hparams, params, data, plan)


def run(data):
    _, algorithm, hparams, params, key, plan = setting(data)
    return fcojax.run(algorithm, hparams, params, data, key, plan, num_rounds=1)


def sweep(data):
    _, algorithm, hparams, params, key, plan = setting(data)
    grid = fcojax.grid.product(type(hparams), client_lr=np.geomspace(0.001, 0.01, 4).tolist())
    return fcojax.sweep(algorithm, grid, params, data, key[None], plan, num_rounds=1)


def solve(data):
    problem, algorithm, hparams, params, key, plan = setting(data)
    kkt = fcojax.kkt(problem.loss, l1())
    return fcojax.solve(algorithm, hparams, params, data, key, plan, certificate=kkt, max_rounds=10)


def path(data):
    return fcojax.path(setting(data)[0], l1(), strengths=2, max_rounds=10).models


def optimum(data):
    return fcojax.reference.optimum(setting(data)[0], l1(), 1e-3, max_steps=3).params


# Name: a setup for a size, which is not measured, and the measured operation.
OPERATIONS = {
    "from_rows": (rows_of, lambda given: fcojax.from_rows(*given)),
    "spread": (population_of, spread),
    "run": (population_of, run),
    "run_spread": (lambda size: spread(population_of(size)), run),
    "sweep": (population_of, sweep),
    "solve": (population_of, solve),
    "path": (population_of, path),
    "optimum": (population_of, optimum),
}


def measure(name: str, megabytes: int) -> dict:
    """Measure one operation in this process."""
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    prepare, operation = OPERATIONS[name]
    jax.block_until_ready(jax.tree.leaves(operation(prepare(0))))
    size = megabytes * 10**6
    given = prepare(size)
    gc.collect()
    before = num_bytes("VmRSS")
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    result = jax.block_until_ready(jax.tree.leaves(operation(given)))
    peak = num_bytes("VmHWM")
    gc.collect()
    held, arrays = num_bytes("VmRSS"), sum(array.nbytes for array in jax.live_arrays())
    del result
    found = {"beyond": peak - before, "held": held - before, "arrays": arrays}
    in_populations = {what: round(value / size, 2) for what, value in found.items()}
    return {"operation": name, "megabytes": megabytes, **in_populations}


def main(argv: list[str]) -> None:
    """Print the JSON lines, or measure one operation in this process."""
    del argv
    if FLAGS.side:
        print(json.dumps(measure(FLAGS.side, FLAGS.megabytes)))
        return
    for name in FLAGS.operations:
        row = in_fresh_process("memory", side=name, megabytes=FLAGS.megabytes)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    flags.DEFINE_integer("megabytes", 400, "Of the population.", lower_bound=1)
    flags.DEFINE_list("operations", list(OPERATIONS), "Which operations.")
    flags.DEFINE_enum("side", None, list(OPERATIONS), "Measure one in this process.")
    app.run(main)
