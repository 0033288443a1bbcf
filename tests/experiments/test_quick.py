"""Every sweep in the launcher with --quick, including the page."""

import ast
import json
import pathlib
import re

import pytest

from experiments.config import config_file
from experiments.study import Sweep
from tests.experiments.test_run import ROOT, launch

CONFIGS = sorted((ROOT / "configs").glob("*.py"))
SWEEPS = [path for path in CONFIGS if isinstance(config_file.load(str(path)).experiment, Sweep)]


def test_every_config_has_its_command_in_its_docstring():
    assert len(CONFIGS) >= 10
    for path in CONFIGS:
        text = ast.get_docstring(ast.parse(path.read_text()))
        assert f"fcojax run {path.stem} " in text and "RUNTIME" not in text, path


@pytest.mark.slow
@pytest.mark.parametrize("config", [path.stem for path in SWEEPS])
def test_a_quick_run_leaves_figures_scores_and_claims(config, tmp_path):
    workdir = tmp_path / "run"
    done = launch(f"--config=configs/{config}.py", f"--workdir={workdir}", "--quick")
    assert done.returncode == 0, done.stderr
    summary = json.loads((workdir / "summary.json").read_text())
    experiment = config_file.load(str(ROOT / "configs" / f"{config}.py")).experiment
    has_claims = experiment.claims is not Sweep._field_defaults["claims"]
    assert summary["finished"] and bool(summary["claims"]) == has_claims
    assert all(claim["holds"] in (True, None) for claim in summary["claims"])
    assert all(entry["score"] is not None for entry in summary["algorithms"].values())
    page = pathlib.Path(workdir / "index.html").read_text("utf-8")
    # A picture, or curves with at least one line through two points.
    assert re.search(r"src=.data:image/png;base64,.{10000}|d=.M[\d.,]+ L", page)
    assert {"curves.png"} <= {figure.name for figure in (workdir / "figures").iterdir()}
