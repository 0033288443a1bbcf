"""Private runs of the command: epsilon in rows, a ledger, a budget, and no reused noise."""

import json

import numpy as np
import pytest

import fcojax
from experiments.execution.accounts import delta_of, ledger, side_by_side
from experiments.process.invocation import UserError
from experiments.report import rows as tidy
from experiments.storage.row_store import RowStore
from experiments.storage.workdir import Workdir
from fcojax import privacy
from fcojax.privacy import together
from tests.experiments.test_run import TOY, launch
from tests.experiments.toys import Killed, Toy, killed_after

PRIVATE = [
    *(argument for argument in TOY if "cohort_size" not in argument),
    "--config.algorithms=fed_dual_avg,fed_mid",
    "--config.participation=coin_flips:0.5",
    "--config.cohort_size=None",
    "--config.clip_norm=0.3",
    "--config.noise_multiplier=4.0",
    "--config.privacy_delta=0.01",
]
COINS = fcojax.coin_flips(0.5)


def spent(num_rounds):
    return privacy.total_epsilon([privacy.Releases(COINS, 4.0, num_rounds)], 6, 0.01)


def spent_by_all(num_rounds):
    """The ledger of two algorithms with different cohorts, and two points each with equal ones."""
    return privacy.total_epsilon([privacy.Releases(COINS, 4.0 / 2**0.5, 2 * num_rounds)], 6, 0.01)


@pytest.mark.slow
def test_rows_say_what_they_cost_and_the_page_what_all_cost_and_other_data_are_refused(tmp_path):
    arguments = [*PRIVATE, f"--workdir={tmp_path}"]
    done = launch(*arguments)
    assert done.returncode == 0, done.stderr
    rows = tidy.load(tmp_path / "rows.jsonl")
    assert {row["round"] for row in rows} == {0, 5, 10, 15, 20}
    for row in rows:
        np.testing.assert_allclose(row["privacy_epsilon"], spent(row["round"]), rtol=1e-12)
    told = json.loads((tmp_path / "summary.json").read_text())["privacy"]
    everything = "epsilon of all together, with the choice of the best"
    assert told["runs with visible results"] == 4 and told["rounds of all of them"] == 80
    np.testing.assert_allclose(told[everything], spent_by_all(20), rtol=1e-12)
    assert everything in (tmp_path / "index.html").read_text()

    known = json.loads((tmp_path / "config.json").read_text())
    tidy.write_json(tmp_path / "config.json", known | {"data": "of another population"})
    (tmp_path / "summary.json").unlink()  # no longer finished
    refused = launch(*arguments)
    assert refused.returncode == 2 and "private run on other data" in refused.stderr
    assert len(refused.stderr.splitlines()) <= 2


@pytest.mark.slow
def test_a_budget_ends_all_runs_with_the_last_round_within_it(tmp_path):
    budget = (spent_by_all(7) + spent_by_all(8)) / 2  # four runs share the budget
    done = launch(*PRIVATE, f"--workdir={tmp_path}", f"--config.privacy_budget={budget}")
    assert done.returncode == 0, done.stderr
    assert "stopped after round 7, the last that is allowed" in done.stderr
    rows = tidy.load(tmp_path / "rows.jsonl")
    assert {row["round"] for row in rows} == {0, 5, 7}
    told = json.loads((tmp_path / "summary.json").read_text())["privacy"]
    assert "stopped after round 7" in told["budget"] and told["rounds of all of them"] == 28
    assert told["budget"].partition(" is spent")[0] in (tmp_path / "index.html").read_text()


def test_a_run_without_noise_has_no_epsilon():
    assert Toy(clip_norm=0.3).settings.plan.uploads.transforms == (privacy.gaussian(0.3),)
    with pytest.raises(ValueError, match="noise_multiplier needs clip_norm"):
        Toy(noise_multiplier=1.0)
    with pytest.raises(ValueError, match="privacy_budget needs privacy_delta"):
        Toy(clip_norm=0.3, noise_multiplier=1.0, privacy_budget=2.0)


def test_a_large_delta_is_said_in_the_summary(tmp_path):
    """The default for four clients, 0.22, exceeds a tenth of 1 / 4."""
    toy = Toy(cohort_size=None, participation="coin_flips:0.5", clip_norm=0.3, noise_multiplier=4.0)
    point = {name: float(column[0]) for name, column in toy.job.grid._asdict().items()}
    row = point | {"algorithm": toy.job.label, "seed": 0, "round": 5, "status": ""}
    tidy.write(tmp_path / "rows.jsonl", [row])
    told = ledger([toy.job], toy.settings, RowStore(tmp_path / "rows.jsonl"))
    assert told["delta"] == 4**-1.1 and told["rounds of all of them"] == 5
    assert told["large delta"].startswith("Delta is 0.218 for 4 clients; pass one below 0.025")


def test_one_client_has_no_delta_by_default():
    settings = Toy().settings
    with pytest.raises(UserError, match="privacy_delta is 1 by default with one client"):
        delta_of(settings, fcojax.from_clients([{"a": np.ones(1)}]))
    assert delta_of(settings._replace(keys=settings.keys._replace(privacy_delta=0.5)), None) == 0.5


@pytest.mark.slow
@pytest.mark.gate
def test_noise_goes_on_after_a_kill_with_what_it_was(tmp_path):
    """After the last checkpoint the same rounds are repeated with the same noise."""
    toy = Toy(
        algorithms=("fed_avg",),
        client_lr=(0.003, 0.01),
        num_rounds=70,
        cohort_size=None,
        participation="coin_flips:0.5",
        clip_norm=0.3,
        noise_multiplier=1.0,
        privacy_delta=0.01,
        broadcast="top_k:0.3",
    )
    whole = toy.run(tmp_path / "whole")
    for blocks in (1, 6):
        with pytest.raises(Killed):
            toy.run(tmp_path / f"{blocks}", share=killed_after(blocks))
        assert toy.run(tmp_path / f"{blocks}") == whole


def test_runs_that_end_early_are_accounted_beside_those_with_the_same_cohorts():
    """Three runs to round 5, two of them to round 7, one of them to round 10."""
    runs = [privacy.Releases(COINS, 2.0, rounds) for rounds in (10, 5, 7)]
    found = {entry.noise: entry.num_rounds for entry in side_by_side(runs)}
    assert found == {together([2.0] * 3): 5, together([2.0] * 2): 2, 2.0: 3}


def test_a_folder_keeps_the_data_of_a_private_run(tmp_path):
    workdir = Workdir(str(tmp_path), False, "yes", print)
    tidy.write_json(tmp_path / "config.json", {"config": {}})
    workdir.refuse_other_data("one")
    workdir.refuse_other_data("one")
    with pytest.raises(UserError, match="whose noise this one would repeat"):
        workdir.refuse_other_data("another")
