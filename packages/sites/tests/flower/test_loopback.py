"""Real processes of Flower on this machine end with the simulation's model."""

import hashlib
import json
import pathlib
import re
import sys
import zipfile

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fcojax-sites[flower]'")

from fcojax_sites import safetensors
from tests.flower.loopback import CUT, DEAD, KEY, LATE, WIRE, Processes, kill, wait_for
from tests.flower.three_sites import NAMES, federation_of, simulated

NUM_ROUNDS = 6

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("algorithm", ["fed_dual_avg", "scaffold"])
def test_sites_on_loopback_end_where_their_simulation_does(algorithm, tmp_path):
    told = {"algorithm": algorithm, "rounds": NUM_ROUNDS, "timeout": 120.0, "sites": len(NAMES)}
    with Processes(tmp_path, **told) as processes:
        sites = {name: processes.start_site(name) for name in NAMES}
        run = processes.start_run()
        # One SuperNode is down for a round: the server waits until it is killed, and started.
        index, client = DEAD
        for change in (
            lambda: kill(sites[NAMES[client]]),
            lambda: processes.start_site(NAMES[client]),
        ):
            reached = tmp_path / f"round {index}"
            wait_for(lambda r=reached: r.exists() or run.poll() is not None, f"{reached.name}")
            change()
            (tmp_path / f"go {index}").touch()
            index += 1
        wait_for(lambda: run.poll() is not None, "the last round")
        history = tmp_path / "history.jsonl"
        assert history.exists(), processes.log_of(run)
    rows = [json.loads(line) for line in history.read_text("utf-8").splitlines()]
    model = np.asarray(safetensors.load(tmp_path / "model.safetensors")["params"])
    faults = {LATE, CUT, DEAD}
    expected, wanted = simulated(federation_of(algorithm), KEY, faults, num_rounds=NUM_ROUNDS)
    assert [row["lost"] for row in rows] == wanted["lost"].tolist()
    np.testing.assert_allclose(model, expected, rtol=0, atol=1e-12)
    assert np.abs(model).max() > 0.01


def test_wrong_peers_on_loopback_are_refused_in_a_sentence(tmp_path):
    told = {"algorithm": "fed_dual_avg", "rounds": 1, "timeout": 120.0, "sites": 1}
    shown = "ValueError: site Bern runs another federation"
    with Processes(tmp_path, **told) as processes:
        for wrong in ("algorithm", "version", "penalty"):
            site = processes.start_site("Bern", wrong=wrong)
            run = processes.start_run()
            wait_for(lambda r=run: shown in processes.log_of(r) or r.poll() is not None, wrong)
            assert shown in processes.log_of(run), processes.log_of(run)
            site.terminate()  # so that it leaves the SuperLink
            site.wait()


def test_bad_peers_on_loopback_are_lost_uploads_or_named(tmp_path):
    """Ten kinds of uploads, a node that introduces itself with a web page, and one with -5 rows."""
    rounds = len(WIRE) + 1
    told = {
        "algorithm": "scaffold",
        "rounds": rounds,
        "timeout": 120.0,
        "sites": len(NAMES),
        "bad": "",
    }
    with Processes(tmp_path, **told) as processes:
        processes.start_site("Antwerp", bad="introduction")
        for name in (NAMES[0], NAMES[2]):
            processes.start_site(name)
        site = processes.start_site(NAMES[1], bad="answers")
        run = processes.start_run()
        wait_for(lambda: run.poll() is not None, "the last round", 1200.0)
        log, history = processes.log_of(run), tmp_path / "history.jsonl"
        assert history.exists(), log
        rows = [json.loads(line) for line in history.read_text("utf-8").splitlines()]
        model = np.asarray(safetensors.load(tmp_path / "model.safetensors")["params"])
        lost = {(index, 1) for index in range(len(WIRE))}
        expected, wanted = simulated(federation_of("scaffold"), KEY, lost, num_rounds=rounds)
        assert [row["lost"] for row in rows] == wanted["lost"].tolist()
        np.testing.assert_allclose(model, expected, rtol=0, atol=1e-12)
        assert log.count("site Bern: its answer does not count: it is of type NoneType") == 1, log
        assert "it is refused: these" in log and "its app has failed" in log
        assert "\x1b[2J" not in log
        site.terminate()
        site.wait()
        processes.start_site(NAMES[1], bad="rows")
        run = processes.start_run()
        shown = "site Bern is refused: the number of its rows is '-5'"
        wait_for(lambda: shown in processes.log_of(run) or run.poll() is not None, "the refusal")
        assert shown in processes.log_of(run), processes.log_of(run)


def test_a_site_runs_the_app_that_it_has_pinned_and_no_other(tmp_path, monkeypatch):
    page = pathlib.Path(__file__).parents[2] / "docs" / "flower.md"
    (script,) = re.findall("```text\n(# supernode.py.*?)```", page.read_text("utf-8"), re.DOTALL)
    (tmp_path / "supernode.py").write_text(script, "utf-8")
    monkeypatch.chdir(tmp_path)  # where a refused app is left
    told = {"algorithm": "fed_dual_avg", "rounds": 1, "timeout": 60.0, "sites": 1, "bad": ""}
    refused = tmp_path / "refused.fab"
    with Processes(tmp_path, **told) as processes:

        def run_with(pin, end):
            command = (sys.executable, "supernode.py", pin)
            site = processes.start_site("Bern", command=command)
            run = processes.start_run()
            wait_for(lambda: run.poll() is not None, end)
            assert end in processes.log_of(run), processes.log_of(run) + processes.log_of(site)
            site.terminate()
            site.wait()
            return processes.log_of(site)

        log = run_with("none", "its app has failed: The FAB could not be verified")
        assert "Start `flwr-clientapp` process" not in log
        with zipfile.ZipFile(refused) as app:
            names = set(app.namelist())
            assert names == {
                "pyproject.toml",
                ".info/CONTENT",
                *(f"sites/{side}.py" for side in ("__init__", "client", "server")),
            }
        found = hashlib.sha256(refused.read_bytes()).hexdigest()
        assert "Start `flwr-clientapp` process" in run_with(found, "ServerApp finished running")
    assert safetensors.load(tmp_path / "model.safetensors")["params"].any()
