"""W4: milliseconds per round for a whole grid of rates, beside a numpy loop over its points.

    python -m benchmarks.sweep [--algorithm=fed_dual_avg] [--repeats=3]

It prints one JSON line. Each repeat is a fresh process per side, alternating. In its process the
library runs grids of 1, 25 and 100 points in turn; the numpy side reads the same cohorts and
minibatches for its points.
"""

import json
import os
import pathlib
import statistics
import tempfile

import numpy as np
from absl import app, flags

from benchmarks import by_hand
from benchmarks.processes import in_fresh_process, timed
from benchmarks.settings import grid_of, plan, setting, store_draws
from benchmarks.workloads import WORKLOADS, Workload, draw

FLAGS = flags.FLAGS
GRIDS = {"W4": (1, 5, 10), "toy": (1, 2)}  # rates of each kind; the number of points is the square
_NUM_ROUNDS = 100
_POINTS_BY_HAND = 3  # points of the middle grid that numpy runs in a process


def base(name: str) -> Workload:
    """Return the workload whose rates are swept."""
    workload = WORKLOADS["W1" if name == "W4" else name]
    return workload._replace(num_rounds=min(workload.num_rounds, _NUM_ROUNDS))


def rates(num: int) -> list[tuple[float, float]]:
    """Return ``num`` x ``num`` pairs of client and server rate at which W1 converges."""
    client_lrs = np.geomspace(3e-3, 2e-2, num) if num > 1 else [0.01]
    server_lrs = np.geomspace(0.3, 1.0, num) if num > 1 else [1.0]
    return [(float(c), float(s)) for c in client_lrs for s in server_lrs]


def measure_numpy(name: str, algorithm: str, draws: str) -> dict:
    """Return milliseconds per round and point, and the models of the points that ran."""
    workload = base(name)
    x, y = draw(workload)
    stored = np.load(draws)
    middle = rates(GRIDS[name][1])
    times, ends = [], {}
    for index in np.linspace(0, len(middle) - 1, _POINTS_BY_HAND).astype(int):
        client_lr, server_lr = middle[index]
        point = workload._replace(client_lr=client_lr, server_lr=server_lr)

        def run(point=point):
            given = x, y, stored["members"], stored["indices"]
            return by_hand.run(algorithm, point, *given, point.num_rounds)

        milliseconds, end = timed(run, point.num_rounds)
        times.append(milliseconds)
        ends[int(index)] = float(np.abs(end["kernel"]).sum())
    return {"ms": statistics.median(times), "kernel_l1": ends}


def measure_ours(name: str, algorithm: str) -> dict:
    """Return milliseconds per round for each size of grid, and the middle grid's models."""
    import jax

    jax.config.update("jax_num_cpu_devices", os.cpu_count())
    import fcojax

    workload = base(name)
    chosen, hparams, params, data = setting(workload, algorithm, *draw(workload))
    result, num_rounds, how = {}, workload.num_rounds, fcojax.Plan(*plan(workload))
    for num in GRIDS[name]:
        pairs = np.array(rates(num))
        grid, keys = grid_of(hparams, pairs), jax.random.key(0)[None]
        spread = fcojax.devices.spread(chosen, hparams, params, data, how, num_points=len(pairs))

        @jax.jit
        def sweep(grid, data, keys):
            given = chosen, grid, params, data, keys, how
            return fcojax.sweep(*given, num_rounds=num_rounds, eval_every=num_rounds)[0]

        def run(sweep=sweep, given=(grid, spread, keys)):
            return jax.block_until_ready(sweep(*given))

        milliseconds, ends = timed(run, num_rounds)
        result[len(pairs)] = {
            "ms": milliseconds,
            "kernel_l1": np.abs(np.asarray(ends["kernel"][:, 0])).sum(axis=1).tolist(),
        }
    return result


def compare(name: str, algorithm: str, repeats: int) -> dict:
    """Measure both sides in alternating fresh processes; return the JSON line as a dict."""
    with tempfile.TemporaryDirectory() as folder:
        draws = pathlib.Path(folder) / "draws.npz"
        store_draws(base(name), 0, draws)
        given = {"workload": name, "algorithm": algorithm}
        ours, theirs = [], []
        for _ in range(repeats):
            ours.append(in_fresh_process("sweep", **given, side="ours", draws=draws))
            theirs.append(in_fresh_process("sweep", **given, side="numpy", draws=draws))
    sizes = [num * num for num in GRIDS[name]]
    milliseconds = {
        size: statistics.median(result[str(size)]["ms"] for result in ours) for size in sizes
    }
    by_numpy = statistics.median(result["ms"] for result in theirs)
    middle = sizes[1]
    differences = [
        abs(ours[0][str(middle)]["kernel_l1"][int(index)] / norm - 1)
        for index, norm in theirs[0]["kernel_l1"].items()
    ]
    return {
        "workload": name,
        "algorithm": algorithm,
        "ms_per_round": {size: round(value, 4) for size, value in milliseconds.items()},
        "numpy_ms_per_round_and_point": round(by_numpy, 4),
        "ratio_per_point": round(milliseconds[middle] / middle / by_numpy, 4),
        "over_one_point": {
            size: round(value / milliseconds[1], 2) for size, value in milliseconds.items()
        },
        "largest_difference": max(differences),
        "repeats": repeats,
    }


def main(argv: list[str]) -> None:
    """Print the JSON line, or measure one side in this process."""
    del argv
    if FLAGS.side == "ours":
        print(json.dumps(measure_ours(FLAGS.workload, FLAGS.algorithm)))
    elif FLAGS.side == "numpy":
        print(json.dumps(measure_numpy(FLAGS.workload, FLAGS.algorithm, FLAGS.draws)))
    else:
        print(json.dumps(compare(FLAGS.workload, FLAGS.algorithm, FLAGS.repeats)))


if __name__ == "__main__":
    flags.DEFINE_enum("workload", "W4", list(GRIDS), "Which workload.")
    flags.DEFINE_enum("algorithm", "fed_dual_avg", by_hand.ALGORITHMS, "Which algorithm.")
    flags.DEFINE_integer("repeats", 3, "Fresh processes per side.", lower_bound=1)
    flags.DEFINE_enum("side", None, ["ours", "numpy"], "Measure one side in this process.")
    flags.DEFINE_string("draws", None, "File of cohorts and minibatches, for the numpy side.")
    app.run(main)
