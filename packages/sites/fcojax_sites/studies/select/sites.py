"""The same study over sites that keep their rows: in this process, or as SuperNodes of Flower.

Both build the federation from the config and the description of the table in it, so that a run in
one process, one over SuperNodes on this machine and one over real sites are the same messages.
"""

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import fcojax
import fcojax_sites
from fcojax.problems import SparseRows
from fcojax_sites import flower
from fcojax_sites.studies.select.files import (
    Config,
    Description,
    Table,
    header_of,
    names_in,
    read_file,
    tables_in,
)
from fcojax_sites.studies.select.problem import LOSSES, labelled, loaded, outcome, penalty

KINDS = ("linear", "logistic", "poisson", "cox")  # the losses whose sites answer by sums
_LEAST_PATIENTS = 20  # of a site, unless its node config has another number
STUDY, DONE, PROGRESS = "study.json", "rows.jsonl", "progress.txt"
_APP = """[project]
name = "study"
version = "1.0.0"
description = "A study over sites"
license = "Apache-2.0"
dependencies = ["flwr>=1.41"]
[tool.flwr.app]
publisher = "study"
fab-include = ["study/*.py", "study/*.json"]
[tool.flwr.app.components]
serverapp = "study.server:app"
clientapp = "study.client:app"
[tool.flwr.app.config]
folder = ""
"""
_SIDE = """from fcojax_sites.studies.select.apps import {side}_app
app = {side}_app(__file__)
"""
_LINK = '[superlink]\ndefault = "study"\n[superlink.study]\naddress = "{}"\ninsecure = {}\n'


def federation_of(config: Config, names: list[str]) -> flower.Federation:
    """Return the federation of a config; raise ``ValueError`` for what sites cannot answer.

    Args:
      config: the config.
      names: the names of the features.
    """
    if config.loss not in KINDS:
        raise ValueError(
            f"loss is {config.loss}, which sites do not sum; pass {', '.join(KINDS)}, or "
            "--config.method=rounds."
        )
    if config.codec is not None:
        raise ValueError(
            f"codec is {config.codec!r}, but sums are not compressed; pass --config.method=rounds."
        )
    Description.of(config).per(names)  # so that a wrong unit is refused before the fit
    return flower.tabular(config.loss, penalty(config, names), len(names))


def rows_of(table: Table, config: Config, rows: Any = slice(None)) -> dict[str, np.ndarray]:
    """Return the rows of a site as the federation takes them.

    Args:
      table: the table that has them.
      config: the config.
      rows: which of its rows are the site's.
    """
    if isinstance(table.x, SparseRows):
        raise ValueError("sites sum dense tables; pass --config.method=rounds for sparse features.")
    event = None if table.event is None else table.event[rows]
    own = table._replace(x=table.x[rows], y=table.y[rows], event=event)
    kept = labelled(own, config)
    fields, kind = outcome(own, kept, config), LOSSES[config.loss].target
    if kind == "class" and not np.isin(fields["y"], (0, 1)).all():
        raise ValueError(
            f"{config.target} has values other than 0 and 1; write 0 and 1, or pass "
            "--config.positive_above=NUMBER."
        )
    if kind == "count" and (fields["y"] < 0).any():
        raise ValueError(f"{config.target} is negative in a row; pass counts.")
    x = np.asarray(own.x, float)[kept]
    return {
        "x": np.nan_to_num(x),
        "present": (~np.isnan(x)).astype(float),
        # Summed over the rows this is the number of rows without an outcome.
        "left_out": np.full(len(x), (~kept).sum() / len(x)),
        **{name: values.astype(float) for name, values in fields.items()},
    }


def in_process(config: Config) -> tuple[flower.Federation, flower.Transport, list[str]]:
    """Return the federation, its sites in this process, and the names of the features."""
    table = loaded(config)
    if table.site is None:
        raise ValueError(
            "the rows have no sites; name their column as --config.client, or pass a folder with a "
            "file for each site."
        )
    federation = federation_of(config, table.names)
    of_sites = {
        str(name): rows_of(table, config, np.flatnonzero(table.site == name))
        for name in np.unique(table.site)
    }
    return federation, flower.in_process(federation, of_sites), table.names


def site_file(node: Mapping[str, Any], config: Config) -> dict[str, np.ndarray]:
    """Return the rows in the ``file`` of a site; a column of sites in it is ignored.

    Raise ``ValueError`` if fewer than its ``least_patients`` have an outcome, by default 20.

    Args:
      node: the node config of the site.
      config: the config.
    """
    found = rows_of(read_file(pathlib.Path(str(node["file"])), config), config)
    size, least = len(found["x"]), int(node.get("least_patients", _LEAST_PATIENTS))
    if size < least:
        raise ValueError(
            f"{size} patients have an outcome, and this site answers for {least} or more, the "
            "least_patients of its node config."
        )
    return found


def study_of(file: str) -> tuple[Config, list[str]]:
    """Return the config beside the file of an app, and the names of the features."""
    text = (pathlib.Path(file).parent / STUDY).read_text("utf-8")
    config = types.SimpleNamespace(**json.loads(text))
    given = Description.of(config)
    return config, given.feature_names(given.columns([*_named(given)], "the study"))


def _named(given: Description) -> list[str]:
    """Return the columns that a description names."""
    named = [*names_in(given.features), *(getattr(given, key) for key in given.outcome)]
    return list(dict.fromkeys(named))


def over_flower(config: Config) -> Iterator[dict]:
    """Run the study over SuperNodes, and yield the rows that its ServerApp writes.

    ``config.superlink`` is the address of a SuperLink on this machine, or ``here`` to start one,
    with a SuperNode for each file in ``config.data_dir``.
    """
    if config.method != "sums":
        raise ValueError(
            "method is rounds, and a path of rounds over sites takes hours; pass "
            "--config.method=sums."
        )
    values = json.loads(json.dumps(dict(config.items())))
    here = config.superlink == "here"
    files = tables_in(pathlib.Path(config.data_dir)) if here else []
    if here:
        values["features"] = ",".join(Description.of(config).columns(header_of(files[0]), "a file"))
        values["drop"] = ()
        values["sites"] = ",".join(file.stem for file in files)
    if not values["features"]:
        raise ValueError("features is empty; name the columns that all sites have, in one order.")
    if not values["sites"]:
        raise ValueError("sites is empty; name the sites, as in --config.sites=Antwerp,Bern.")
    values["client"] = ""  # a site is its own
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        environment = _written(folder, values)
        address = config.superlink
        if here:
            address = stack.enter_context(_local(folder, environment, files))
        (folder / "home" / "config.toml").write_text(link_to(address, config), "utf-8")
        # Not in the app, which is the same in each run of a study, so that sites can pin it.
        own = ("--stream", "--run-config", f"folder={json.dumps(os.fspath(folder))}")
        run = stack.enter_context(
            _process(folder, environment, "flwr", "run", folder / "app", "study", *own)
        )
        told = 0
        while not (folder / DONE).exists():
            told = _tell(folder / PROGRESS, told)
            if run.poll() is not None and not (folder / DONE).exists():
                raise ValueError(f"the run has ended: {_last_error(folder)}")
            time.sleep(0.2)
        _tell(folder / PROGRESS, told)
        for line in (folder / DONE).read_text("utf-8").splitlines():
            yield json.loads(line)


def _tell(file: pathlib.Path, told: int) -> int:
    """Print the lines of a file after the first ``told``, and return how many there are."""
    lines = file.read_text("utf-8").split("\n")[:-1] if file.exists() else []
    for line in lines[told:]:
        print(line, flush=True)
    return len(lines)


def link_to(address: str, config: Config) -> str:
    """Return Flower's configuration of the SuperLink at an address."""
    given = getattr(config, "root_certificates", "")  # a file of a study may be older
    if config.superlink == "here" or not given:
        plain = config.superlink == "here" or config.insecure
        return _LINK.format(address, "true" if plain else "false")
    authority = pathlib.Path(given).expanduser().resolve()
    if not authority.is_file():
        raise ValueError(
            f"root_certificates: {authority} is no file; name that of the authority which signed "
            "the SuperLink's certificate, as in ca.crt."
        )
    return _LINK.format(address, "false") + f"root-certificates = {json.dumps(str(authority))}\n"


def _written(folder: pathlib.Path, values: dict[str, Any]) -> dict[str, str]:
    """Write the app and return the environment of Flower's processes."""
    files = {"app/pyproject.toml": _APP, "app/study/__init__.py": "", "home/config.toml": ""}
    files |= {f"app/study/{side}.py": _SIDE.format(side=side) for side in ("server", "client")}
    files[f"app/study/{STUDY}"] = json.dumps(values)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    modules = (fcojax.__file__, fcojax_sites.__file__)
    packages = [os.fspath(pathlib.Path(one).parent.parent) for one in modules]
    known = os.environ.get("PYTHONPATH")
    return os.environ | {
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join(filter(None, [*packages, known])),
        "FLWR_HOME": os.fspath(folder / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
    }


@contextlib.contextmanager
def _process(folder: pathlib.Path, environment: dict[str, str], *command: Any):
    """Start a process with its own log, and end it and its children afterwards."""
    words = [os.fspath(word) for word in command]
    log = folder / f"{len(list(folder.glob('*.log')))} {words[0]}.log"
    with open(log, "wb") as file:
        # Its own group, so that the apps that it starts end with it.
        process = subprocess.Popen(
            words, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 15)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


@contextlib.contextmanager
def _local(folder: pathlib.Path, environment: dict[str, str], files: list[pathlib.Path]):
    """Start a SuperLink and a SuperNode for each file on 127.0.0.1; yield the address."""
    port = _free_port()
    address = f"127.0.0.1:{port}"
    link = ("--insecure", "--disable-runtime-dependency-installation", "--port", str(port))
    with contextlib.ExitStack() as stack:
        stack.enter_context(_process(folder, environment, "flower-superlink", *link))
        end = time.monotonic() + 120
        while not _listens(port):
            if time.monotonic() > end:
                raise ValueError(f"the SuperLink does not start: {_last_error(folder)}")
            time.sleep(0.1)
        for file in files:
            node = f'site="{file.stem}" file="{file.resolve()}"'
            own = ("--port", str(_free_port()), "--node-config", node)
            command = ("flower-supernode", "--insecure", "--superlink", address, *own)
            stack.enter_context(_process(folder, environment, *command))
        yield address


def _last_error(folder: pathlib.Path) -> str:
    """Return what the logs say: the last error of a run, its sites, and the first error of a site.

    Without one it is what a frame of Flower says, or the last line.
    """
    logs = {log.name: log.read_text("utf-8", "replace") for log in sorted(folder.glob("*.log"))}
    raised = {name: re.findall(r"^\w+(?:Error|Exception): .*", logs[name], re.M) for name in logs}
    of_run = [found[-1] for name, found in raised.items() if found and "supernode" not in name]
    of_site = [found[0] for name, found in raised.items() if found and "supernode" in name]
    lines = "\n".join(logs.values())
    named = re.findall(r"^(?:WARNING:fcojax_sites.flower:)?((?:node \d+|site .+): .*)", lines, re.M)
    if of_run or of_site:
        return " ".join([*of_run[-1:], *named, *of_site[:1]])[:500]
    texts = list(logs.values())
    for text in reversed(texts):
        if "╭─ Error" in text:
            framed = text.rpartition("╭─ Error")[2].partition("╰")[0].splitlines()[1:]
            return " ".join(" ".join(framed).replace("│", " ").split())[:300]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    errors = [line for line in lines if "Error" in line or "ERROR" in line]
    return (errors or lines or ["it wrote nothing"])[-1][:300]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
