"""``--help`` says what every key means, and where else it could be looked up is nowhere."""

import pathlib

import pytest

from experiments import command_line, config_file
from experiments.manual import documented, manual

CONFIGS = sorted((pathlib.Path(__file__).parent.parent.parent / "configs").glob("*.py"))
SWEEPS = [path for path in CONFIGS if "sweep_config(" in path.read_text("utf-8")]


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_every_key_of_a_sweep_has_a_meaning(path):
    config = config_file.load(path).get_config()
    assert {key for key, _, _ in documented(config, path)} == set(config)
    assert not [key for key, _, meaning in documented(config, path) if not meaning]


def test_the_manual_shows_values_and_meanings(tmp_path):
    path = tmp_path / "own.py"
    text = CONFIGS[[path.stem for path in CONFIGS].index("theory")].read_text("utf-8")
    path.write_text(text, "utf-8")
    told = manual(str(path), command_line.__name__).splitlines()
    assert "  num_draws             of the noise, each with its negative (64)" in told
    said = text.partition('"""')[2].partition('"""')[0].strip().splitlines()
    at = told.index(said[0])
    assert told[at : at + len(said)] == said
    assert told.index(f"config keys of {path}") > at
    assert any(line.startswith("  --workdir ") for line in told)


def test_without_a_config_the_shared_keys_are_told():
    assert "  num_steps             local steps" in manual(None, command_line.__name__)
