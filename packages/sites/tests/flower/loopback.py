"""A federation of three sites in processes of Flower on this machine.

It starts a SuperLink and three SuperNodes on free ports of 127.0.0.1 and calls ``flwr run``: one
answer comes after its round, one upload is cut off, and one SuperNode is killed and started again;
or a site spoils its answers.
Every process is ended by its id, also after a failure. The processes of Flower import this module
for their apps; the environment variable ``FCOJAX_SITES`` says what to run.
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import jax
import numpy as np

import fcojax
import fcojax_sites
from fcojax.transforms import euclidean, group_l2, l1
from fcojax_sites import flower
from tests.flower import bad_peers
from tests.flower.three_sites import NAMES, federation_of, loss, rows_of

KEY = jax.random.key(5)
# (round, client): one reply is too late, one site is down, one connection is cut.
LATE, DEAD, CUT = (1, 0), (3, 1), (2, 2)


def failed(reply):
    """An app whose error has escape codes in it."""
    raise RuntimeError(bad_peers.ESCAPES[:-1])


# What a bad site sends in each of its first rounds.
WIRE = (
    bad_peers.ROUND["nothing"],
    bad_peers.ROUND["a number"],
    bad_peers.ROUND["text"],
    bad_peers.ROUND["no bytes"],
    bad_peers.ROUND["a web page"],
    bad_peers.ROUND["deep JSON"],
    bad_peers.ROUND["longer arrays"],
    bad_peers.ROUND["NaN"],
    bad_peers.ROUND["another run"],
    failed,
)
TOLD = json.loads(os.environ.get("FCOJAX_SITES", "{}"))
FOLDER = pathlib.Path(TOLD.get("folder", "."))

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


def federation() -> flower.Federation:
    """Return the federation, or that of a peer with another algorithm, version or penalty."""
    wrong, name = TOLD.get("wrong"), TOLD["algorithm"]
    if wrong == "version":
        fcojax.__version__ = "0.1"
    if wrong == "algorithm":
        name = "fed_avg"
    found = federation_of(name, loss=loss, penalty=l1())
    if wrong == "penalty":
        algorithm = fcojax.algorithms.fed_dual_avg(loss, euclidean(group_l2(axis=0)))
        found = flower.Federation(algorithm, found.plan, found.hparams, found.params, loss, l1())
    return found


def server_app():
    """Run the server, which waits while a SuperNode is killed or started."""

    def progress(row):
        index = int(row["round"])
        if "bad" in TOLD:
            return
        (FOLDER / f"round {index}").touch()
        while index in (DEAD[0], DEAD[0] + 1) and not (FOLDER / f"go {index}").exists():
            time.sleep(0.1)

    return flower.server_app(
        federation(),
        KEY,
        num_sites=TOLD["sites"],
        num_rounds=TOLD["rounds"],
        folder=FOLDER,
        eval_every=TOLD["rounds"],
        timeout=TOLD["timeout"],
        progress=progress,
    )


def client_app():
    """A client, some of whose replies come late or never, after its work is done."""
    from flwr.clientapp import ClientApp  # only Flower's processes certainly have it

    inner = flower.client_app(federation(), lambda node: dict(np.load(node["file"])))
    outer = ClientApp()

    def handle(message, context):
        reply = inner(message, context)
        _, facts = fcojax_sites.safetensors.loads(message.content["fcojax"]["bytes"])
        if "bad" in TOLD:
            return spoiled(reply, message, facts)
        place = int(facts.get("round", -1)), NAMES.index(context.node_config["site"])
        if facts["kind"] == "round" and place == CUT:
            raise RuntimeError("the line was cut")
        if facts["kind"] == "round" and place == LATE:
            while not (FOLDER / f"round {LATE[0] + 1}").exists():
                time.sleep(0.1)
        return reply

    for register in (outer.query(), outer.train(), outer.evaluate()):
        register(handle)
    return outer


def spoiled(reply, message, facts):
    """What a bad site sends: another kind in each round, or in place of its introduction."""
    from flwr.app import ConfigRecord, Message, RecordDict

    kind, of_joining = facts["kind"], {"introduction": "a web page", "rows": "-5 rows"}
    if kind == "join" and TOLD["bad"] in of_joining:
        spoil = (bad_peers.UNREADABLE | bad_peers.INTRODUCTION)[of_joining[TOLD["bad"]]]
    elif kind == "round" and TOLD["bad"] == "answers" and int(facts["round"]) < len(WIRE):
        spoil = WIRE[int(facts["round"])]
    else:
        return reply
    value = spoil(reply.content["fcojax"]["bytes"])
    record = {} if value is None else {"fcojax": ConfigRecord({"bytes": value})}
    return Message(RecordDict(record), reply_to=message)


class Processes:
    """The processes of one run, in their own folder, ended when the context is left."""

    def __init__(self, folder: pathlib.Path, **told):
        self.folder, self._started, self._link = folder, [], _free_port()
        files = {"app/pyproject.toml": _APP, "app/sites/__init__.py": ""}
        files["home/config.toml"] = _LINK.format(self._link)
        for side in ("server", "client"):
            files[f"app/sites/{side}.py"] = (
                f"from tests.flower.loopback import {side}_app\n\napp = {side}_app()\n"
            )
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, "utf-8")
        for name, rows in rows_of().items():
            np.savez(folder / f"{name}.npz", **rows)
        self.told = told | {"folder": os.fspath(folder)}
        self.environment = os.environ | {
            "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(  # the tests of this package before the library's own
                os.fspath(pathlib.Path(one).parent.parent)
                for one in (fcojax_sites.__file__, fcojax.__file__)
            ),
            "FLWR_HOME": os.fspath(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
            "JAX_ENABLE_X64": "1",
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": os.fspath(folder / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }

    def __enter__(self):
        link = ("--insecure", "--disable-runtime-dependency-installation")
        try:
            self._start("flower-superlink", *link, "--port", str(self._link))
            wait_for(lambda: _listens(self._link), "the SuperLink")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process, _ in reversed(self._started):
            kill(process)

    def start_site(self, name: str, *, command=("flower-supernode",), **told) -> subprocess.Popen:
        """Start a SuperNode and wait until it has registered with the SuperLink."""
        node = {"site": name, "file": f"{self.folder / name}.npz", "folder": f"{self.folder}/kept"}
        process = self._start(
            *command,
            "--insecure",
            "--superlink",
            f"127.0.0.1:{self._link}",
            "--port",
            str(_free_port()),
            "--node-config",
            " ".join(f'{key}="{value}"' for key, value in node.items()),
            **told,
        )
        wait_for(lambda: "SuperNode ID" in self.log_of(process), f"site {name}")
        return process

    def start_run(self) -> subprocess.Popen:
        """Start the rounds."""
        return self._start("flwr", "run", os.fspath(self.folder / "app"), "local", "--stream")

    def log_of(self, process: subprocess.Popen) -> str:
        """Return the output of a process."""
        (log,) = [log for one, log in self._started if one is process]
        return log.read_text("utf-8", "replace")

    def _start(self, *command: str, **told) -> subprocess.Popen:
        log = self.folder / f"{len(self._started)} {pathlib.Path(command[0]).name}.log"
        environment = self.environment | {"FCOJAX_SITES": json.dumps(self.told | told)}
        with open(log, "wb") as file:
            process = subprocess.Popen(
                command, env=environment, stdout=file, stderr=subprocess.STDOUT
            )
        self._started.append((process, log))
        return process


def kill(process: subprocess.Popen) -> None:
    """Kill a process and all processes that it has started."""
    below = [] if process.poll() is not None else _children(process.pid)
    for identity in [process.pid] * (process.poll() is None) + below:
        with contextlib.suppress(ProcessLookupError):
            os.kill(identity, signal.SIGKILL)
    process.wait()


def wait_for(ready, what: str, seconds: float = 600.0) -> None:
    """Wait until ``ready()`` is true."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(f"{seconds:g} s have passed without {what}")
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _children(identity: int) -> list[int]:
    found = []
    for file in pathlib.Path(f"/proc/{identity}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError):
            for child in map(int, file.read_text().split()):
                found += [child, *_children(child)]
    return found
