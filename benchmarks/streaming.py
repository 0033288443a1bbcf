"""Rounds with the population on disk, compared with the same population in memory.

    python -m benchmarks.streaming [--workload=W3] [--rounds=400]

It prints one JSON line: milliseconds per round of both, in thirds of the run; the resident memory
of the process after 100 rounds of streaming and at the end; and whether both end with the same
bits. The algorithm is FedDualAvg, in blocks of 10 rounds.
"""

import json
import os
import pathlib
import tempfile
import time

import jax
from absl import app, flags

import fcojax
from benchmarks.settings import plan, setting
from benchmarks.workloads import WORKLOADS, draw

FLAGS = flags.FLAGS
_BLOCK = 10
_FIRST = 100  # rounds that are not timed


def resident_mb() -> float:
    """Return the resident memory of this process, as counted by the kernel."""
    pages = int(pathlib.Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def timed(advance, state, third: int):
    """Return the last state, milliseconds per round in each third, and megabytes before them."""
    state, before, times = advance(state, _FIRST), resident_mb(), []
    for _ in range(3):
        began = time.perf_counter()
        state = jax.block_until_ready(advance(state, third))
        times.append(round(1e3 * (time.perf_counter() - began) / third, 4))
    return state, times, before


def measure(name: str, num_rounds: int) -> dict:
    """Return times and memory."""
    key, workload = jax.random.key(0), WORKLOADS[name]
    third = max(num_rounds // (3 * _BLOCK), 1) * _BLOCK
    algorithm, hparams, start, whole = setting(workload, "fed_dual_avg", *draw(workload))
    how = fcojax.Plan(*plan(workload))
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place) / "population"
        fcojax.save_clients(whole, folder)
        stream = fcojax.Stream(fcojax.open_clients(folder), how, eval_every=_BLOCK)

        def from_disk(state, rounds):
            return stream.advance(algorithm, hparams, state, num_rounds=rounds, donate=True)[0]

        streamed, times, before = timed(
            from_disk, stream.start(algorithm, hparams, start, key), third
        )
        after = resident_mb()
    whole = whole.to_device()

    def in_memory(state, rounds):
        for _ in range(rounds // _BLOCK):
            state, _ = fcojax.advance(
                algorithm,
                hparams,
                state,
                whole,
                how,
                num_rounds=_BLOCK,
                eval_every=_BLOCK,
                donate=True,
            )
        return state

    first = fcojax.start(algorithm, hparams, start, whole, key, how)
    kept, in_memory_times, _ = timed(in_memory, first, third)
    pairs = zip(jax.tree.leaves(kept.server), jax.tree.leaves(streamed.server), strict=True)
    return {
        "workload": name,
        "rounds": int(streamed.round),
        "ms": times,
        "in_memory_ms": in_memory_times,
        "ratio": round(min(times) / min(in_memory_times), 3),
        "resident_mb": [round(before), round(after)],
        "same_bits": all(bool((a == b).all()) for a, b in pairs),
    }


def main(argv: list[str]) -> None:
    """Print the JSON line."""
    del argv
    print(json.dumps(measure(FLAGS.workload, FLAGS.rounds)))


if __name__ == "__main__":
    flags.DEFINE_enum("workload", "W3", list(WORKLOADS), "Which workload.")
    flags.DEFINE_integer("rounds", 400, "Rounds that are timed.", lower_bound=30)
    app.run(main)
