"""What a whole command of the launcher costs beside a script that calls ``fcojax.sweep``.

    python -m benchmarks.whole_runs [--config=lasso] [--algorithm=fed_dual_avg] [--repeats=3]
                                    [--before=FOLDER] [--same_rounds] [--config.KEY=VALUE ...]

Both are processes without a compilation cache, in turn: the launcher with its optimum, rows,
verdicts, checkpoints, models, figures and page, and a script that builds the same problem and calls
``fcojax.sweep`` with the same observer at every ``eval_every`` rounds. ``--same_rounds`` adds a
script that evaluates what the config does, also each round up to ``eval_all_until``: two calls of
``fcojax.advance``, since ``sweep`` evaluates at one interval. ``--before`` names another checkout,
whose launcher runs in turn as well, with its config as it is; without ``--algorithm`` only
launchers run, and all algorithms of the config. Times are of the processor, user and system, so
that other work on the machine lengthens them little. Prints one JSON line.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent.parent


def launcher(root: pathlib.Path, config: str, settings: list[str]) -> list[str]:
    """The command of the launcher, but for its workdir."""
    return [
        sys.executable,
        "-m",
        "experiments.run",
        f"--config={root}/configs/{config}.py",
        *settings,
    ]


def seconds_of(command: list[str], root: pathlib.Path) -> tuple[float, float]:
    """Run a command in a checkout; return its seconds of the processor and of the clock."""
    with tempfile.TemporaryDirectory() as place:
        known = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        known |= {"PYTHONPATH": os.fspath(root), "XDG_CACHE_HOME": place}
        if "experiments.run" in command:
            command = [*command, f"--workdir={place}/run"]
        began = time.monotonic()
        process = subprocess.Popen(
            command, cwd=root, env=known, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert process.stderr is not None
        said = process.stderr.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        diverged = process.returncode == 1 and "experiments.run" in command  # the best point
        if process.returncode and not diverged:
            raise SystemExit(f"{' '.join(command)} failed:\n{said[-2000:]}")
        return usage.ru_utime + usage.ru_stime, time.monotonic() - began


def sweep_alone(config: str, algorithm: str, quick: bool, same_rounds: bool) -> None:
    """Do what a user's script would do in place of the launcher."""
    import jax

    import fcojax
    from benchmarks.launcher import runner_of
    from experiments.execution.jobs import keys_of
    from fcojax.engine.grid import num_points, take
    from fcojax.engine.sweep import pad

    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    runner, job = runner_of(f"configs/{config}.py", algorithm, None, quick)
    keys, problem = keys_of(runner.settings.seeds), runner.problem
    params, first = problem.init(keys[0]), take(job.grid, 0)
    data = fcojax.devices.spread(
        job.algorithm, first, params, job.train, job.plan, num_points=num_points(job.grid)
    )
    settings, observed = runner.settings, (data, problem.validation)
    early = settings.eval_all_until * same_rounds
    if not early:
        found = fcojax.sweep(
            job.algorithm,
            job.grid,
            params,
            data,
            keys,
            job.plan,
            num_rounds=settings.num_rounds,
            eval_every=settings.eval_every,
            observe=runner.observe,
            context=observed,
        )
        return jax.device_get(found)
    grid = pad(job.grid, -(-num_points(job.grid) // data.num_sweep_shards) * data.num_sweep_shards)
    states = fcojax.start(job.algorithm, grid, params, data, keys, job.plan)
    for num_rounds, every in ((early, 1), (settings.num_rounds - early, settings.eval_every)):
        states, history = fcojax.advance(
            job.algorithm,
            grid,
            states,
            data,
            job.plan,
            num_rounds=num_rounds,
            eval_every=every,
            observe=runner.observe,
            context=observed,
            donate=True,
        )
        jax.device_get(history)
    jax.device_get(fcojax.read_model(job.algorithm, grid, states))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="lasso", help="name of a config")
    parser.add_argument("--algorithm", default="", help="one of its algorithms")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each")
    parser.add_argument("--before", help="folder of another checkout")
    parser.add_argument("--quick", action="store_true", help="as the launcher's --quick")
    parser.add_argument("--same_rounds", action="store_true", help="a script with the same looks")
    parser.add_argument("--side", choices=["sweep", "script"], help="run this in this process")
    given, settings = parser.parse_known_args()
    if given.side:
        return sweep_alone(given.config, given.algorithm, given.quick, given.side == "script")
    shared = [f"--config.algorithms={given.algorithm}"] if given.algorithm else []
    shared += ["--quick"] if given.quick else []
    sides = {"launcher": (launcher(HERE, given.config, settings + shared), HERE)}
    if given.before:
        before = pathlib.Path(given.before).resolve()
        sides["before"] = launcher(before, given.config, shared), before
    for side in ["sweep", "script"][: given.same_rounds + 1] if given.algorithm else []:
        alone = [sys.executable, "-m", "benchmarks.whole_runs", f"--side={side}"]
        alone += [f"--config={given.config}", f"--algorithm={given.algorithm}"]
        sides[side] = alone + ["--quick"] * given.quick, HERE
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(given.repeats):
        for name, side in sides.items():
            times[name].append(seconds_of(*side))
    cpu = {name: [pair[0] for pair in pairs] for name, pairs in times.items()}
    ours = cpu["launcher"]
    ratios = {
        f"launcher over {name}": [round(a / b, 3) for a, b in zip(ours, cpu[name], strict=True)]
        for name in sides
        if name != "launcher"
    }
    found = {
        "config": given.config,
        "algorithm": given.algorithm or "all",
        "settings": settings,
        "cpu_s": {name: [round(seconds, 1) for seconds in each] for name, each in cpu.items()},
        "wall_s": {name: [round(pair[1], 1) for pair in times[name]] for name in times},
        "ratios": ratios,
        "medians": {name: statistics.median(each) for name, each in ratios.items()},
        "load": os.getloadavg()[0],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
