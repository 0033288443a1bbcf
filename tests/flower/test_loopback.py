"""Real processes of Flower on this machine end with the simulation's model."""

import json

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'fcojax[flower]'")

from fcojax import safetensors
from tests.flower.loopback import CUT, DEAD, KEY, LATE, Processes, kill, wait_for
from tests.flower.three_sites import NAMES, federation_of, simulated

NUM_ROUNDS = 6

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("algorithm", ["fed_dual_avg", "scaffold"])
def test_sites_on_loopback_end_where_their_simulation_does(algorithm, tmp_path):
    told = {"algorithm": algorithm, "rounds": NUM_ROUNDS, "timeout": 40.0, "sites": len(NAMES)}
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
    told = {"algorithm": "fed_dual_avg", "rounds": 1, "timeout": 40.0, "sites": 1}
    shown = "ValueError: site Bern runs another federation"
    with Processes(tmp_path, **told) as processes:
        for wrong in ("algorithm", "version", "penalty"):
            site = processes.start_site("Bern", wrong=wrong)
            run = processes.start_run()
            wait_for(lambda r=run: shown in processes.log_of(r) or r.poll() is not None, wrong)
            assert shown in processes.log_of(run), processes.log_of(run)
            site.terminate()  # so that it leaves the SuperLink
            site.wait()
