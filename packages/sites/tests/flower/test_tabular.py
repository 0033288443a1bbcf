"""Regression over sites from sums: equal to pooled analyses, and nothing else on the wire."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter
from lifelines.utils import concordance_index
from sklearn import linear_model
from sklearn.metrics import roc_auc_score

import fcojax
import fcojax_sites
from fcojax import problems
from fcojax.transforms import group_l2, l1, named, on_subtree
from fcojax_sites import flower, safetensors
from fcojax_sites.cox import cox
from fcojax_sites.flower.sums import LeftOut
from fcojax_sites.flower.tabular import CUTS, _losses, _moments, _unravel
from fcojax_sites.selection import by_client, ebic, nonzeros
from tests.flower.bad_peers import with_facts

NAMES = ("Antwerp", "Bern", "Cork")
SIZES = (50, 40, 60)
PENALTY = on_subtree(l1(), named("kernel"))


@functools.cache
def tables(loss, dim=3):
    """Return the rows of each site; a column is far from zero, and values are missing."""
    rng = np.random.default_rng(1)
    found = {}
    for index, (name, size) in enumerate(zip(NAMES, SIZES, strict=True)):
        x = rng.normal(size=(size, dim)) + 0.3 * index
        x[:, 0] = 1e5 + 20 * x[:, 0]
        present = rng.random(x.shape) > 0.1
        z = (x[:, 0] - 1e5) / 20 - x[:, 1]
        rows = {"x": np.where(present, x, 0), "present": present.astype(float)}
        if loss == "cox":
            rows["time"] = rng.exponential(np.exp(-z)) + 0.01  # without ties
            rows["event"] = (rng.random(size) < 0.7).astype(float)
        elif loss == "linear":
            rows["y"] = z + rng.normal(size=size)
        elif loss == "poisson":
            rows["y"] = rng.poisson(np.exp(z / 3)).astype(float)
        else:
            rows["y"] = (rng.logistic(size=size) < z).astype(float)
        found[name] = rows
    return found


class Wire:
    """Sites in this process, with all messages."""

    def __init__(self, federation, rows):
        self.inner, self.sent = flower.in_process(federation, rows), []
        self.transport = flower.Transport(self.join, self.exchange)

    def join(self, message):
        found = self.inner.join(message)
        self.sent += found
        return found

    def exchange(self, messages):
        found = self.inner.exchange(messages)
        self.sent += [*messages.values(), *found.values()]
        return found


@functools.cache
def sites_of(loss, penalty=PENALTY):
    federation = flower.tabular(loss, penalty, 3)
    wire = Wire(federation, tables(loss))
    sites = flower.Sums(federation, wire.transport)
    return sites, flower.statistics(sites), wire


@functools.cache
def pooled(loss):
    """Return the scaled columns of all sites, the outcomes, and the site of each row."""
    rows = tables(loss)
    every = {key: np.concatenate([of[key] for of in rows.values()]) for key in rows["Bern"]}
    x = np.where(every["present"] > 0, every["x"], np.nan)
    mean, deviation = np.nanmean(x, axis=0), np.nanstd(x, axis=0)
    every["x"] = np.where(np.isnan(x), 0, (x - mean) / deviation)
    return every, np.repeat(NAMES, SIZES), x


@functools.cache
def regression(loss):
    sites, found, _ = sites_of(loss)
    return flower.regress(sites, found, strengths=5, least=0.05, tolerance=1e-10)


def test_statistics_are_those_of_the_pooled_table():
    _, found, _ = sites_of("logistic")
    every, site, x = pooled("logistic")
    np.testing.assert_allclose(found.mean, np.nanmean(x, axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, np.nanstd(x, axis=0), rtol=1e-10)
    assert found.rows.tolist() == list(SIZES) and not found.left_out.any()
    for place, name in enumerate(NAMES):
        own = x[site == name]
        assert found.missing[place].tolist() == np.isnan(own).sum(axis=0).tolist()
        assert found.events[place] == every["y"][site == name].sum()


@pytest.mark.slow
def test_survival_is_that_of_kaplan_and_meier_of_the_times_rounded_up():
    sites, _, _ = sites_of("cox")
    grid = np.linspace(0.25, 6, 24)
    found = flower.survival(sites, grid)
    for place, name in enumerate(NAMES):
        rows = tables("cox")[name]
        rounded = np.ceil(rows["time"] / 0.25) * 0.25
        judge = KaplanMeierFitter().fit(rounded, rows["event"]).survival_function_at_times(grid)
        np.testing.assert_allclose(found["survival"][place], judge, atol=1e-12)


@pytest.mark.slow
@pytest.mark.gate
@pytest.mark.parametrize("loss", ["linear", "logistic", "poisson", "cox"])
def test_derivatives_are_those_of_automatic_differentiation(loss):
    flower.tabular(loss, PENALTY, 3)  # makes the loss, outside of any program
    rows = jax.tree.map(jnp.asarray, tables(loss)["Bern"])
    if loss == "cox":  # with ties
        rows["time"] = jnp.ceil(rows["time"])
    rows["x"] = jnp.where(rows["present"] > 0, rows["x"] % 7, 0)
    unravel = _unravel(loss, rows["x"])
    model = 0.1 * np.arange(1.0, 4.0 if loss == "cox" else 5.0)

    def total(w):
        return jnp.sum(_losses(loss, unravel(w), rows))

    of = {"models": model[None], "mean": np.zeros(3), "size": np.ones(3)}
    found = _moments(loss, rows, {name: jnp.asarray(one) for name, one in of.items()})
    np.testing.assert_allclose(found["gradient"][0], jax.grad(total)(model), rtol=1e-9)
    np.testing.assert_allclose(found["hessian"][0], jax.hessian(total)(model), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.gate
@pytest.mark.parametrize("loss", ["linear", "logistic", "poisson"])
def test_estimates_are_those_of_scikit_learn_and_errors_those_of_the_sandwich(loss):
    every, _, _ = pooled(loss)
    found, x, y = regression(loss), every["x"], every["y"]
    model = {
        "linear": linear_model.LinearRegression(),
        "logistic": linear_model.LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000),
        "poisson": linear_model.PoissonRegressor(alpha=0, tol=1e-10, max_iter=10_000),
    }[loss].fit(x, y)
    kernel, bias = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])
    np.testing.assert_allclose(found.estimate["kernel"], kernel, atol=1e-6)
    np.testing.assert_allclose(found.estimate["bias"], bias, atol=1e-6)
    z, design = x @ kernel + bias, np.c_[np.ones(len(y)), x]
    mean = {"linear": z, "logistic": 1 / (1 + np.exp(-z)), "poisson": np.exp(z)}[loss]
    curve = {"linear": 1 + 0 * z, "logistic": mean * (1 - mean), "poisson": mean}[loss]
    bread = np.linalg.inv(design.T @ (curve[:, None] * design))
    slopes = design * (mean - y)[:, None]
    covariance = len(y) / (len(y) - 4) * bread @ slopes.T @ slopes @ bread
    error = np.r_[found.error["bias"], found.error["kernel"]]
    np.testing.assert_allclose(error, np.sqrt(np.diagonal(covariance)), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.gate
def test_hazard_ratios_and_errors_are_those_of_a_stratified_cox_regression():
    pandas = pytest.importorskip("pandas")
    every, site, _ = pooled("cox")
    frame = pandas.DataFrame(every["x"], columns=["a", "b", "c"])
    frame = frame.assign(time=every["time"], event=every["event"], site=site)
    judge = CoxPHFitter().fit(
        frame, "time", "event", strata=["site"], fit_options={"precision": 1e-10}
    )
    found = regression("cox")
    np.testing.assert_allclose(found.estimate["kernel"], judge.params_, atol=1e-6)
    np.testing.assert_allclose(found.error["kernel"], judge.standard_errors_, atol=1e-6)
    intervals = np.c_[found.low["kernel"], found.high["kernel"]]
    np.testing.assert_allclose(intervals, judge.confidence_intervals_, atol=1e-5)


@pytest.mark.slow
@pytest.mark.gate
def test_a_lasso_over_sites_is_that_of_scikit_learn():
    every, _, _ = pooled("linear")
    path = regression("linear").selection.path
    for at, strength in enumerate(np.asarray(path.strengths)[1:], 1):
        judge = linear_model.Lasso(strength, tol=1e-14, max_iter=10**6).fit(every["x"], every["y"])
        np.testing.assert_allclose(path.models["kernel"][at], judge.coef_, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["logistic", "cox", "poisson"])
def test_the_choice_is_that_of_select_by_rounds(loss):
    every, site, _ = pooled(loss)
    rows = {name: every[name] for name in every if name != "present"}
    rows = {n: v.astype(int) if n in ("event", "y") else v for n, v in rows.items()}
    data = fcojax.from_rows(rows, SIZES, weights="examples", ids=NAMES)
    problem = (cox if loss == "cox" else getattr(problems, loss))(data)
    penalty = l1() if loss == "cox" else PENALTY
    found = regression(loss).selection
    wanted = fcojax_sites.select(
        problem, penalty, by=by_client(), strengths=5, least=0.05, tolerance=1e-8, refit=True
    )
    kernels = wanted.path.models if loss == "cox" else wanted.path.models["kernel"]
    np.testing.assert_allclose(found.path.strengths, wanted.path.strengths, rtol=1e-6)
    np.testing.assert_allclose(found.path.models["kernel"], kernels, atol=1e-6)
    np.testing.assert_allclose(found.scores, wanted.scores, rtol=1e-6)
    assert (found.chosen, found.best) == (wanted.chosen, wanted.best)
    refit = wanted.refit if loss == "cox" else wanted.refit["kernel"]
    np.testing.assert_allclose(found.refit["kernel"], refit, atol=1e-5)


@pytest.mark.slow
@pytest.mark.gate
def test_a_held_out_site_is_judged_as_by_hand():
    sites, found, _ = sites_of("logistic")
    models = regression("logistic").left_out
    flat = np.stack([np.r_[model["bias"], model["kernel"]] for model in models])
    judged = sites.ask("judged", {**found.scaling, "models": flat})
    every, site, _ = pooled("logistic")
    for place, name in enumerate(NAMES):
        own = site == name
        y, z = every["y"][own], every["x"][own] @ flat[place, 1:] + flat[place, 0]
        counts = {key: judged[key][place, place] for key in ("concordant", "tied", "comparable")}
        area = (counts["concordant"] + counts["tied"] / 2) / counts["comparable"]
        assert area == pytest.approx(roc_auc_score(y, z))
        slope = linear_model.LogisticRegression(C=np.inf, tol=1e-10).fit(z[:, None], y)
        assert judged["slope"][place, place] == pytest.approx(slope.coef_[0, 0], abs=1e-5)
        cell = np.digitize(1 / (1 + np.exp(-z)), CUTS)
        sizes = np.bincount(cell, minlength=len(CUTS) + 1)
        assert judged["rows"][place, place].tolist() == np.where(sizes < 5, 0, sizes).tolist()
    sites, found, _ = sites_of("cox")
    kernel = regression("cox").estimate["kernel"]
    judged = sites.ask("judged", {**found.scaling, "models": kernel[None]})
    every, site, _ = pooled("cox")
    for place, name in enumerate(NAMES):
        own = site == name
        wanted = concordance_index(
            every["time"][own], -every["x"][own] @ kernel, every["event"][own]
        )
        share = judged["concordant"][place, 0] / judged["comparable"][place, 0]
        assert share == pytest.approx(wanted)


def judged(loss, x, y, kernel):
    federation = flower.tabular(loss, PENALTY, 1)
    rows = {"Bern": {"x": x[:, None], "present": np.ones((len(x), 1)), "y": y}}
    sites = flower.Sums(federation, flower.in_process(federation, rows))
    model = {"kernel": np.array([kernel]), "bias": np.array(0.0)}
    found = flower.judged(sites, flower.statistics(sites), [model])
    return found["slope"][0], found["concordance"][0]


@pytest.mark.slow
@pytest.mark.gate
def test_a_slope_is_that_of_scikit_learn_or_none():
    x = np.random.default_rng(0).normal(size=80)
    y = np.random.default_rng(1).poisson(np.exp(4 + x)).astype(float)  # counts far from 1
    z = 0.5 * (x - x.mean()) / x.std()
    wanted = linear_model.PoissonRegressor(alpha=0, tol=1e-10).fit(z[:, None], y).coef_[0]
    assert judged("poisson", x, y, 0.5)[0] == pytest.approx(wanted, rel=1e-5)
    assert np.isnan(judged("logistic", x, 0 * y, 0.5)).all()  # one class: no pair, no slope
    slope, share = judged("logistic", x, (x > 0).astype(float), 0.5)
    assert np.isnan(slope) and share == 1  # separated
    slope, share = judged("logistic", x, (y > 50).astype(float), 0.0)
    assert np.isnan(slope) and share == 0.5  # the same for all rows


def test_integers_and_constants_have_the_statistics_of_numpy():
    x, y = np.arange(12).reshape(6, 2) % 5, np.linspace(0.1, 0.9, 6)
    rows = {"Bern": {"x": x, "present": np.ones((6, 2)), "y": y}}
    federation = flower.tabular("linear", PENALTY, 2)
    with jax.numpy_dtype_promotion("standard"):
        found = flower.statistics(flower.Sums(federation, flower.in_process(federation, rows)))
    assert found.outcome["y"] == pytest.approx((y.mean(), y.std()))
    np.testing.assert_allclose(found.deviation, x.std(axis=0))
    with jax.enable_x64(False):
        rows["Bern"] |= {"x": np.full((1000, 2), 0.1), "present": np.ones((1000, 2))}
        rows["Bern"]["y"] = np.zeros(1000)
        federation = flower.tabular("linear", PENALTY, 2)
        found = flower.statistics(flower.Sums(federation, flower.in_process(federation, rows)))
        assert found.mean.dtype == np.float32 and not found.deviation.any()


@pytest.mark.slow
@pytest.mark.gate
def test_no_row_is_on_the_wire_and_its_length_does_not_depend_on_the_number_of_rows():
    sites, _, wire = sites_of("cox")
    regression("cox")
    everything = b"".join(wire.sent)
    for rows in tables("cox").values():
        for values in (*rows["x"], rows["time"], *rows["x"].T):
            assert values.tobytes() not in everything
            assert values.astype("float32").tobytes() not in everything
        assert not any(time.tobytes() in everything for time in rows["time"])
    up = np.array([entry.up for entry in sites.ledger().entries])
    rounds = np.array([entry.rounds for entry in sites.ledger().entries])
    assert (np.ptp(up, axis=1) <= 8 * rounds).all()  # names of sites differ
    assert sum(len(message) for message in wire.sent) > up.sum() > 0


@pytest.mark.slow
def test_columns_that_others_determine_are_named():
    rows = {}
    for name, of in tables("linear").items():
        words = np.eye(3)[np.arange(len(of["y"])) % 3]  # a word without its reference left out
        x = np.c_[of["x"][:, 1], words, np.ones(len(of["y"]))]
        rows[name] = {"x": x, "present": np.ones_like(x), "y": of["y"]}
    federation = flower.tabular("linear", PENALTY, 5)
    sites = flower.Sums(federation, flower.in_process(federation, rows))
    found = flower.regress(sites, flower.statistics(sites), strengths=2)
    assert found.collinear == ((3, (1, 2)), (4, ()))
    assert found.estimated.tolist() == [True, True, True, False, False]
    assert (found.error["kernel"] > 0).tolist() == found.estimated.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_sum_of_columns_is_named_in_single_precision_too(seed):
    rng = np.random.default_rng(seed)
    with jax.enable_x64(False):
        rows = {}
        for name in NAMES:
            x = rng.normal(size=(40, 2))
            x = np.c_[x, 3 * x[:, 0] + x[:, 1]]
            rows[name] = {"x": x, "present": np.ones_like(x), "y": x[:, 0] + rng.normal(size=40)}
        federation = flower.tabular("linear", PENALTY, 3)
        sites = flower.Sums(federation, flower.in_process(federation, rows))
        found = flower.regress(sites, flower.statistics(sites), strengths=2, tolerance=1e-4)
        assert found.collinear == ((2, (0, 1)),)
        assert np.max(found.error["kernel"]) < 1


@pytest.mark.slow
def test_a_separated_outcome_has_a_penalised_model_and_no_estimates():
    rows = {}
    for name, of in tables("logistic").items():
        x = np.c_[of["x"][:, 1], of["y"]]  # the second column is the outcome
        rows[name] = {"x": x, "present": np.ones_like(x), "y": of["y"]}
    federation = flower.tabular("logistic", PENALTY, 2)
    sites = flower.Sums(federation, flower.in_process(federation, rows))
    found = flower.regress(sites, flower.statistics(sites), by=nonzeros(1), max_exchanges=30)
    assert found.selection.path.num_nonzero.tolist() == [2]  # and the bias
    assert found.separated == (0, 1) and not found.estimated.any()
    assert not np.any(found.error["kernel"])


@pytest.mark.slow
def test_a_column_without_events_has_no_estimate_and_the_others_have_theirs():
    rows = {}
    for name, of in tables("cox").items():
        rare = np.arange(len(of["time"])) % 10 == 0
        x = np.c_[of["x"][:, 1], rare]
        rows[name] = {**of, "x": x, "present": np.ones_like(x), "event": of["event"] * ~rare}
    federation = flower.tabular("cox", PENALTY, 2)
    sites = flower.Sums(federation, flower.in_process(federation, rows))
    found = flower.regress(sites, flower.statistics(sites), strengths=3)
    assert found.separated == (1,) and found.estimated.tolist() == [True, False]
    assert 0.05 < found.error["kernel"][0] < 1 and found.error["kernel"][1] == 0


@pytest.mark.slow
def test_groups_and_criteria_work_over_sites():
    penalty = on_subtree(group_l2(labels=[np.array([0, 0, 1])]), named("kernel"))
    sites, found, _ = sites_of("logistic", penalty)
    chosen = flower.regress(sites, found, by=ebic(), strengths=4, one_standard_error=False)
    every, _, _ = pooled("logistic")
    rows = {"x": every["x"], "y": every["y"].astype(int)}
    problem = problems.logistic(fcojax.from_rows(rows, SIZES, weights="examples"))
    wanted = fcojax_sites.select(problem, penalty, by=ebic(), strengths=4, one_standard_error=False)
    np.testing.assert_allclose(chosen.selection.scores, wanted.scores, rtol=1e-5)
    assert chosen.selection.chosen == wanted.chosen
    np.testing.assert_allclose(chosen.selection.model["kernel"], wanted.model["kernel"], atol=1e-4)


@pytest.mark.slow
def test_folds_of_rows_and_silent_sites_are_sentences():
    sites, found, _ = sites_of("logistic")
    with pytest.raises(ValueError, match="the folds divide the rows of sites"):
        flower.regress(sites, found, by=fcojax_sites.selection.by_example(2), strengths=2)
    federation = flower.tabular("linear", PENALTY, 3)
    inner = flower.in_process(federation, tables("linear"))
    silent = flower.Transport(inner.join, lambda messages: {})
    with pytest.raises(ValueError, match="no answer from Antwerp, Bern, Cork in 3 exchanges"):
        flower.statistics(flower.Sums(federation, silent))

    def one_refuses(messages):
        replies = inner.exchange(messages)
        return replies | {"Bern": with_facts(refused="has 8 rows and had 4.")(replies["Bern"])}

    transport = flower.Transport(inner.join, one_refuses)
    with pytest.raises(ValueError, match="without Bern now.* it has 8 rows and had 4"):
        flower.statistics(flower.Sums(federation, transport))
    assert jax.config.jax_enable_x64


def spoiled(loss, name, change):
    """Return the sites, of which Bern changes its sums of this name."""
    federation = flower.tabular(loss, PENALTY, 3)
    inner = flower.in_process(federation, tables(loss))

    def exchange(messages):
        found = inner.exchange(messages)
        if "Bern" in found and safetensors.loads(messages["Bern"])[1]["sums"] == name:
            sums, facts = safetensors.loads(found["Bern"])
            found["Bern"] = safetensors.dumps(change(sums), facts)
        return found

    return flower.Sums(federation, flower.Transport(inner.join, exchange))


def every(change):
    return lambda sums: {name: np.asarray(change(one), one.dtype) for name, one in sums.items()}


def only(name, change):
    return lambda sums: sums | {name: np.asarray(change(sums[name]), sums[name].dtype)}


def asked(sites, found, name):
    """Ask for one exchange of sums at arguments of an honest study."""
    zeros = np.zeros(3 if "time" in sites.sites[0].columns else 4)
    given = {"mean": found.mean, "size": np.maximum(found.deviation, 1)}
    given |= {
        "totals": {},
        "squares": {"outcome": np.zeros(len(found.outcome))},
        "survival": {"grid": np.arange(1.0, 7.0)},
        "moments": {"models": zeros[None]},
        "spread": {"model": zeros},
        "judged": {"models": zeros[None]},
    }[name]
    return sites.ask(name, given)


FAULTS = {
    "negated totals": ("cox", "totals", every(np.negative), "a sum, rows, is -40 and not 40 to 40"),
    "more rows": ("cox", "totals", only("rows", lambda a: a + 9), "rows, is 49 and not 40 to 40"),
    "more values": ("cox", "totals", only("present", lambda a: a + 99), "present, is "),
    "more events": ("cox", "totals", only("outcome", lambda a: a + 99), "events, is "),
    "negative times": ("cox", "totals", only("outcome", lambda a: a * [-1, 1]), "time, is -"),
    "negated squares": ("cox", "squares", every(np.negative), "not 0 to inf"),
    "negated times": ("cox", "survival", every(np.negative), "at_risk, is -40 and not 0 to 40"),
    "rising risk": ("cox", "survival", only("at_risk", lambda a: a[::-1]), "at_risk, is "),
    "more ends": ("cox", "survival", only("events", lambda a: a + 99), "events, is "),
    "negated moments": ("cox", "moments", every(np.negative), "a sum, loss, is -"),
    "concave": ("cox", "moments", only("hessian", np.negative), "not those of a convex loss"),
    "lopsided": ("logistic", "moments", only("hessian", np.triu), "not those of a convex loss"),
    "negated spread": ("logistic", "spread", every(np.negative), "not those of a convex loss"),
    "more cases": ("logistic", "judged", only("cases", lambda a: a + 50), "cases, is "),
    "more pairs": ("logistic", "judged", only("comparable", lambda a: a + 1e4), "comparable, is "),
    "more right": ("cox", "judged", only("concordant", lambda a: a + 1e4), "concordant, is "),
    **{
        f"{name} {value}": (loss, name, every(lambda a, v=value: a + v), "its sums are not finite")
        for loss, name in (("cox", "totals"), ("cox", "moments"), ("poisson", "moments"))
        for value in (np.nan, np.inf)
    },
}


@pytest.mark.parametrize("kind", FAULTS)
def test_sums_that_cannot_be_of_the_rows_name_their_site_and_leave_it_out(kind, caplog):
    loss, name, change, reason = FAULTS[kind]
    sites, (_, honest, _) = spoiled(loss, name, change), sites_of(loss)
    with pytest.raises(
        LeftOut, match="without Bern now; ask the others anew. Site Bern: its answer"
    ):
        asked(sites, honest, name)
    told = [record.message for record in caplog.records if "Bern" in record.message]
    assert len(told) == 1 and reason in told[0], told
    assert [site.name for site in sites.sites] == ["Antwerp", "Cork"]
    assert len(jax.tree.leaves(asked(sites, honest, name))[0]) == 2
    assert sites.ledger().ids == NAMES


@pytest.mark.parametrize("loss", ["linear", "logistic", "poisson", "cox"])
def test_sums_of_honest_sites_are_in_order_far_from_the_solution_too(loss, caplog):
    sites, found, _ = sites_of(loss)
    size = 3 if loss == "cox" else 4
    models = np.random.default_rng(0).normal(size=(20, size)) * np.logspace(-3, 4, 20)[:, None]
    moments = sites.ask("moments", {"models": models, **found.scaling})
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(moments))
    if loss != "cox":
        sites.ask("spread", {"model": models[5], **found.scaling})
    sites.ask("judged", {"models": models, **found.scaling})
    assert not caplog.records


def test_a_study_goes_on_without_a_site_whose_sums_are_negated():
    sites = spoiled("logistic", "totals", every(np.negative))
    with pytest.raises(LeftOut):
        flower.statistics(sites)
    found = flower.statistics(sites)
    assert found.rows.tolist() == [50, 60]
    rows = {name: one for name, one in tables("logistic").items() if name != "Bern"}
    wanted = flower.statistics(
        flower.Sums(sites.server.federation, flower.in_process(sites.server.federation, rows))
    )
    np.testing.assert_array_equal(found.mean, wanted.mean)


def test_a_server_that_asks_for_other_models_finds_a_patient_as_the_page_says():
    """No sum takes edges; but a steep model is an edge, and exact sums on both sides a row."""
    rng = np.random.default_rng(0)
    x = np.c_[rng.normal(60, 10, size=60), rng.normal(size=60)]
    y = (rng.logistic(size=60) < x[:, 1]).astype(float)
    federation = flower.tabular("logistic", PENALTY, 2)
    rows = {"Bern": {"x": x, "present": np.ones_like(x), "y": y}}
    sites = flower.Sums(federation, flower.in_process(federation, rows))
    assert "histogram" not in federation.sums

    def beyond(ages):
        """Return the sums of 1, age and the other column over the older, less those of cases."""
        models = np.array([[-1e6 * age, 1e6, 0.0] for age in ages])
        given = {"models": models, "mean": np.zeros(2), "size": np.ones(2)}
        return sites.ask("moments", given)["gradient"][0]

    low, high = 0.0, 120.0
    cases = -beyond([high])[0]
    for _ in range(3):
        ages = np.linspace(low, high, 1002)
        older = np.round(beyond(ages[1:-1])[:, 0] + cases[0])
        at = int(np.argmin(np.append(older, 0) > 0))
        low, high = ages[at], ages[at + 1]
    oldest = np.argmax(x[:, 0])
    assert (low + high) / 2 == pytest.approx(x[oldest, 0], abs=1e-6)
    one, age, other = beyond([low - 1e-3])[0] + cases
    np.testing.assert_allclose([one, age, other], [1, *x[oldest]], rtol=1e-9)
