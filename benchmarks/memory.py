"""What copies the examples of a population: memory by operation, in populations.

    python -m benchmarks.memory [--megabytes=400] [--operations=spread,run,solve]
    python -m benchmarks.memory --operations=mapped --megabytes=9000 --folder=FOLDER

Prints one JSON line for each operation, which runs in a process of its own: first on a small
population, so that imports are behind it, then on one of this size, with rows of 784 floats as W3
has them. ``beyond`` is the peak beyond what the process held before, in populations; ``held`` is
what it holds afterwards, and ``arrays`` what JAX holds of it. Compilation is in the peak: about
100 MB. ``mapped`` trains a round on rows that a ``.npy`` file holds, written to the folder first:
pages of the file that the system keeps in memory count as the process's, so ``anonymous`` has the
largest size without them, sampled.
"""

import argparse
import gc
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import numpy as np

_DIM, _PER_CLIENT, _CLASSES = 784, 100, 10
_STATUS, _REFERENCES = pathlib.Path("/proc/self/status"), pathlib.Path("/proc/self/clear_refs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400, help="of the population")
    parser.add_argument("--operations", default=",".join(OPERATIONS), help="which")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="for the rows of mapped")
    parser.add_argument("--side", help="run this in this process")
    given = parser.parse_args()
    if given.side:
        return print(json.dumps(_measured(given.side, given.megabytes, given.folder)))
    for name in given.operations.split(","):
        command = [sys.executable, "-m", "benchmarks.memory", f"--side={name}"]
        command += [f"--megabytes={given.megabytes}", f"--folder={given.folder}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
        print(done.stdout.splitlines()[-1], flush=True)


def _measured(name: str, megabytes: int, folder: str) -> dict:
    import jax

    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    prepare, operation = OPERATIONS[name]
    operation(prepare(2 * _PER_CLIENT * _DIM * 4 * 8, folder))
    size = megabytes * 10**6
    given = prepare(size, folder)
    gc.collect()
    before = _memory("VmRSS")
    _REFERENCES.write_text("5")  # the peak begins anew
    largest, stop = [0], threading.Event()

    def sample():
        while not stop.wait(0.02):
            largest[0] = max(largest[0], _memory("RssAnon"))

    sampler = threading.Thread(target=sample)
    sampler.start()
    began = time.perf_counter()
    result = operation(given)
    jax.block_until_ready(jax.tree.leaves(result))
    seconds = time.perf_counter() - began
    stop.set()
    sampler.join()
    peak = _memory("VmHWM")
    gc.collect()
    arrays = sum(array.nbytes for array in jax.live_arrays())
    found = {
        "beyond": peak - before,
        "held": _memory("VmRSS") - before,
        "arrays": arrays,
        "before": before,
        "anonymous": largest[0],
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    in_populations = {what: round(value / size, 2) for what, value in found.items()}
    return {"operation": name, "megabytes": megabytes, **in_populations, "seconds": round(seconds)}


def _memory(what: str) -> int:
    found = re.search(rf"{what}:\s+(\d+) kB", _STATUS.read_text())
    assert found is not None
    return 1024 * int(found[1])


def _rows(size: int, folder: str = "") -> tuple[dict[str, np.ndarray], list[int]]:
    num_clients = size // (4 * _DIM * _PER_CLIENT)
    rng, num_rows = np.random.default_rng(0), num_clients * _PER_CLIENT
    x = np.empty((num_rows, _DIM), np.float32)
    for start in range(0, num_rows, _PER_CLIENT):
        x[start : start + _PER_CLIENT] = rng.standard_normal((_PER_CLIENT, _DIM), np.float32)
    labels = rng.integers(0, _CLASSES, num_rows).astype(np.int32)
    return {"x": x, "y": labels}, [_PER_CLIENT] * num_clients


def _population(size: int, folder: str = ""):
    import fcojax

    return fcojax.from_rows(*_rows(size))


def _spread_population(size: int, folder: str = ""):
    return _spread(_population(size))


def _mapped_rows(size: int, folder: str):
    """Write the features client by client, and open them."""
    num_clients = size // (4 * _DIM * _PER_CLIENT)
    shape, path = (num_clients * _PER_CLIENT, _DIM), pathlib.Path(folder, f"rows-{size}.npy")
    x = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    rng = np.random.default_rng(0)
    for start in range(0, shape[0], _PER_CLIENT):
        x[start : start + _PER_CLIENT] = rng.standard_normal((_PER_CLIENT, _DIM), np.float32)
    x.flush()
    labels = rng.integers(0, _CLASSES, shape[0]).astype(np.int32)
    opened = np.load(path, mmap_mode="r")
    path.unlink()  # its contents stay as long as they are mapped
    return {"x": opened, "y": labels}, [_PER_CLIENT] * num_clients


def _problem(data):
    import fcojax

    return fcojax.problems.softmax(data, num_classes=_CLASSES)


def _setting(data):
    """The problem, FedDualAvg for it, a plan as in W3, hyperparameters and the start point."""
    import jax

    import fcojax

    problem, penalty = _problem(data), fcojax.transforms.l1()
    algorithm = fcojax.algorithms.fed_dual_avg(problem.loss, fcojax.transforms.euclidean(penalty))
    work = fcojax.local_epochs(1, batch_size=20)
    plan = fcojax.Plan(work, fcojax.uniform_cohort(cohort_size=2))
    hparams = algorithm.hparams_type(client_lr=0.01, penalty_scale=1e-4)
    return problem, algorithm, plan, hparams, problem.init(jax.random.key(0))


def _spread(data):
    import fcojax

    _, algorithm, plan, hparams, params = _setting(data)
    plan = plan._replace(cohort=fcojax.everyone())  # that it pays
    return fcojax.devices.spread(algorithm, hparams, params, data, plan)


def _run(data, num_points: int = 1):
    import jax
    import numpy as np

    import fcojax

    _, algorithm, plan, hparams, params = _setting(data)
    key = jax.random.key(0)
    if num_points == 1:
        return fcojax.run(algorithm, hparams, params, data, key, plan, num_rounds=1)
    rates = np.geomspace(0.001, 0.01, num_points)
    grid = fcojax.grid.product(type(hparams), client_lr=list(rates))
    return fcojax.sweep(algorithm, grid, params, data, key[None], plan, num_rounds=1)


def _mapped(given):
    import fcojax

    return _run(_spread(fcojax.from_rows(*given, on_host=True)))


def _look(data):
    import jax

    import fcojax

    problem, algorithm, plan, hparams, params = _setting(data)
    state = fcojax.start(algorithm, hparams, params, data, jax.random.key(0), plan)

    def observe(hparams, model, data):
        return {"loss": fcojax.problems.population_loss(problem.loss, model, data)}

    return fcojax.look(algorithm, hparams, state, observe, data)


def _solve(data):
    import jax

    import fcojax

    problem, algorithm, plan, hparams, params = _setting(data)
    certificate = fcojax.kkt(problem.loss, fcojax.transforms.l1())
    return fcojax.solve(
        algorithm,
        hparams,
        params,
        data,
        jax.random.key(0),
        plan,
        certificate=certificate,
        max_rounds=10,
    )


def _path(data):
    import fcojax

    penalty = fcojax.transforms.l1()
    return fcojax.path(_problem(data), penalty, strengths=2, max_rounds=10).models


def _select(data):
    import fcojax

    by = fcojax.selection.by_client(2)
    found = fcojax.select(
        _problem(data), fcojax.transforms.l1(), by=by, strengths=2, max_rounds=10, refit=False
    )
    return found.model


def _optimum(data):
    import fcojax

    penalty = fcojax.transforms.l1()
    return fcojax.reference.optimum(_problem(data), penalty, 1e-3, max_steps=3).params


def _states(size: int, folder: str = ""):
    """A population whose clients keep states of this size, and its state under SCAFFOLD."""
    import jax

    import fcojax

    num_clients = size // (4 * (_DIM + 1) * _CLASSES)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_clients, _DIM), np.float32)
    labels = rng.integers(0, _CLASSES, num_clients).astype(np.int32)
    data = fcojax.from_rows({"x": x, "y": labels}, [1] * num_clients)
    problem = _problem(data)
    algorithm = fcojax.algorithms.scaffold(problem.loss)
    plan = fcojax.Plan(fcojax.local_steps(1), fcojax.uniform_cohort(cohort_size=2))
    hparams, params = algorithm.hparams_type(), problem.init(jax.random.key(0))
    state = fcojax.start(algorithm, hparams, params, data, jax.random.key(0), plan)
    return algorithm, hparams, [jax.block_until_ready(state)], data, plan


def _advance(given, donate: bool = False):
    import fcojax

    algorithm, hparams, states, data, plan = given
    return fcojax.advance(algorithm, hparams, states[0], data, plan, num_rounds=1, donate=donate)


def _save(given):
    import jax

    from experiments.storage.checkpoints import Checkpoints

    with tempfile.TemporaryDirectory() as folder:
        writer = Checkpoints(pathlib.Path(folder), print)
        writer.save(0, jax.device_get(given[2][0]), {})
        writer.close()


# Name: what is there before, made of a size and a folder, and what is measured.
OPERATIONS: dict[str, tuple[Callable, Callable]] = {
    "from_rows": (_rows, lambda given: __import__("fcojax").from_rows(*given)),
    "spread": (_population, _spread),
    "run": (_population, _run),
    "run_spread": (_spread_population, _run),
    "sweep": (_population, lambda data: _run(data, 4)),
    "look": (_population, _look),
    "solve": (_population, _solve),
    "path": (_population, _path),
    "select": (_population, _select),
    "optimum": (_population, _optimum),
    "mapped": (_mapped_rows, _mapped),
    "advance": (_states, _advance),
    "advance_donating": (_states, lambda given: _advance(given, True)),
    "checkpoint": (_states, _save),
}

if __name__ == "__main__":
    main()
