"""Flower's two apps, called in the same way as by Flower, without a network."""

import functools
import json
import pathlib
import re
import subprocess
import sys
import zipfile

import jax
import numpy as np
import pytest

from fcojax_sites import flower, safetensors
from fcojax_sites.studies.select.sites import _written
from tests.flower.three_sites import NAMES, federation_of, rows_of, simulated

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fcojax-sites[flower]'")

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

KEY, NUM_ROUNDS = jax.random.key(5), 6


@pytest.fixture(autouse=True)
def task():
    """The sender of messages, which Flower sets in its processes."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 7, 1, 1


class Grid:
    """Nodes in this process; a node is a number, its app and its context."""

    def __init__(self, federation, folder=None):
        self.federation, self.folder = federation, folder
        self.contexts, self.silent, self.sent, self.waiting = {}, frozenset(), 0, []
        self.spoiled = {}  # what a node sends in place of its record
        for name in NAMES:
            self.start(name)

    def start(self, name):
        """Start a node under a new number, with nothing in its context."""
        node = 1000 + len(self.contexts)
        config = {"site": name} | ({} if self.folder is None else {"folder": str(self.folder)})
        self.contexts[node] = Context(7, node, config, RecordDict(), {})
        return node

    def get_node_ids(self):
        return [node for node in self.contexts if node not in self.silent]

    def push_messages(self, messages):
        first = self.sent
        for message in messages:
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = f"{self.sent}"
            self.sent += 1
            app = flower.client_app(self.federation, lambda config: rows_of()[config["site"]])
            try:
                reply = app(message, self.contexts[node])
            except Exception as error:
                reply = Message(Error(1, str(error)), reply_to=message)
            if node in self.spoiled:
                record = RecordDict({"fcojax": ConfigRecord(self.spoiled[node])})
                reply = Message(record, reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = node
            self.waiting.append(reply)
        return [f"{index}" for index in range(first, self.sent)]

    def pull_messages(self, message_ids):
        """Return one reply in each call, as if they arrived in turn."""
        found, self.waiting = self.waiting[:1], self.waiting[1:]
        assert {reply.metadata.reply_to_message_id for reply in found} <= set(message_ids)
        return found


def run(grid, folder, timeout=5.0, **other):
    app = flower.server_app(
        grid.federation,
        KEY,
        num_sites=3,
        num_rounds=NUM_ROUNDS,
        folder=folder,
        timeout=timeout,
        **other,
    )
    app(grid, Context(7, 0, {}, RecordDict(), {}))
    rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return safetensors.load(folder / "model.safetensors")["params"], rows


@functools.cache
def expected(lost=()):
    return simulated(federation_of("scaffold"), KEY, lost, num_rounds=NUM_ROUNDS)[0]


def test_the_apps_compute_the_simulation(tmp_path):
    grid = Grid(federation_of("scaffold"))
    model, rows = run(grid, tmp_path)
    np.testing.assert_allclose(model, expected(), rtol=0, atol=1e-12)
    assert [row["round"] for row in rows] == list(range(1, NUM_ROUNDS + 1))
    # The state of a site is only in the context of its node.
    assert all(context.state for context in grid.contexts.values())


def test_a_node_that_comes_back_under_another_number_goes_on(tmp_path):
    grid = Grid(federation_of("scaffold"), tmp_path / "kept")

    def restart(row):
        if row["round"] == 2:
            grid.silent = frozenset({1001})
        if row["round"] == 4:
            grid.start("Bern")

    model, rows = run(grid, tmp_path, progress=restart)
    np.testing.assert_allclose(model, expected(((2, 1), (3, 1))), rtol=0, atol=1e-12)
    assert [row["lost"] for row in rows] == [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    files = sorted((tmp_path / "kept").iterdir())
    assert [file.stem.rpartition(" ")[0] for file in files] == [f"site {name}" for name in NAMES]
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)


def test_two_runs_at_once_keep_their_states_apart(tmp_path):
    """Both on the same nodes; a round of the one is between any two of the other."""
    grid, inner = Grid(federation_of("scaffold"), tmp_path / "kept"), {}

    def other(row):
        if not inner:
            inner["key"] = jax.random.key(6)
            transport = flower.over_grid(grid, 3, 5.0)
            inner["model"], _ = flower.coordinate(
                grid.federation, transport, inner["key"], num_rounds=NUM_ROUNDS
            )

    model, _ = run(grid, tmp_path, progress=other)
    np.testing.assert_allclose(model, expected(), rtol=0, atol=1e-12)
    wanted, _ = simulated(grid.federation, inner["key"], num_rounds=NUM_ROUNDS)
    np.testing.assert_allclose(inner["model"], wanted, rtol=0, atol=1e-12)


def test_a_node_without_a_name_and_too_few_sites_are_sentences(tmp_path, caplog):
    grid = Grid(federation_of("scaffold"))
    del grid.contexts[1002].node_config["site"]
    with pytest.raises(ValueError, match=r"2 of 3 sites have answered in 1 s; start the others"):
        run(grid, tmp_path, timeout=1.0)
    assert "the node config has no site" in caplog.text


def test_a_name_with_a_node_of_its_own_is_not_taken_by_another(tmp_path, caplog):
    grid = Grid(federation_of("scaffold"))

    def start_another(grid):
        return lambda row: grid.start("Bern") if row["round"] == 3 else None

    nodes = dict(zip(NAMES, grid.contexts, strict=True))
    model, _ = run(grid, tmp_path / "a", progress=start_another(grid), nodes=nodes)
    np.testing.assert_allclose(model, expected(), rtol=0, atol=1e-12)
    # Without the nodes, the newcomer has the name of the site, but not what the site kept.
    other = Grid(grid.federation)
    model, _ = run(other, tmp_path / "b", progress=start_another(other))
    np.testing.assert_allclose(model, expected(((3, 1), (4, 1), (5, 1))), rtol=0, atol=1e-12)
    assert caplog.text.count("site Bern: ") == caplog.text.count("not kept its state after") == 1
    nodes["Bern"], nodes["Cork"] = nodes["Cork"], nodes["Bern"]
    with pytest.raises(ValueError, match="1 of 3 sites have answered"):
        run(Grid(grid.federation), tmp_path / "c", timeout=1.0, nodes=nodes)
    assert "node 1001: it is refused: it introduces itself as site Bern, which is" in caplog.text


def test_a_node_that_sends_no_introduction_is_named_once_and_the_others_go_on(tmp_path, caplog):
    grid = Grid(federation_of("scaffold"))
    grid.spoiled[grid.start("Delft")] = {"other": 7}
    grid.spoiled[grid.start("Essen")] = {"bytes": 7}
    model, _ = run(grid, tmp_path)
    np.testing.assert_allclose(model, expected(), rtol=0, atol=1e-12)
    # The sites' own log, of rows that they do not have, is beside the server's here.
    lines = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert [line.partition(", not")[0] for line in lines] == [
        "node 1003: it is refused: it is of type NoneType",
        "node 1004: it is refused: it is of type int",
    ]


def test_an_error_that_quotes_a_cell_stays_at_the_site(caplog):
    def rows(config):
        raise ValueError("table.csv, line 2: age is 'Jane Doe', which is not a number")

    federation = federation_of("fed_dyn")
    app = flower.client_app(federation, rows)
    record = ConfigRecord({"bytes": flower.invitation(federation, "run")})
    message = Message(RecordDict({"fcojax": record}), dst_node_id=1, message_type="query")
    with pytest.raises(ValueError) as error:
        app(message, Context(7, 1, {"site": "Bern"}, RecordDict(), {}))
    # Flower sends the text of the last error to the server.
    assert str(error.value).startswith("the rows of site Bern cannot be read; the log of its Super")
    assert error.value.__context__ is None and "Jane Doe" in caplog.text


def built(folder):
    """Return the files of the package that Flower sends to every SuperNode."""
    command = [pathlib.Path(sys.executable).parent / "flwr", "build", "--app", folder / "app"]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    (package,) = folder.glob("*.fab")
    with zipfile.ZipFile(package) as files:
        return package.name, {name: files.read(name) for name in files.namelist()}


def test_the_package_that_travels_has_no_key(tmp_path):
    page = pathlib.Path(__file__).parents[2] / "docs" / "flower.md"
    blocks = re.findall(r"```(?:text|python)\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    (apps,) = [block for block in blocks if block.startswith("# client_app.py")]
    (project,) = [block for block in blocks if block.startswith("# pyproject.toml")]
    client, server = apps.split("# server_app.py\n")
    written = {"pyproject.toml": project, "mine/__init__.py": "", "mine/federation.py": blocks[0]}
    written |= {"mine/client_app.py": client, "mine/server_app.py": server}
    (tmp_path / "app" / "mine").mkdir(parents=True)
    for name, text in written.items():
        (tmp_path / "app" / name).write_text(text, "utf-8")
    _, files = built(tmp_path)
    assert set(files) == {*written, ".info/CONTENT"}
    assert b"np.fromfile" in files["mine/server_app.py"]
    assert not [
        name for name, text in files.items() if re.search(rb"random\.\w*[kK]ey\(|seed", text)
    ]


def test_the_package_of_a_study_is_the_same_in_every_run(tmp_path):
    both = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        _written(tmp_path / name, {"loss": "cox"})
        both.append(built(tmp_path / name))
    assert both[0] == both[1]
    assert json.loads(both[0][1]["study/study.json"]) == {"loss": "cox"}
    assert set(both[0][1]) == {
        "pyproject.toml",
        ".info/CONTENT",
        *(f"study/{name}" for name in ("__init__.py", "client.py", "server.py", "study.json")),
    }
