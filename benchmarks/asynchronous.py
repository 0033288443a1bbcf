"""W1 with an asynchronous server that keeps more and more messages, beside the synchronous one.

    python -m benchmarks.asynchronous [--workload=W1] [--repeats=100]

Each round has ten uploads in both. It prints one JSON line for each number of kept messages:
milliseconds a round, the least of alternating blocks of 50 rounds in one process; its ratio to the
synchronous server; and what the compiled program does in a round.
"""

import functools
import json

import jax
from absl import app, flags

import fcojax
from benchmarks.alternating import alternate
from benchmarks.compiled_for import launches
from benchmarks.settings import plan, setting
from benchmarks.workloads import WORKLOADS, draw
from fcojax import clock

FLAGS = flags.FLAGS
_ROUNDS = 50


def main(argv: list[str]) -> None:
    """Compile all programs, run them in turn, and print the lines."""
    del argv
    workload = WORKLOADS[FLAGS.workload]
    algorithm, hparams, params, data = setting(workload, "fed_dual_avg", *draw(workload))
    chosen, num_clients = fcojax.Plan(*plan(workload)), data.num_clients
    speeds = clock.log_normal(num_clients, median=1.0, spread=1.0)
    buffer = chosen.cohort.size(num_clients)
    order = clock.arrivals(speeds, buffer=buffer, num_rounds=500)
    late = chosen._replace(cohort=order.sampler)
    # The second has the cohorts of the asynchronous servers: what the cohorts alone change.
    sides = {"synchronous": (algorithm, chosen), "same cohorts": (algorithm, late)}
    for kept in (0, 4, 16, 64):
        sides[str(kept)] = clock.asynchronous(algorithm, kept), late
    compiled, ways = {}, {}
    for name, (own, its_plan) in sides.items():
        rounds = functools.partial(
            fcojax.run, own, plan=its_plan, num_rounds=_ROUNDS, eval_every=_ROUNDS
        )
        arguments = hparams, params, data, jax.random.key(0)
        compiled[name] = jax.jit(rounds).lower(*arguments).compile()
        ways[name] = functools.partial(compiled[name], *arguments)
    times = {name: min(found) for name, found in alternate(ways, FLAGS.repeats).items()}
    for name, seconds in times.items():
        found = launches(compiled[name].as_text())
        row = {"messages": name, "ms_per_round": 1e3 * seconds / _ROUNDS}
        row |= {"ratio": seconds / times["synchronous"], "kernels": found.kernels / _ROUNDS}
        print(json.dumps(row | {"mb_moved": found.bytes / _ROUNDS / 1e6}), flush=True)


if __name__ == "__main__":
    flags.DEFINE_string("workload", "W1", "which workload of benchmarks.workloads")
    flags.DEFINE_integer("repeats", 100, "how often each program runs")
    app.run(main)
