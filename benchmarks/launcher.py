"""W9: the cost of a round in the launcher and in ``fcojax.sweep`` on the same grid.

    python -m benchmarks.launcher [--config=configs/lasso.py] [--algorithm=fed_dual_avg]
                                  [--rounds=500] [--repeats=5] [--quick]
    python -m benchmarks.launcher --quick --rounds=200 --repeats=3 --algorithm= --config=all

Both run in this process, in turn, after one run each that compiles: the launcher with its rows,
verdicts, checkpoints and models, and the sweep with the same observer at the same rounds. Times are
processor times over all cores. It prints one JSON line for each config, which commas separate;
without an algorithm each runs its first one.
"""

import json
import os
import pathlib
import statistics
import tempfile
import time
from typing import Any

import jax
from absl import app, flags, logging

import fcojax
from experiments.cli.console import Progress
from experiments.config import config_file
from experiments.execution.experiment import prepared
from experiments.execution.jobs import Job
from experiments.execution.sweep_runner import SweepRunner
from experiments.process.invocation import Watch
from experiments.storage.row_store import RowStore
from experiments.study import Sweep

FLAGS = flags.FLAGS


def runner_of(path: str, label: str, num_rounds: int, quick: bool) -> tuple[SweepRunner, Job]:
    """Return the launcher's runner for a config with fewer rounds, and one of its jobs."""
    file = config_file.load(path)
    config = file.get_config()
    if quick:
        file.quick(config)
    algorithms: Any = config.algorithms
    label = label or algorithms[0]
    config.update(algorithms=(label,), num_rounds=num_rounds, criterion_rounds=config.eval_every)
    config.update(eval_all_until=0)
    assert isinstance(file.experiment, Sweep), f"{path} is not a sweep"
    given = prepared(file.experiment, config)
    rows = RowStore(pathlib.Path())
    runner = SweepRunner(given, pathlib.Path(), rows, {}, Progress(), Watch())
    return runner, given.jobs[0]


def measure(path: str, label: str, num_rounds: int, repeats: int, quick: bool = False) -> dict:
    """Return processor milliseconds per round for both, and their ratio pair by pair."""
    runner, job = runner_of(path, label, num_rounds, quick)
    settings, problem = runner.settings, runner.problem
    grid = settings.scheduled(job.grid)
    placed = runner.place(job)
    keys, data = placed.keys, placed.data

    def launch():
        with tempfile.TemporaryDirectory() as workdir:
            runner.workdir = pathlib.Path(workdir)
            runner.rows = RowStore(runner.workdir / "rows.jsonl")
            runner.run(job)

    def sweep():
        jax.block_until_ready(
            fcojax.sweep(
                job.algorithm,
                grid,
                problem.init(keys[0]),
                data,
                keys,
                job.plan,
                num_rounds=num_rounds,
                eval_every=settings.keys.eval_every,
                observe=runner.observe,
                context=placed.context,
            )
        )

    times: dict[str, list[float]] = {"launcher": [], "sweep": []}
    for repeat in range(repeats + 1):
        for name, way in (("launcher", launch), ("sweep", sweep)):
            began = time.process_time()
            way()
            if repeat:  # the first one compiles
                times[name].append(1e3 * (time.process_time() - began) / num_rounds)
    ratios = [a / b for a, b in zip(times["launcher"], times["sweep"], strict=True)]
    return {
        "config": pathlib.Path(path).stem,
        "algorithm": job.label,
        "points": len(jax.tree.leaves(job.grid)[0]),
        "seeds": len(settings.seeds),
        "devices": len(jax.devices()),
        "cpu_ms_a_round": {name: round(statistics.median(t), 3) for name, t in times.items()},
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def main(argv: list[str]) -> None:
    del argv
    logging.set_verbosity(logging.WARNING)
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    paths = FLAGS.config.split(",")
    if paths == ["all"]:
        every = sorted(map(str, pathlib.Path("configs").glob("*.py")))
        paths = [path for path in every if isinstance(config_file.load(path).experiment, Sweep)]
    for path in paths:
        found = measure(path, FLAGS.algorithm, FLAGS.rounds, FLAGS.repeats, FLAGS.quick)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    flags.DEFINE_string("config", "configs/lasso.py", "whose grid is run; all for each sweep")
    flags.DEFINE_string(
        "algorithm", "fed_dual_avg", "one of the config's algorithms; empty for its first"
    )
    flags.DEFINE_integer("rounds", 500, "rounds of a run", lower_bound=10)
    flags.DEFINE_integer("repeats", 5, "runs of each that count", lower_bound=1)
    flags.DEFINE_bool("quick", False, "shrink the config as the launcher's --quick does")
    app.run(main)
