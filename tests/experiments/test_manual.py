"""``--help`` explains every key, which is documented nowhere else."""

import pathlib

import pytest

from experiments.cli import options
from experiments.cli.help import documented, manual
from experiments.config import config_file

CONFIGS = sorted((pathlib.Path(__file__).parent.parent.parent / "configs").glob("*.py"))
SWEEPS = [path for path in CONFIGS if "sweep_config(" in path.read_text("utf-8")]


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_every_key_has_a_meaning(path):
    config = config_file.load(path).get_config()
    assert {key for key, _, _ in documented(config, path)} == set(config)
    assert not [key for key, _, meaning in documented(config, path) if not meaning]


def test_the_manual_shows_values_and_meanings(tmp_path):
    path = tmp_path / "own.py"
    text = CONFIGS[[path.stem for path in CONFIGS].index("theory")].read_text("utf-8")
    path.write_text(text, "utf-8")
    told = manual(str(path), options.__name__).splitlines()
    assert "  num_draws             draws of the noise, each with its negative (64)" in told
    said = text.partition('"""')[2].partition('"""')[0].strip().splitlines()
    at = told.index(said[0])
    assert told[at : at + len(said)] == said
    assert told.index(f"config keys of {path}") > at
    assert any(line.startswith("  --workdir ") for line in told)
