"""The command as a user types it, in a separate process, on a toy problem."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from experiments.report import rows as tidy

pytestmark = pytest.mark.gate

ROOT = pathlib.Path(__file__).parent.parent.parent
TOY = [
    "--config=configs/lasso.py",
    "--config.num_clients=6",
    "--config.num_examples=8",
    "--config.dim=12",
    "--config.num_true=4",
    "--config.cohort_size=3",
    "--config.num_steps=2",
    "--config.batch_size=4",
    "--config.num_rounds=20",
    "--config.eval_every=5",
    "--config.eval_all_until=0",
    "--config.client_lr=0.01,0.03",
    "--config.server_lr=1.0",
    "--config.criterion_rounds=10",
    "--config.seeds=0",
]


def command(*arguments):
    return [sys.executable, "-m", "experiments.run", *arguments]


def environment():
    cache = os.fspath(ROOT / ".jax_cache")
    return os.environ | {"JAX_COMPILATION_CACHE_DIR": cache, "MPLCONFIGDIR": cache}


def launch(*arguments, cwd=ROOT):
    around = environment() | {"PYTHONPATH": os.fspath(ROOT)}
    return subprocess.run(command(*arguments), cwd=cwd, env=around, capture_output=True, text=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return a finished run of two algorithms, of which one has a diverging point."""
    workdir = tmp_path_factory.mktemp("runs") / "toy"
    arguments = [
        *(argument for argument in TOY if "client_lr" not in argument and "seeds" not in argument),
        f"--workdir={workdir}",
        "--config.algorithms=fed_dual_avg,fed_mid",
        "--config.client_lr=0.03,1e6",
        "--config.seeds=0,1",
    ]
    done = launch(*arguments)
    assert done.returncode == 0, done.stderr
    return workdir, arguments, done


def test_a_finished_run_leaves_rows_models_figures_and_a_page(finished):
    workdir, _, done = finished
    left = {path.relative_to(workdir).as_posix() for path in workdir.rglob("*") if path.is_file()}
    assert {
        "config.json",
        "rows.jsonl",
        "summary.json",
        "models/fed_dual_avg.npz",
        "models/fed_mid.npz",
        "figures/curves.png",
        "index.html",
    } <= left
    assert "FedDualAvg" in done.stdout and "Traceback" not in done.stderr
    config = json.loads((workdir / "config.json").read_text())
    assert config["config"]["num_clients"] == 6 and "jax" in config["versions"]
    model = np.load(workdir / "models" / "fed_dual_avg.npz")
    assert model["kernel"].shape == (12,) and model["bias"].shape == ()


def test_rows_say_all_that_they_must(finished):
    workdir, _, _ = finished
    rows = tidy.load(workdir / "rows.jsonl")
    # 2 algorithms x 2 seeds x the start and 4 evaluations; the other rate diverges at once.
    assert len(rows) == 2 * 2 * (5 + 2)
    wanted = "algorithm client_lr server_lr penalty_scale seed round status objective loss"
    wanted += " suboptimality bytes_up bytes_down density precision recall f1 validation_loss"
    for row in rows:
        assert set(wanted.split()) <= set(row)
    healthy = [row for row in rows if row["client_lr"] == pytest.approx(0.03)]
    assert all(row["suboptimality"] > -1e-6 for row in healthy)
    # Three clients per round; z (12 + 1 floats) and the elapsed time are sent down, and up as well.
    last = next(row for row in reversed(healthy) if row["algorithm"] == "fed_dual_avg")
    assert last["round"] == 20
    assert last["bytes_down"] == last["bytes_up"] == 20 * 3 * (13 + 1) * 4


def test_a_diverging_point_gets_a_verdict_and_stops_nobody(finished):
    workdir, _, _ = finished
    summary = json.loads((workdir / "summary.json").read_text())
    for name in ("fed_dual_avg", "fed_mid"):
        entry = summary["algorithms"][name]
        assert entry["best"]["client_lr"] == pytest.approx(0.03)
        assert not entry["verdict"].startswith("diverged")
        assert len(entry["diverged"]) == 2
        assert entry["diverged"][0]["verdict"].startswith("diverged by round 5")
    bad = [r for r in tidy.load(workdir / "rows.jsonl") if r["client_lr"] > 1 and r["round"] > 0]
    assert len(bad) == 4 and {row["round"] for row in bad} == {5}
    assert all(row["status"].startswith("diverged by round 5") for row in bad)


def test_a_finished_run_says_so_and_does_nothing(finished):
    workdir, arguments, _ = finished
    (workdir / "models" / "mine.npz").write_bytes(b"of no algorithm")
    before = {path: path.stat().st_mtime_ns for path in workdir.rglob("*")}
    again = launch(*arguments)
    assert again.returncode == 0 and "nothing to do" in again.stdout
    assert before == {path: path.stat().st_mtime_ns for path in workdir.rglob("*")}


@pytest.mark.slow
def test_a_study_has_claims_that_are_decided_again_when_it_is_drawn(tmp_path):
    arguments = ["--config=docs/skeletons/study.py", f"--workdir={tmp_path / 'run'}", "--quick"]
    done = launch(*arguments)
    assert done.returncode == 0, done.stderr
    path = tmp_path / "run" / "summary.json"
    summary = json.loads(path.read_text())
    assert [claim["holds"] for claim in summary["claims"]] == [True] and summary["finished"]
    assert "nothing to do" in launch(*arguments).stdout
    path.write_text(json.dumps(summary | {"claims": []}))
    draw = [sys.executable, "-m", "experiments.publishing.figures", *arguments[:2]]
    drawn = subprocess.run(draw, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert drawn.returncode == 0 and json.loads(path.read_text()) == summary, drawn.stderr


MISTAKES = {
    "--config.num_round=5": "no key num_round; did you mean num_rounds?",
    "--config.algorithms=fed_dual_av": "no algorithm fed_dual_av; did you mean",
    "--config.num_rounds=ten": "--config.num_rounds=ten: invalid literal",
    "--confg.seeds=1": "flag 'confg.seeds'. Did you mean: config.seeds",
    "--config.cohort_size=7": "cohort_size is 7 but the problem has 6 clients",
    "--config.num-rounds=9": "the config has no key num-rounds; did you mean num_rounds?",
    "--config.clip_norms=1": "the config has no key clip_norms; did you mean clip",
    "--config=configs/lassoo.py": "there is no config file configs/lassoo.py",
    "--num_rounds=3": "Unknown command line flag 'num_rounds'",
    "--process_id=0": "--process_id are given all or none",
    "--checkpoint_every=nan": "pass a number of seconds",
    "extra": "unexpected argument extra",
}
# The command once for each list of arguments, by forks of one process that has imported it.
FORKED = """
import json, os, sys
from absl import app
from configs import lasso
from experiments.run import main, parse_flags
for given in json.loads(sys.argv[1]):
    ours, theirs = os.pipe()
    if not os.fork():
        os.dup2(theirs, 2)
        sys.argv = ["run", *given]
        app.run(main, flags_parser=parse_flags)
    os.close(theirs)
    said = open(ours).read()
    print(json.dumps([os.waitstatus_to_exitcode(os.wait()[1]), said]), flush=True)
"""


def test_mistakes_end_in_one_line_and_exit_code_2(tmp_path):
    given = json.dumps([[*TOY, f"--workdir={tmp_path / 'w'}", mistake] for mistake in MISTAKES])
    forks = subprocess.run(
        [sys.executable, "-c", FORKED, given],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
    )
    ends = map(json.loads, forks.stdout.splitlines())
    for message, (code, said) in zip(MISTAKES.values(), ends, strict=True):
        done = subprocess.CompletedProcess((), code, "", said)
        assert code == 2 and message in one_line(done)
    assert not (tmp_path / "w").exists()


def one_line(done):
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    return lines[0]
