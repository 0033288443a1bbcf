"""A round with a hundred nonzeros a row out of a million features, with and without ``lazy``.

    python -m benchmarks.sparse_features [--cohort=10] [--local_steps=10] [--repeats=7]

Prints one JSON line. FedDualAvg with l1, logistic loss, float32: 10,000 rows at 20 clients, a row
with 100 features out of 1,000,000 drawn alike; a cohort of 10 takes 10 steps of 10 rows each.
Milliseconds a round of blocks through ``fcojax.advance``, of the clock and of both cores together:
medians over the repeats. ``peak_mb`` is the most memory that the process has had resident (data,
library and compiler in it) by the end of the lazy runs, and of those on whole vectors, which come
after. Both sides run the same rounds; ``largest_difference`` is that of their kernels.
"""

import json
import resource
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

import fcojax
from fcojax.algorithms import fed_dual_avg, lazy
from fcojax.problems import SparseRows, logistic
from fcojax.transforms import euclidean, l1, named, on_subtree

FLAGS = flags.FLAGS
NUM_CLIENTS, HPARAMS = 20, fed_dual_avg.Hparams(client_lr=1.0, penalty_scale=1e-4)


def drawn(num_rows: int, num_features: int, width: int) -> fcojax.problems.Problem:
    """Logistic regression with a label that a tenth of the features decide."""
    rng = np.random.default_rng(0)
    index = rng.integers(num_features, size=(num_rows, width), dtype=np.int32)
    value = rng.standard_normal((num_rows, width), dtype=np.float32)
    truth = rng.standard_normal(num_features) * (rng.random(num_features) < 0.1)
    y = (np.sum(value * truth[index], axis=1) > 0).astype(np.int32)
    rows = {"x": SparseRows(index, value, num_features), "y": y}
    return logistic(fcojax.from_rows(rows, [num_rows // NUM_CLIENTS] * NUM_CLIENTS))


def peak_mb() -> float:
    """Return the largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(algorithm, problem, plan, rounds: int, repeats: int) -> dict:
    """Milliseconds a round over the repeats, sorted, and the kernel after the first two blocks."""
    dim = problem.train.examples["x"].num_features
    zero = {"kernel": jnp.zeros(dim), "bias": jnp.zeros(())}
    began = time.perf_counter()
    state = fcojax.start(algorithm, HPARAMS, zero, problem.train, jax.random.key(0), plan)

    def advance(state):
        state, _ = fcojax.advance(
            algorithm,
            HPARAMS,
            state,
            problem.train,
            plan,
            num_rounds=rounds,
            eval_every=rounds,
            donate=True,
        )
        return jax.block_until_ready(state)

    state = advance(state)
    first_s = time.perf_counter() - began
    state = advance(state)
    kernel = np.asarray(fcojax.read_model(algorithm, HPARAMS, state)["kernel"])
    clocks, each = (time.perf_counter, time.process_time), []
    for _ in range(repeats):
        began = [clock() for clock in clocks]
        state = advance(state)
        each.append([1e3 * (clock() - a) / rounds for clock, a in zip(clocks, began, strict=True)])
    wall, cpu = (sorted(column) for column in zip(*each, strict=True))
    return {"wall": wall, "cpu": cpu, "first_s": first_s, "kernel": kernel}


def compare(rounds: int, repeats: int, cohort: int, num_steps: int, quick: bool) -> dict:
    """Return the JSON line as a dict."""
    num_rows, num_features, width = (400, 5000, 10) if quick else (10_000, 1_000_000, 100)
    problem = drawn(num_rows, num_features, width)
    whole = fed_dual_avg(problem.loss, euclidean(on_subtree(l1(), named("kernel"))))
    plan = fcojax.Plan(fcojax.local_steps(num_steps, 10), fcojax.uniform_cohort(cohort_size=cohort))
    found, peaks = {}, {}
    for name, algorithm in (("lazy", lazy(whole)), ("whole", whole)):
        found[name] = timed(algorithm, problem, plan, rounds, repeats)
        peaks[name] = round(peak_mb())
    kernels = [side["kernel"] for side in found.values()]
    wall, cpu = (
        {name: statistics.median(side[clock]) for name, side in found.items()}
        for clock in ("wall", "cpu")
    )
    return {
        "rows": num_rows,
        "features": num_features,
        "nonzeros_a_row": width,
        "clients": NUM_CLIENTS,
        "cohort": cohort,
        "local_steps": num_steps,
        "ms_per_round": {name: round(ms, 2) for name, ms in wall.items()},
        "range_ms": {
            name: [round(side["wall"][0], 2), round(side["wall"][-1], 2)]
            for name, side in found.items()
        },
        "cpu_ms_per_round": {name: round(ms, 2) for name, ms in cpu.items()},
        "ratio": round(wall["lazy"] / wall["whole"], 3),
        "peak_mb": peaks,
        "first_s": {name: round(side["first_s"], 2) for name, side in found.items()},
        "model_nonzeros": int(np.count_nonzero(kernels[0])),
        "largest_weight": float(np.abs(kernels[0]).max()),
        "largest_difference": float(np.abs(kernels[0] - kernels[1]).max()),
    }


def main(argv: list[str]) -> None:
    """Print the JSON line."""
    del argv
    sizes = FLAGS.rounds, FLAGS.repeats, FLAGS.cohort, FLAGS.local_steps
    print(json.dumps(compare(*sizes, FLAGS.quick)))


if __name__ == "__main__":
    flags.DEFINE_integer("rounds", 20, "Rounds in a block.")
    flags.DEFINE_integer("repeats", 7, "How often a block is timed.")
    flags.DEFINE_integer("cohort", 10, "Clients a round, out of 20.")
    flags.DEFINE_integer("local_steps", 10, "K.")
    flags.DEFINE_boolean("quick", False, "Toy sizes.")
    app.run(main)
