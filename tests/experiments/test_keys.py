"""Keys of a config: each has a type, which is checked first, and a meaning in ``--help``."""

import importlib
import inspect

import pytest

from experiments.cli import options
from experiments.config.keys import SweepKeys
from experiments.study import Study, check, keyed, split_names
from tests.experiments.test_run import ROOT

MODULES = {
    path.stem: importlib.import_module(f"configs.{path.stem}")
    for path in sorted((ROOT / "configs").glob("*.py"))
}
STUDIES = {name: module for name, module in MODULES.items() if isinstance(module.EXPERIMENT, Study)}


def config_of(name, **changes):
    config = MODULES[name].get_config()
    with config.ignore_type():
        config.update_from_flattened_dict(changes)
    return config


def _leaves(config, prefix=""):
    for key, value in config.items():
        if hasattr(value, "items"):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


@pytest.mark.parametrize("name", STUDIES)
def test_every_key_of_a_study_says_what_it_may_be(name):
    config, study = config_of(name), STUDIES[name].EXPERIMENT
    said = [key for names in study.keys.values() for key, *_ in keyed(config, names)]
    assert sorted(said) == sorted(_leaves(config))


@pytest.mark.parametrize(
    ("name", "key", "value", "sentence"),
    [
        ("compare", "methods", ("nope",), "an entry of methods is 'nope'; pass one of 'prox_gd'"),
        ("compare", "tolerance", float("nan"), "tolerance is nan; pass a finite number above 0."),
        ("fed_gd", "many_steps", (1,), "many_steps is (1,); pass at least 3 values."),
        ("kpca", "num_components", 30, "num_components is 30 and dim is 30; pass num_components"),
        ("theory", "small_eval_every", 7, "small_rounds is 4000 and small_eval_every is 7; pass"),
    ],
)
def test_other_values_are_refused_in_one_sentence(name, key, value, sentence):
    config = config_of(name, **{key: value})
    with pytest.raises(ValueError) as error:
        check(MODULES[name].EXPERIMENT, config)
    assert str(error.value).startswith(sentence) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "key"), [("emnist", "algorithms"), ("compare", "methods"), ("kpca", "algorithms")]
)
def test_names_may_come_as_one_text(name, key):
    """As in --config.algorithms=fed_mid,fed_dual_avg for sweeps."""
    names = config_of(name)[key]
    config = config_of(name, **{key: (", ".join(names),)})
    split_names(MODULES[name].EXPERIMENT, config)
    assert len(names) > 1 and config[key] == tuple(names)
    check(MODULES[name].EXPERIMENT, config)


def test_the_values_of_every_config_are_allowed():
    for name, module in MODULES.items():
        config = config_of(name)
        check(module.EXPERIMENT, config)
        module.quick(config)
        check(module.EXPERIMENT, config)


def test_every_key_has_a_meaning():
    told = (inspect.getdoc(SweepKeys) or "").splitlines()
    assert all(any(line.startswith(f"  {key}: ") for line in told) for key in SweepKeys._fields)


def test_the_manual_shows_a_config_its_numbers_and_the_flags():
    told = options.manual(str(ROOT / "configs" / "theory.py"))
    text = (ROOT / "configs" / "theory.py").read_text("utf-8")
    assert text.partition('"""')[2].partition('"""')[0].strip() in told
    assert "config.num_draws = 64  # draws of the noise" in told and "--workdir: " in told
