"""A population on disk beside the same one in memory, and one larger than memory.

    python -m benchmarks.streaming [--clients=20000] [--rounds=2000] [--gigabytes=0]
    python -m benchmarks.streaming --workload=W3 --rounds=400

Prints one JSON line: milliseconds a round of both, in thirds of the run; the resident memory of the
process after 100 rounds of streaming and at the end. Blocks have 10 rounds. Without a workload the
clients are so small that a round is hardly more than reading them: 20 examples of 64 numbers, 100
clients a round. With ``--gigabytes`` they are a sparse file of that size, which is not read into
memory for comparison. A workload is one of WORKLOADS, with FedDualAvg.
"""

import argparse
import json
import os
import pathlib
import tempfile
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from benchmarks.settings import plan, setting
from benchmarks.workloads import WORKLOADS, draw
from fcojax.problems import memory
from fcojax.problems.clients import ClientData

DIM, ROWS, COHORT, BLOCK = 64, 20, 100, 10


def loss(w, rows):
    return (rows["x"] @ w - rows["y"]) ** 2


def saved(folder: pathlib.Path, num_clients: int, sparse: bool) -> ClientData:
    """Return a population of normal numbers, or of zeros in a sparse file."""
    num_rows = num_clients * ROWS
    if not sparse:
        rng = np.random.default_rng(0)
        x = rng.standard_normal((num_rows, DIM), np.float32)
        fcojax.save_clients(fcojax.from_rows({"x": x, "y": x[:, 0]}, [ROWS] * num_clients), folder)
        return fcojax.open_clients(folder)
    folder.mkdir()
    mapped = {
        name: np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, shape)
        for name, shape in (("x", (num_rows, DIM)), ("y", (num_rows,)))
    }
    return ClientData(
        {name: np.asarray(array) for name, array in mapped.items()},
        jnp.arange(num_clients + 1, dtype=jnp.int32) * ROWS,
        jnp.ones(num_clients),
        num_clients,
        ROWS,
        ROWS,
        (ROWS,),
    )


def resident_mb() -> float:
    """Return the resident memory of this process, as the kernel counts it."""
    pages = int(pathlib.Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def timed(advance, state, num_rounds: int) -> list:
    """Return the state after ``num_rounds`` and the milliseconds per round."""
    began = time.perf_counter()
    state = advance(state, num_rounds)
    jax.block_until_ready(state.server)
    return [state, round(1e3 * (time.perf_counter() - began) / num_rounds, 4)]


class Task(NamedTuple):
    """A run over a population on disk, ``data``."""

    algorithm: fcojax.algorithms.Algorithm
    hparams: Any
    start: Any
    data: ClientData
    how: fcojax.Plan


def small_clients(folder: pathlib.Path, num_clients: int, sparse: bool) -> Task:
    """FedAvg over many clients with little to do."""
    algorithm = fcojax.algorithms.fed_avg(loss)
    how = fcojax.Plan(fcojax.local_steps(5, 10), fcojax.uniform_cohort(cohort_size=COHORT))
    data = saved(folder, num_clients, sparse)
    return Task(algorithm, algorithm.hparams_type(client_lr=0.01), jnp.zeros(DIM), data, how)


def of_workload(folder: pathlib.Path, name: str) -> Task:
    """FedDualAvg on a reference workload."""
    workload = WORKLOADS[name]
    algorithm, hparams, start, data = setting(workload, "fed_dual_avg", *draw(workload))
    fcojax.save_clients(data, folder)
    return Task(
        algorithm, hparams, start, fcojax.open_clients(folder), fcojax.Plan(*plan(workload))
    )


def measure(num_clients: int, num_rounds: int, gigabytes: float, workload: str) -> dict:
    """Return times and memory."""
    key = jax.random.key(0)
    if gigabytes:
        num_clients = int(gigabytes * 2**30 / (4 * ROWS * (DIM + 1)))
    third = (num_rounds - 100) // (3 * BLOCK) * BLOCK
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place) / "population"
        if workload:
            task = of_workload(folder, workload)
        else:
            task = small_clients(folder, num_clients, bool(gigabytes))
        algorithm, hparams, start, data, how = task
        assert memory.file_of(data.examples["x"]) is not None
        stream = fcojax.Stream(data, how, eval_every=BLOCK)

        def from_disk(state, rounds):
            return stream.advance(algorithm, hparams, state, num_rounds=rounds, donate=True)[0]

        state, _ = timed(from_disk, stream.start(algorithm, hparams, start, key), 100)
        early, times = resident_mb(), []
        for _ in range(3):
            state, ms = timed(from_disk, state, third)
            times.append(ms)
        found = {
            "clients": data.num_clients,
            "rounds": int(state.round),
            "ms": times,
            "resident_mb": [round(early), round(resident_mb())],
        }
        if gigabytes:
            return found
        whole = data.to_device()

        def in_memory(state, rounds):
            for _ in range(rounds // BLOCK):
                state, _ = fcojax.advance(
                    algorithm,
                    hparams,
                    state,
                    whole,
                    how,
                    num_rounds=BLOCK,
                    eval_every=BLOCK,
                    donate=True,
                )
            return state

        kept, _ = timed(in_memory, fcojax.start(algorithm, hparams, start, whole, key, how), 100)
        times = []
        for _ in range(3):
            kept, ms = timed(in_memory, kept, third)
            times.append(ms)
        pairs = zip(jax.tree.leaves(kept.server), jax.tree.leaves(state.server), strict=True)
        same = all(bool((a == b).all()) for a, b in pairs)
        ratio = round(min(found["ms"]) / min(times), 3)
        return found | {"in_memory_ms": times, "ratio": ratio, "same_bits": same}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=20_000, help="of the population")
    parser.add_argument("--rounds", type=int, default=2000, help="that stream")
    parser.add_argument("--gigabytes", type=float, default=0.0, help="of a sparse population")
    parser.add_argument("--workload", default="", help="one of the reference workloads")
    given = parser.parse_args()
    found = measure(given.clients, given.rounds, given.gigabytes, given.workload)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
