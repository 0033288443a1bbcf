"""Keys of the configs say what they may be, and other values are refused in one sentence."""

import importlib

import pytest

from experiments.study import check, keyed

NAMES = ("select", "sites", "flamby")


def config_of(name, **changes):
    """Return the config of a study, with changes."""
    module = importlib.import_module(f"fcojax_sites.configs.{name}")
    config = module.get_config()
    config.update(changes)
    return module, config


def leaves(config, prefix=""):
    """Yield the keys of a config, with those of its parts."""
    for key, value in config.items():
        if hasattr(value, "items"):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


@pytest.mark.parametrize("name", NAMES)
def test_every_key_of_a_study_says_what_it_may_be(name):
    module, config = config_of(name)
    said = [key for names in module.EXPERIMENT.keys.values() for key, *_ in keyed(config, names)]
    assert sorted(said) == sorted(leaves(config))


@pytest.mark.parametrize(
    ("name", "key", "value", "sentence"),
    [
        ("select", "least", float("inf"), "least is inf; pass a number above 0 and at most 1."),
        ("sites", "weights", (0.5, 0.3, 0.3), "weights is (0.5, 0.3, 0.3); pass weights that sum"),
    ],
)
def test_other_values_are_refused_in_one_sentence(name, key, value, sentence):
    module, config = config_of(name, **{key: value})
    with pytest.raises(ValueError) as error:
        check(module.EXPERIMENT, config)
    assert str(error.value).startswith(sentence) and "\n" not in str(error.value)
