"""The estimators: scikit-learn's checks, agreement with ``select``, and cross-validation."""

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, LeaveOneGroupOut, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import fcojax
import fcojax_sites
from fcojax.transforms import l1, named, on_subtree
from fcojax_sites import estimators, selection
from fcojax_sites.estimators import SparseClassifier, SparseRegressor

QUICK = {"strengths": 3, "by": selection.bic(), "shrinkage": 1, "max_rounds": 500}


@pytest.mark.slow
@parametrize_with_checks([SparseRegressor(**QUICK), SparseClassifier(**QUICK)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def rows(classes=None):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 5))
    z = x @ np.array([2.0, -1.0, 0.0, 0.0, 0.0]) + 1 + 0.3 * rng.normal(size=90)
    y = z if classes is None else np.digitize(z, [0.0, 2.0][: classes - 1])
    return x, y, np.repeat(["a", "b", "c"], 30)


@pytest.mark.gate
@pytest.mark.slow
def test_the_model_is_that_of_select_and_clones_keep_the_arguments():
    x, y, sites = rows()
    model = clone(SparseRegressor(strengths=6, random_state=0)).set_params(strengths=5)
    assert model.get_params()["strengths"] == 5
    model.fit(x, y, groups=sites)
    data = fcojax.from_rows({"x": x, "y": y}, [30, 30, 30], weights="examples")
    penalty = on_subtree(l1(), named("kernel"))
    found = fcojax_sites.select(fcojax.problems.linear(data), penalty, strengths=5)
    np.testing.assert_allclose(model.coef_, found.refit["kernel"], atol=1e-12)
    np.testing.assert_allclose(model.predict(x), x @ model.coef_ + model.intercept_)
    mixed = SparseRegressor(strengths=5, random_state=0, shrinkage=0.25).fit(x, y, groups=sites)
    np.testing.assert_allclose(mixed.coef_, found.relaxed(0.25)["kernel"], atol=1e-12)
    assert model.score(x, y) > 0.95
    assert sorted(model.selection_.ledger.by_client()) == ["a", "b", "c"]


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_classes_against_scikit_learn(classes):
    x, y, sites = rows(classes)
    names = np.array(["low", "mid", "top"])[y]
    model = SparseClassifier(strengths=[0.02], by=selection.aic(), shrinkage=1, tolerance=1e-7)
    model.fit(x, names, groups=sites)
    judge = LogisticRegression(
        l1_ratio=1.0, C=1 / (90 * 0.02), solver="saga", tol=1e-10, max_iter=100_000
    ).fit(x, names)
    np.testing.assert_allclose(model.predict_proba(x), judge.predict_proba(x), atol=1e-4)
    np.testing.assert_array_equal(model.predict(x), judge.predict(x))
    assert model.decision_function(x).shape == ((90,) if classes == 2 else (90, 3))


@pytest.mark.slow
def test_cross_validation_by_site_around_a_pipeline():
    x, y, sites = rows()
    pipeline = make_pipeline(StandardScaler(), SparseRegressor(strengths=5))
    scores = cross_validate(
        pipeline,
        x,
        y,
        groups=sites,
        cv=LeaveOneGroupOut(),
        params={"sparseregressor__groups": sites},
        return_estimator=True,
        error_score="raise",
    )
    assert scores["test_score"].shape == (3,) and scores["test_score"].min() > 0.9
    left = [set(fitted[-1].selection_.ledger.by_client()) for fitted in scores["estimator"]]
    assert left == [{"b", "c"}, {"a", "c"}, {"a", "b"}]


@pytest.mark.parametrize("by", [None, selection.by_example(3), selection.nonzeros(2)])
def test_rows_that_belong_to_no_site_change_no_number(by, monkeypatch):
    assert jax.config.values["jax_enable_x64"]
    x, y, _ = rows()
    sites = np.repeat(["a", "b", "c"], [47, 31, 12])
    found = []
    for pad in (estimators._padded, lambda data: data):
        monkeypatch.setattr(estimators, "_padded", pad)
        model = SparseRegressor(strengths=4, by=by, random_state=0).fit(x, y, groups=sites)
        found.append(model.selection_)
    padded, plain = found
    assert padded.chosen == plain.chosen
    same = {"rtol": 0, "atol": 1e-12}
    np.testing.assert_allclose(padded.path.strengths, plain.path.strengths, **same)
    np.testing.assert_allclose(padded.path.objective, plain.path.objective, **same)
    np.testing.assert_allclose(padded.scores, plain.scores, **same)
    for ours, theirs in ((padded.path.models, plain.path.models), (padded.refit, plain.refit)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **same), ours, theirs)
    np.testing.assert_array_equal(padded.ledger.bytes_up, plain.ledger.bytes_up)


def test_ten_folds_share_the_programs_of_the_first(caplog):
    x, y, sites = rows()
    model = SparseRegressor(strengths=3, random_state=0)

    def num_compiled(part):
        caplog.clear()
        with jax.log_compiles():
            model.fit(x[part], y[part], groups=sites[part])
        return sum("Finished XLA compilation" in record.message for record in caplog.records)

    num_compiled(slice(None))
    folds = KFold(10, shuffle=True, random_state=0).split(x)
    assert sum(num_compiled(part) for part, _ in folds) <= 3


def test_programs_are_kept_on_disk_and_options_stay(tmp_path, monkeypatch):
    options = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
    own = [jax.config.values[name] for name in options]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        compilation_cache.reset_cache()
        jax.config.update(options[0], None)
        with estimators._kept_programs(), estimators._kept_programs():
            jax.jit(lambda x: x + 12345)(np.arange(7.0))
        kept = len(list((tmp_path / "fcojax" / "jax").iterdir()))
        assert kept and [jax.config.values[name] for name in options] == [None, own[1]]
        jax.jit(lambda x: x + 54321)(np.arange(7.0))
        assert len(list((tmp_path / "fcojax" / "jax").iterdir())) == kept
        jax.config.update(options[0], str(tmp_path / "own"))
        with estimators._kept_programs():
            assert jax.config.values[options[0]] == str(tmp_path / "own")
    finally:
        jax.config.update(options[0], own[0])
        compilation_cache.reset_cache()
