"""Selection: folds as weights, the chosen strength, criteria, the refit and the ledger."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
import fcojax_sites
from fcojax import problems
from fcojax.problems.logistic import logistic_loss
from fcojax.transforms import euclidean, l1
from fcojax_sites import selection
from fcojax_sites.cox import cox, cox_loss
from fcojax_sites.selection.folds import part_of_data, weighted_loss
from fcojax_sites.selection.select import standard_error
from tests.selection.test_path import PENALTY, population
from tests.studies.survival import survival

KEY = jax.random.key(0)


@pytest.mark.slow
def test_leaving_a_client_out_equals_fitting_the_others():
    data = population()
    problem = problems.linear(data)
    found = fcojax_sites.select(problem, PENALTY, strengths=3, least=0.05, tolerance=1e-9)
    assert found.scores.shape == (3, 3)
    others, left_out = data.select([0, 2]), data.select([1])
    alone = fcojax_sites.path(
        problems.linear(others), PENALTY, strengths=np.asarray(found.path.strengths), tolerance=1e-9
    )
    for index in range(3):
        model = jax.tree.map(lambda leaf, index=index: leaf[index], alone.models)
        score = problems.population_loss(problem.loss, model, left_out)
        assert float(score) == pytest.approx(found.scores[1, index], rel=1e-6)
    # The refit is least squares on the support.
    support = np.flatnonzero(np.asarray(found.model["kernel"]))
    x = np.column_stack([np.asarray(data.examples["x"])[:, support], np.ones(40)])
    answer = np.linalg.lstsq(x, np.asarray(data.examples["y"]))[0]
    assert found.refit is not None
    np.testing.assert_allclose(found.refit["kernel"][support], answer[:-1], atol=1e-5)
    assert float(found.refit["bias"]) == pytest.approx(answer[-1], abs=1e-5)
    parts = [entry.part for entry in found.ledger.entries]
    assert parts == [
        "rates",
        "start",
        "path",
        "tune rates",
        "tune start",
        "tune paths",
        "validation",
        "refit",
    ]
    total = found.ledger.by_client().values()
    assert sum(down for down, _ in total) == found.ledger.bytes_down
    # Each client trains in two folds of three.
    tuning = found.ledger.entries[3]
    np.testing.assert_array_equal(tuning.down, 2 * found.ledger.entries[0].down)
    assert "chosen by loss on held-out data" in str(found) and "not solved" not in str(found)
    assert found.fold_outcome is not None and found.fold_outcome.solved.shape == (3, 3)
    path = found.path._replace(outcome=found.path.outcome._replace(solved=jnp.arange(3) > 0))
    folds = found.fold_outcome._replace(solved=jnp.zeros((3, 3), bool))
    lines = str(found._replace(path=path, fold_outcome=folds)).splitlines()
    assert lines[-2].startswith("1 of 3 strengths are not solved; scale the features")
    assert lines[-1].startswith("9 of 9 solves of folds are not solved;")
    assert str(path).splitlines()[-1].startswith("1 of 3: allow more rounds")
    assert max(map(len, str(path).splitlines())) < 100


@pytest.mark.slow
def test_the_relaxed_lasso_is_the_lasso_on_the_support_with_a_share_of_the_strength():
    """Meinshausen's form, ``refit - phi * strength * inv(X'X / n) sign``: no sign changes here."""
    data = population()
    problem = problems.least_squares(data)
    chosen = fcojax_sites.select(
        problem, l1(), strengths=[0.2], by=selection.bic(gaussian=True), tolerance=1e-9
    )
    kept = np.flatnonzero(chosen.model)
    x, y = np.asarray(data.examples["x"])[:, kept], np.asarray(data.examples["y"])
    gram, signs = x.T @ x / len(y), np.sign(np.asarray(chosen.model)[kept])
    assert 0 < kept.size < 6
    for phi in (0.0, 0.3, 1.0):
        expected = np.zeros(6)
        expected[kept] = np.linalg.solve(gram, x.T @ y / len(y) - phi * 0.2 * signs)
        assert np.array_equal(np.sign(expected[kept]), signs)
        np.testing.assert_allclose(chosen.relaxed(phi), expected, atol=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(logistic_loss, id="rows"),
        pytest.param(cox_loss, id="whole batch", marks=pytest.mark.slow),
    ],
)
def test_the_weighted_loss_of_a_fold_equals_the_loss_of_its_rows_alone(loss):
    data = survival() if loss is cox_loss else population("logistic", (7, 4), 2)
    folds = selection.by_example(2)(data, KEY)
    params = jnp.array([0.5, -1.0])
    if loss is not cox_loss:
        params = {"kernel": params, "bias": jnp.array(0.2)}
    for fold in range(2):
        for part in folds:
            of_fold = jax.tree.map(lambda leaf, fold=fold: leaf[fold], part)
            kept = np.asarray(of_fold.rows) > 0
            sizes = np.add.reduceat(kept, [0, 7])
            rows = jax.tree.map(lambda leaf, kept=kept: np.asarray(leaf)[kept], data.examples)
            fewer = fcojax.from_rows(rows, sizes, weights=np.asarray(data.weights))
            reweighted = part_of_data(of_fold, data)
            whole = problems.population_loss(weighted_loss(loss), params, reweighted)
            assert float(whole) == pytest.approx(
                float(problems.population_loss(loss, params, fewer)), rel=1e-12
            )


def test_splits_hold_out_each_client_or_row_once():
    data = population()
    for split in (selection.by_client(), selection.by_client(2)):
        folds = split(data, KEY)
        np.testing.assert_array_equal(np.sum(np.asarray(folds.held.clients) > 0, axis=0), 1)
        assert not np.any((folds.held.clients > 0) & (folds.train.clients > 0))
    rows = selection.by_example(4)(data, KEY)
    np.testing.assert_array_equal(np.sum(np.asarray(rows.held.rows) > 0, axis=0), 1)
    held = np.asarray(selection.hold_out(0.25)(data, KEY).held.rows)[0] > 0
    np.testing.assert_array_equal(np.add.reduceat(held, [0, 20, 32]), [5, 3, 2])
    unseen = selection.hold_out(0.4, clients=True)(data, KEY)
    assert np.sum(np.asarray(unseen.held.clients) > 0) == 1


def chosen_of(strengths, scores, one_standard_error=True, num_draws=1):
    """Return the choice by these scores; the model at a strength is the strength."""
    path = selection.Path(strengths, strengths, None, None, None)  # pyright: ignore
    return selection.selection_of(path, "loss", scores, one_standard_error, num_draws)


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1), [3, 0, 4, 2, 1]])
def test_the_choice_is_the_strongest_of_ties_and_within_one_error_in_any_order(order):
    strengths = np.array([5.0, 4.0, 3.0, 2.0, 1.0])[order]
    # Folds differ by 40; the differences to the lowest are 2 +- 1, 0.5 +- 0.6, 0, 0 and 1 +- 1.
    above = np.array([[1.0, -0.1, 0.0, 0.0, 0.0], [3.0, 1.1, 0.0, 0.0, 2.0]])
    scores = (above + np.array([[10.0], [50.0]]))[:, order]
    found = chosen_of(strengths, scores)
    np.testing.assert_allclose(found.standard_error, np.array([1, 0.6, 0, 0, 1])[order])

    def chosen(scores, one_standard_error=True):
        found = chosen_of(strengths, scores, one_standard_error)
        return [strengths[found.best], strengths[found.chosen]]

    assert chosen(scores) == [3, 4]
    assert chosen(scores, False) == [3, 3]
    assert chosen(scores[1:]) == [3, 3]  # one fold has no error
    assert chosen(np.where(strengths == 3, np.nan, scores)) == [2, 4]
    silent = np.full((1, 5), np.nan)
    assert chosen(np.concatenate([scores, silent])) == [3, 4]
    with pytest.raises(ValueError, match="no strength has a finite score"):
        chosen(silent)


@pytest.mark.parametrize("num_draws", [1, 3])
@pytest.mark.parametrize("folds", [2, 3, 8])
def test_what_is_worse_in_every_fold_is_never_chosen(folds, num_draws):
    rng = np.random.default_rng(folds)
    for _ in range(100):
        above = np.exp(3 * rng.standard_normal((num_draws * folds, 1)))  # by very unequal amounts
        level = rng.standard_normal(above.shape)
        scores = np.concatenate([level + above, level], axis=1)
        assert chosen_of(np.array([2.0, 1.0]), scores, num_draws=num_draws).chosen == 1


@pytest.mark.parametrize("by", [selection.by_client(), selection.by_example(2)])
def test_losses_of_cox_are_per_event(by):
    data, site = survival(), np.repeat([0, 1], [7, 4])
    event = np.where(site == 0, data.examples["event"], 0)  # the second site has none
    time = np.asarray(data.examples["time"])
    data = dataclasses.replace(data, examples=data.examples | {"event": jnp.asarray(event)})
    found = fcojax_sites.select(cox(data), l1(), by=by, strengths=[9.0], refit=False, key=KEY)
    held = by(data, jax.random.fold_in(KEY, 0)).held
    rows = np.ones((2, 11)) if held.rows is None else np.asarray(held.rows)
    share = (np.asarray(held.clients) / [7, 4])[:, site]
    for weights, score in zip(rows * share, found.scores, strict=True):
        at_risk = (weights > 0) & (site[:, None] == site) & (time[:, None] <= time)
        with np.errstate(invalid="ignore"):  # at zero, an event costs the log of its risk set
            expected = np.log(at_risk.sum(axis=1).clip(1)) @ (weights * event) / (weights @ event)
        np.testing.assert_allclose(score[0], expected, rtol=1e-6)
    assert found.by == "loss per event on held-out data"
    assert np.isnan(found.scores[:, 0]).tolist() == [False, held.rows is None]


@pytest.mark.parametrize(
    ("chosen", "best", "said"),
    [
        (0, 2, "one_standard_error=False chooses the lowest loss, with 2 nonzero parameters"),
        (0, 0, "no other strength has a lower loss; by=nonzeros(3) keeps three"),
        (1, 2, ""),
    ],
)
def test_an_empty_choice_says_what_to_pass(chosen, best, said):
    strengths = np.array([4.0, 1.0, 0.25])
    solved = types.SimpleNamespace(solved=np.ones(3, bool))
    models = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 1.0]])
    path = selection.Path(strengths, models, None, solved, selection.Ledger((), ()))  # pyright: ignore
    scores = np.array([[0.0, 0.0, 0.0], [3.0, 3.0, 3.0]])
    found = selection.selection_of(path, "loss on held-out data", scores, one_standard_error=False)
    printed = str(found._replace(chosen=chosen, best=best))
    assert said in printed and ("keeps no more" in printed) == bool(said)


def test_lines_of_a_path_are_named():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    models = {"bias": np.arange(1.0, 4.0), "kernel": np.array([[0, 0, 0], [0, 1, 0], [0, 2, -1]])}
    path = selection.Path(np.array([4.0, 1.0, 0.25]), models, None, None, None)  # pyright: ignore
    found = selection.Selection(
        path,
        "five folds",
        *[None] * 3,
        2,
        1,
        *[None] * 4,  # pyright: ignore
    )
    figure, axes = pyplot.subplots(1, 2)
    for axis, names, expected in (
        (axes[0], None, ["bias", "kernel[1]", "kernel[2]"]),
        (axes[1], ["age", "sex", "dose"], ["bias", "sex", "dose"]),
    ):
        drawn = found.plot_path(axis, names)
        assert [line.get_label() for line in drawn.get_lines()] == [*expected, "chosen"]
        assert (drawn.get_legend() is not None) == (names is not None)
    pyplot.close(figure)


def test_repeated_draws_of_equal_folds_do_not_reduce_the_standard_error():
    scores = np.random.default_rng(0).normal(size=(4, 3))
    once = scores.std(axis=0, ddof=1) / 2
    np.testing.assert_allclose(standard_error(scores, 1), once)
    np.testing.assert_allclose(standard_error(np.tile(scores, (5, 1)), 5), once)
    silent = np.full((1, 3), np.nan)  # a fold without events does not count
    np.testing.assert_allclose(standard_error(np.concatenate([scores, silent]), 1), once)
    np.testing.assert_allclose(standard_error(scores, 4), once)  # one fold a draw
    assert np.isnan(standard_error(scores[:1], 1)).all()
    problem = problems.linear(population())
    for by in (selection.by_client(), selection.by_client(3)):
        with pytest.raises(ValueError, match="num_draws is 3"):
            fcojax_sites.select(problem, PENALTY, by=by, num_draws=3)


def test_criteria():
    loss, nonzero = np.array([0.5, 0.3]), np.array([1, 3])
    aic, bic, ebic = (
        make(gaussian=False).scores(loss, nonzero, 100, 10)
        for make in (selection.aic, selection.bic, selection.ebic)
    )
    np.testing.assert_allclose(aic, [102, 66])
    np.testing.assert_allclose(bic, [100 + np.log(100), 60 + 3 * np.log(100)])
    np.testing.assert_allclose(ebic - bic, 2 * np.log([10, 120]))
    gaussian = selection.bic(gaussian=True).scores(loss, nonzero, 100, 10)
    np.testing.assert_allclose(gaussian, 100 * np.log(loss) + np.log(100) * nonzero)


@pytest.mark.slow
def test_criteria_and_splits_choose_the_planted_support():
    problem = problems.linear(population(sizes=(80, 60, 40)))
    for by in (selection.bic(gaussian=True), selection.by_example(4)):
        found = fcojax_sites.select(problem, PENALTY, by=by, strengths=12, num_draws=2)
        support = np.flatnonzero(np.asarray(found.model["kernel"]))
        assert set(support) >= {0, 1} and found.strength == float(
            found.path.strengths[found.chosen]
        )
        assert np.isfinite(found.mean).all()


def test_refusals():
    problem = problems.linear(population())
    with pytest.raises(ValueError, match="there are 3 clients"):
        fcojax_sites.select(problem, PENALTY, by=selection.by_client(4))
    with pytest.raises(ValueError, match="by is 'validation'"):
        fcojax_sites.select(problem, PENALTY, by="validation")  # pyright: ignore
    with pytest.raises(ValueError, match="share is 2"):
        selection.hold_out(2)
    with pytest.raises(ValueError, match="positive weight"):
        selection.hold_out(0.5, clients=True)(population(sizes=(4,)), KEY)


GAUSSIAN = fcojax.privacy.gaussian(1.0, noise=1.0)
# A user's transform, which declares that it is noisy but not how.
UNKNOWN_NOISE = dataclasses.replace(GAUSSIAN, facts=GAUSSIAN.facts._replace(noisy=True))


@pytest.mark.slow
def test_a_ledger_counts_the_rounds_of_all_solves_and_a_refit_without_noise_is_refused():
    problem = fcojax.problems.lasso(num_clients=3, num_examples=8, dim=4, num_true=1)
    algorithm = fcojax.algorithms.fed_dual_avg(problem.loss, euclidean(l1()))
    plan = fcojax.Plan(fcojax.local_steps(1), uploads=fcojax.privacy.gaussian(1.0, noise=0.5))
    given = {
        "plan": plan,
        "method": lambda loss: algorithm,
        "strengths": 2,
        "max_rounds": 20,
        "hparams": algorithm.hparams_type(client_lr=0.01),
    }
    own = plan._replace(uploads=UNKNOWN_NOISE)
    for noisy in (plan, own):
        with pytest.raises(ValueError, match="refit=False"):
            fcojax_sites.select(problem, l1(), **given | {"plan": noisy})
    found = fcojax_sites.select(problem, l1(), refit=False, **given)
    solves = {entry.part: entry.rounds for entry in found.ledger.entries}
    # With noise no solve reaches the tolerance.
    assert solves["path"] == np.sum(found.path.outcome.rounds) >= 20
    assert solves["tune paths"] == np.sum(found.fold_outcome.rounds) >= 3 * 20
    assert found.ledger.rounds == sum(solves.values())


@pytest.mark.slow
@pytest.mark.gate
@pytest.mark.parametrize(
    "transform",
    [fcojax.privacy.gaussian(1.0), GAUSSIAN, UNKNOWN_NOISE],
    ids=["no noise", "gaussian", "unknown"],
)
def test_folds_have_noise_of_their_own(transform):
    """All clients have the same rows, so models of folds differ only by their noise."""
    rows = {"x": np.tile(np.eye(2), (3, 1)), "y": np.tile([1.0, 2.0], 3)}
    problem = problems.least_squares(fcojax.from_rows(rows, [2, 2, 2]))
    algorithm = fcojax.algorithms.fed_dual_avg(problem.loss, euclidean(l1()))
    found = fcojax_sites.select(
        problem,
        l1(),
        strengths=2,
        refit=False,
        max_rounds=5,
        eval_every=5,
        tolerance=0.0,
        plan=fcojax.Plan(fcojax.local_steps(1), uploads=transform),
        method=lambda loss: algorithm,
        hparams=algorithm.hparams_type(client_lr=0.1),
    )
    first, second, third = found.scores[:, -1]
    apart = min(abs(first - second), abs(second - third), abs(third - first))
    assert apart > 1e-3 if transform.noisy else apart < 1e-12
