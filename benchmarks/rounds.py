"""Milliseconds per round, beside the same algorithm in plain numpy.

    python -m benchmarks.rounds --workload=W1 [--algorithm=fed_dual_avg] [--repeats=5]

The program prints one JSON line. W5 and W6 have no other side, see ``benchmarks.scaling``; the
other side of W7 and W8 is plain JAX, see ``benchmarks.networks``. The sides run alternately in
``--repeats`` fresh processes each, on the same cohorts and minibatches; the results are medians and
minima of both, and the objective of each side.
"""

import json
import os
import pathlib
import resource
import statistics
import tempfile
import time

import numpy as np
from absl import app, flags

from benchmarks import by_hand, scaling
from benchmarks.processes import in_fresh_process, timed
from benchmarks.workloads import NETWORKS, WORKLOADS, Workload, draw

FLAGS = flags.FLAGS


def measure_numpy(workload: Workload, algorithm: str, draws: str) -> dict:
    """Measure the numpy side, in a process that does not import JAX."""
    x, y = draw(workload)
    stored = np.load(draws)
    members = stored["members"] if workload.cohort_size else None
    indices = stored["indices"] if workload.batch_size else None

    def run():
        return by_hand.run(algorithm, workload, x, y, members, indices, workload.num_rounds)

    milliseconds, params = timed(run, workload.num_rounds)
    end = by_hand.objective(workload, params, x, y, penalised=algorithm != "fed_avg")
    return {"ms_per_round": milliseconds, "objective": end}


def measure_ours(workload: Workload, algorithm: str, key_seed: int) -> dict:
    """Measure the library's side, with default settings."""
    import jax

    from benchmarks.settings import ours

    jax.config.update("jax_num_cpu_devices", os.cpu_count())
    x, y = draw(workload)
    setup = ours(workload, algorithm, x, y)

    def run():
        return jax.block_until_ready(setup(jax.random.key(key_seed)))

    before = time.perf_counter()
    run()
    first_run = time.perf_counter() - before
    milliseconds, params = timed(run, workload.num_rounds)
    params = jax.tree.map(np.asarray, params)
    return {
        "ms_per_round": milliseconds,
        "objective": by_hand.objective(workload, params, x, y, penalised=algorithm != "fed_avg"),
        "first_run_s": first_run,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure_network(side: str) -> dict:
    """Measure one side of W7 or W8."""
    from benchmarks import networks

    workload = WORKLOADS[FLAGS.workload]
    if side == "ours":
        return networks.measure_ours(workload, FLAGS.algorithm)
    return networks.measure_by_hand(workload, FLAGS.algorithm, FLAGS.draws)


def compare(name: str, algorithm: str, repeats: int) -> dict:
    """Measure both sides in alternating fresh processes; return the JSON line as a dict."""
    from benchmarks.settings import store_draws

    workload = WORKLOADS[name]
    other = "by_hand" if workload.model in NETWORKS else "numpy"
    given = {"workload": name, "algorithm": algorithm}
    sides: dict[str, list[dict]] = {"ours": [], other: []}
    with tempfile.TemporaryDirectory() as folder:
        draws = pathlib.Path(folder) / "draws.npz"
        store_draws(workload, 0, draws)
        for _ in range(repeats):
            for side, results in sides.items():
                results.append(in_fresh_process("rounds", **given, side=side, draws=draws))

    def median(side, field):
        return statistics.median(result[field] for result in sides[side])

    def least(side):
        return min(result["ms_per_round"] for result in sides[side])

    ours, theirs = median("ours", "ms_per_round"), median(other, "ms_per_round")
    return given | {
        "ms_per_round": round(ours, 4),
        "ms_per_round_min": round(least("ours"), 4),
        f"{other}_ms_per_round": round(theirs, 4),
        f"{other}_ms_per_round_min": round(least(other), 4),
        "ratio": round(ours / theirs, 3),
        "first_run_s": round(median("ours", "first_run_s"), 2),
        "peak_rss_mb": round(median("ours", "peak_rss_mb")),
        "objective": median("ours", "objective"),
        f"{other}_objective": median(other, "objective"),
        "repeats": repeats,
    }


def main(argv: list[str]) -> None:
    """Print the JSON line, or measure one side in a fresh process."""
    del argv
    workload = WORKLOADS[FLAGS.workload]
    if FLAGS.workload in ("W5", "W6"):
        print(json.dumps(scaling.compare(FLAGS.workload, FLAGS.algorithm)))
    elif FLAGS.side and workload.model in NETWORKS:
        print(json.dumps(measure_network(FLAGS.side)))
    elif FLAGS.side == "ours":
        print(json.dumps(measure_ours(workload, FLAGS.algorithm, 0)))
    elif FLAGS.side == "numpy":
        print(json.dumps(measure_numpy(workload, FLAGS.algorithm, FLAGS.draws)))
    else:
        print(json.dumps(compare(FLAGS.workload, FLAGS.algorithm, FLAGS.repeats)))


if __name__ == "__main__":
    flags.DEFINE_enum("workload", "W1", list(WORKLOADS), "Which workload.")
    flags.DEFINE_enum("algorithm", "fed_dual_avg", by_hand.ALGORITHMS, "Which algorithm.")
    flags.DEFINE_integer("repeats", 5, "Fresh processes per side.", lower_bound=1)
    flags.DEFINE_enum(
        "side", None, ["ours", "numpy", "by_hand"], "Measure one side in this process."
    )
    flags.DEFINE_string("draws", None, "File of cohorts and minibatches, for the other side.")
    app.run(main)
