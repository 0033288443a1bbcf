"""A federation of three real sites on this machine, beside its simulation.

    python -m benchmarks.sites [--algorithm=scaffold] [--rounds=20] [--timeout=40]
    python -m benchmarks.sites --algorithm=flower    # Flower's own FedAvg in numpy
    python -m benchmarks.sites --algorithm=select    # a path of strengths and the choice of one
    python -m benchmarks.sites --wrong               # three peers that are refused

Prints one JSON line. It starts a SuperLink and three SuperNodes of Flower on free ports of
127.0.0.1 and runs ``flwr run``: one answer comes after its round, one upload is cut off, and one
SuperNode is killed and started again. Every process that it starts is ended by its id, also after
a failure. Needs ``pip install 'fcojax[flower]'``.
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np
from absl import app, flags

from benchmarks.federations import (
    CUT,
    DEAD,
    KEY,
    LATE,
    NAMES,
    federation_of,
    rows_of,
    simulated,
    simulated_choice,
)
from fcojax import safetensors

FLAGS = flags.FLAGS
_APP = """[project]
name = "sites"
description = "sites"
version = "1.0.0"
license = "Apache-2.0"
dependencies = ["flwr>=1.41"]
[tool.flwr.app]
publisher = "fcojax"
[tool.flwr.app.components]
serverapp = "sites.server:app"
clientapp = "sites.client:app"
"""
_LINK = """[superlink]
default = "local"
[superlink.local]
address = "127.0.0.1:{}"
insecure = true
"""


class Processes:
    """The processes of one run, in a folder of their own."""

    def __init__(self, folder: pathlib.Path, told: dict):
        """Write the app and the rows.

        Args:
          folder: where everything is.
          told: what the apps are told.
        """
        self.folder, self._started = folder, []
        module = "sites_flower" if told["algorithm"] == "flower" else "sites_app"
        files = {"app/pyproject.toml": _APP, "app/sites/__init__.py": ""}
        for side in ("server", "client"):
            files[f"app/sites/{side}.py"] = (
                f"from benchmarks.{module} import {side}_app\n\napp = {side}_app()\n"
            )
        self._link = _free_port()
        files["home/config.toml"] = _LINK.format(self._link)
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, "utf-8")
        for name, rows in rows_of().items():
            np.savez(folder / f"{name}.npz", **rows)
        binaries = os.path.dirname(sys.executable)
        self.environment = os.environ | {
            "PATH": binaries + os.pathsep + os.environ["PATH"],
            "PYTHONPATH": os.fspath(pathlib.Path(__file__).parent.parent),
            "FLWR_HOME": os.fspath(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
            "JAX_ENABLE_X64": "1",
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": os.fspath(folder / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "FCOJAX_SITES": json.dumps(told | {"folder": os.fspath(folder)}),
        }

    def start_link(self) -> None:
        """Start the SuperLink and wait until it listens."""
        self.start(
            "flower-superlink",
            "--insecure",
            "--disable-runtime-dependency-installation",
            "--port",
            str(self._link),
        )
        _wait_for(lambda: _listens(self._link), "the SuperLink")

    def start(self, *command: str) -> subprocess.Popen:
        """Start a command with a log of its own.

        Args:
          *command: its words.
        """
        log = self.folder / f"{len(self._started)} {command[0]}.log"
        with open(log, "wb") as file:
            process = subprocess.Popen(
                command, env=self.environment, stdout=file, stderr=subprocess.STDOUT
            )
        self._started.append((process, log))
        return process

    def start_site(self, name: str) -> subprocess.Popen:
        """Start a SuperNode and wait until it is known to the SuperLink.

        Args:
          name: of the site.
        """
        node = {"site": name, "file": f"{self.folder / name}.npz", "folder": f"{self.folder}/kept"}
        process = self.start(
            "flower-supernode",
            "--insecure",
            "--superlink",
            f"127.0.0.1:{self._link}",
            "--port",
            str(_free_port()),
            "--node-config",
            " ".join(f'{key}="{value}"' for key, value in node.items()),
        )
        log = self._started[-1][1]
        _wait_for(lambda: "SuperNode ID" in log.read_text("utf-8", "replace"), f"site {name}")
        return process

    def log_of(self, process: subprocess.Popen) -> str:
        """Return what a process has printed.

        Args:
          process: one that was started here.
        """
        (log,) = [log for one, log in self._started if one is process]
        return log.read_text("utf-8", "replace")

    def end(self) -> None:
        """End all processes that were started, and those that they have started."""
        for process, _ in reversed(self._started):
            kill(process)


def kill(process: subprocess.Popen) -> None:
    """Kill a process and all that it has started.

    Args:
      process: the process.
    """
    below = [] if process.poll() is not None else _children(process.pid)
    for identity in [process.pid] * (process.poll() is None) + below:
        with contextlib.suppress(ProcessLookupError):
            os.kill(identity, signal.SIGKILL)
    process.wait()


def of_sites(algorithm: str, num_rounds: int, timeout: float) -> dict:
    """Return the JSON line of a run.

    Args:
      algorithm: a name in ``benchmarks.federations``, or ``flower``.
      num_rounds: number of rounds.
      timeout: seconds that the server waits for answers.
    """
    told = {"algorithm": algorithm, "rounds": num_rounds, "timeout": timeout, "sites": len(NAMES)}
    found = {"algorithm": algorithm, "rounds": num_rounds, "load": [os.getloadavg()[0]]}
    with _processes(told) as (processes, folder):
        sites = {name: processes.start_site(name) for name in NAMES}
        run = processes.start("flwr", "run", os.fspath(folder / "app"), "local", "--stream")
        if algorithm != "flower":
            _disturb(processes, sites, run, num_rounds)
        _wait_for(lambda: run.poll() is not None, "the last round", 90.0 * num_rounds)
        try:
            lines = (folder / "history.jsonl").read_text("utf-8").splitlines()
            model = algorithm != "flower" and safetensors.load(folder / "model.safetensors")
        except FileNotFoundError as error:
            raise RuntimeError(f"flwr run has no result:\n{processes.log_of(run)}") from error
    rows = [json.loads(line) for line in lines]
    found["load"].append(os.getloadavg()[0])
    if not model:
        return found | _seconds([row["seconds"] for row in rows[2:]])
    faults = {place for place in (LATE, CUT, DEAD) if place[0] < num_rounds}
    expected, history = simulated(federation_of(algorithm), KEY, faults, num_rounds)
    disturbed = {0, *(index for index, _ in faults)}
    quiet = [row["seconds"] for index, row in enumerate(rows[:-1]) if index not in disturbed]
    difference = np.asarray(expected) - model["params"]
    return (
        found
        | _seconds(quiet)
        | {
            "lost_as_simulated": [row["lost"] for row in rows] == history["lost"].tolist(),
            "largest_difference": float(np.abs(difference).max()),
            "largest_weight": float(np.abs(model["params"]).max()),
            "violation": rows[-1].get("violation"),
            "bytes_up": sum(row["bytes_up"] for row in rows),
            "bytes_down": sum(row["bytes_down"] for row in rows),
        }
    )


def of_choice(timeout: float) -> dict:
    """Return how far a path and a choice over sites are from ``fcojax.select``, as a JSON line.

    Args:
      timeout: seconds that the server waits for answers.
    """
    told = {"algorithm": "select", "timeout": timeout, "sites": len(NAMES)}
    with _processes(told) as (processes, folder):
        for name in NAMES:
            processes.start_site(name)
        run = processes.start("flwr", "run", os.fspath(folder / "app"), "local", "--stream")
        _wait_for(lambda: run.poll() is not None, "the choice", 3600.0)
        kept = folder / "choice.safetensors"
        if not kept.exists():
            raise RuntimeError(f"flwr run has no result:\n{processes.log_of(run)}")
        found = safetensors.load(kept)
    expected = simulated_choice(KEY)
    wanted = {
        "strengths": expected.path.strengths,
        "models": expected.path.models,
        "scores": expected.scores,
        "model": expected.model,
    }
    assert expected.fold_outcome is not None
    rounds = expected.path.outcome.rounds, expected.fold_outcome.rounds
    return {
        "algorithm": "select",
        "rounds": [found[name].ravel().tolist() for name in ("rounds", "fold_rounds")],
        "rounds_as_simulated": all(
            np.array_equal(found[name].ravel(), np.ravel(one))
            for name, one in zip(("rounds", "fold_rounds"), rounds, strict=True)
        ),
        "largest_difference": {
            name: float(np.abs(found[name] - np.asarray(one)).max()) for name, one in wanted.items()
        },
        "largest_weight": float(np.abs(found["models"]).max()),
    }


def of_wrong_peers(timeout: float) -> dict:
    """Return the sentences with which peers are refused, as a JSON line.

    Args:
      timeout: seconds that the server waits for a site.
    """
    told = {"algorithm": "fed_dual_avg", "rounds": 1, "timeout": timeout, "sites": 1}
    sentences, shown = {}, "ValueError: site"
    with _processes(told) as (processes, folder):
        right = json.loads(processes.environment["FCOJAX_SITES"])
        for wrong in ("algorithm", "version", "penalty"):
            processes.environment["FCOJAX_SITES"] = json.dumps(right | {"wrong": wrong})
            site = processes.start_site("Bern")
            run = processes.start("flwr", "run", os.fspath(folder / "app"), "local", "--stream")
            _wait_for(
                lambda run=run: shown in processes.log_of(run) or run.poll() is not None,
                f"{wrong} to be refused",
            )
            lines = processes.log_of(run).splitlines()
            sentences[wrong] = next(
                (line.strip() for line in lines if shown in line), "not refused"
            )
            site.terminate()  # so that it leaves
            site.wait()
    return sentences


def _disturb(
    processes: Processes, sites: dict[str, subprocess.Popen], run: subprocess.Popen, num_rounds: int
) -> None:
    """Kill a SuperNode before one round and start it again before the next."""
    index, client = DEAD
    for change in (
        lambda: kill(sites[NAMES[client]]),
        lambda: processes.start_site(NAMES[client]),
    ):
        if index < num_rounds:
            reached = processes.folder / f"round {index}"
            _wait_for(lambda r=reached: r.exists() or run.poll() is not None, f"{reached}")
            change()
            (processes.folder / f"go {index}").touch()
        index += 1


@contextlib.contextmanager
def _processes(told: dict) -> Iterator[tuple[Processes, pathlib.Path]]:
    with tempfile.TemporaryDirectory(prefix="sites", ignore_cleanup_errors=True) as name:
        processes = Processes(pathlib.Path(name), told)
        try:
            processes.start_link()
            yield processes, processes.folder
        finally:
            processes.end()


def _seconds(rounds: list[float]) -> dict:
    return {"seconds_a_round": statistics.median(rounds), "slowest_s": max(rounds)}


def _wait_for(ready: Callable[[], object], what: str, seconds: float = 900.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(
                f"{seconds:g} s have passed without {what}; the machine is too slow."
            )
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _children(identity: int) -> list[int]:
    """Return the ids of all processes below one."""
    found = []
    for file in pathlib.Path(f"/proc/{identity}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError):
            for child in map(int, file.read_text().split()):
                found += [child, *_children(child)]
    return found


def main(argv: list[str]) -> None:
    """Print the JSON line; a signal to end also ends what was started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(1))
    if FLAGS.wrong:
        print(json.dumps(of_wrong_peers(FLAGS.timeout)))
    elif FLAGS.algorithm == "select":
        print(json.dumps(of_choice(FLAGS.timeout)))
    else:
        print(json.dumps(of_sites(FLAGS.algorithm, FLAGS.rounds, FLAGS.timeout)))


if __name__ == "__main__":
    flags.DEFINE_string(
        "algorithm", "fed_dual_avg", "one of benchmarks.federations, flower, select"
    )
    flags.DEFINE_integer("rounds", 20, "number of rounds", lower_bound=6)
    flags.DEFINE_float("timeout", 40.0, "seconds that the server waits for answers")
    flags.DEFINE_bool("wrong", False, "try peers that are refused instead")
    jax.config.update("jax_enable_x64", True)
    app.run(main)
