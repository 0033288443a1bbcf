"""What the values of a config may be: for every key of a study, and checked first."""

import importlib

import pytest

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
        ("compare", "own.num_steps", 0, "own.num_steps is 0; pass a whole number of at least 1."),
        ("emnist", "dim", 0, "dim is 0; pass a whole number of at least 1."),
        ("emnist", "models", ("tree",), "an entry of models is 'tree'; pass one of 'softmax'"),
        ("emnist", "mlp.radii.l1", (-1.0,), "an entry of mlp.radii.l1 is -1.0; pass a finite"),
        ("fed_gd", "dim", 0, "dim is 0; pass a whole number of at least 1."),
        (
            "fedpd_feddyn",
            "skip_probabilities",
            (0.0, 0.5, 1.0),
            "an entry of skip_probabilities is 1.0;",
        ),
        ("kpca", "algorithms", ("fed_avg",), "an entry of algorithms is 'fed_avg'; pass one of"),
        ("saddle", "cases", ("x",), "an entry of cases is 'x'; pass one of 'vectors', 'matrices'."),
        ("saddle", "seeds", ("x",), "an entry of seeds is 'x'; pass a whole number of at least 0."),
        ("select", "loss", "hubr", "loss is 'hubr'; pass one of 'linear', 'logistic'"),
        ("select", "least", float("inf"), "least is inf; pass a number above 0 and at most 1."),
        ("select", "tolerance", -1.0, "tolerance is -1.0; pass a finite number above 0."),
        ("sites", "designs", ("x",), "an entry of designs is 'x'; pass one of 'independent'"),
        ("sites", "weights", (0.5, 0.3, 0.3), "weights is (0.5, 0.3, 0.3); pass weights that sum"),
        ("sites", "num_rounds", (5, 100), "num_rounds is (5, 100); pass num_rounds with 10."),
        ("sites", "laws.correlated.scales", (0.0,), "an entry of laws.correlated.scales is 0.0;"),
        ("sites", "held_out", (0, 0, 0), "an entry of held_out is 0; pass a whole number"),
        ("sites", "num_steps", (), "num_steps is (); pass at least 1 values."),
        ("sites", "held_out", (100, 60), "held_out is (100, 60) and weights is (0.5, 0.3, 0.2) an"),
        ("compare", "own.spectrum", (1.0,), "own.spectrum is (1.0,); pass 2 values."),
        ("fed_gd", "many_steps", (1,), "many_steps is (1,); pass at least 3 values."),
        (
            "fedpd_feddyn",
            "cohort_sizes",
            (9,),
            "cohort_size is 4 and cohort_sizes is (9,) and",
        ),
        ("kpca", "num_components", 30, "num_components is 30 and dim is 30; pass num_components"),
        (
            "saddle",
            "vectors.num_steps",
            (1,),
            "vectors.num_rounds is (1000, 100) and vectors.num_s",
        ),
        ("fmri", "grid", (8, 8), "grid is (8, 8); pass 3 values."),
        ("fmri", "num_voxels", 10**6, "num_voxels is 1000000 and grid is (20, 32, 32); pass num_v"),
        ("lasso", "cuts", ("x",), "an entry of cuts is 'x'; pass a finite number, 0 or more."),
        ("matrix_completion", "shape", (4,), "shape is (4,); pass 2 values."),
        ("recovery_lasso", "target_error", float("nan"), "target_error is nan; pass a finite"),
        ("theory", "small_eval_every", 7, "small_rounds is 4000 and small_eval_every is 7; pass"),
        ("theory", "seeds", 0, "seeds is 0; pass a whole number of at least 1."),
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
    """As in --config.algorithms=fed_mid,fed_dual_avg, which sweeps have always taken."""
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
