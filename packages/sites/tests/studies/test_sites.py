import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from experiments.report.rows import select
from fcojax.algorithms import fed_dual_avg
from fcojax.problems.least_squares import half_squared_error
from fcojax.transforms import euclidean, l1
from fcojax_sites.configs import sites as config_of_sites
from fcojax_sites.studies.sites import claims, problem, runs
from fcojax_sites.studies.sites.averaged_descent import averaged_coordinate_descent, lasso_path
from fcojax_sites.studies.sites.rows import cells, rounds_at_cap, summarise, uploads
from tests.studies.quick_studies import quick_study


def _clients(dim, sizes, seed=0):
    """Return rows of every client, and clients with their moments."""
    rng = np.random.default_rng(seed)
    rows = [(rng.standard_normal((n, dim)), rng.standard_normal(n)) for n in sizes]
    held = problem.clients([problem.moments(*own) for own in rows], list(sizes))
    return rows, held


def _coordinate_descent(x, y, w, strength, num_sweeps):
    """Plain coordinate descent with residuals."""
    w = w.copy()
    for _ in range(num_sweeps):
        for j in range(len(w)):
            left = y - x @ w + x[:, j] * w[j]
            target = x[:, j] @ left / len(y)
            shrunk = np.sign(target) * max(abs(target) - strength, 0)
            w[j] = shrunk / (x[:, j] @ x[:, j] / len(y))
    return w


@pytest.mark.slow
@pytest.mark.parametrize("dim", [5, 122])  # one block, or two of at most 61
@pytest.mark.parametrize("num_steps", [1, 3])
def test_averaged_descent_is_its_definition(dim, num_steps):
    sizes, strengths = (9, 6, 4), [0.3, 0.05]
    rows, held = _clients(dim, sizes)
    algorithm = averaged_coordinate_descent()
    grid = fcojax.grid.product(algorithm.hparams_type, penalty_scale=strengths)
    models, _ = fcojax.sweep(
        algorithm,
        grid,
        jnp.zeros(dim),
        held,
        jax.random.key(0)[None],
        fcojax.local_steps(num_steps),
        num_rounds=2,
    )
    for strength, found in zip(strengths, models[:, 0], strict=True):
        w = np.zeros(dim)
        for _ in range(2):
            ends = [_coordinate_descent(*own, w, strength, num_steps) for own in rows]
            w = np.average(ends, axis=0, weights=sizes)
        np.testing.assert_allclose(found, w, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_dual_averaging_on_moments_equals_that_on_rows():
    rows, held = _clients(5, (9, 6))
    given = [{"x": x, "y": y} for x, y in rows]
    examples = fcojax.from_clients(given, weights="examples")
    hparams = fed_dual_avg.Hparams(client_lr=0.1, penalty_scale=0.1)
    first, second = (
        fcojax.run(
            fed_dual_avg(loss, euclidean(l1())),
            hparams,
            jnp.zeros(5),
            data,
            jax.random.key(0),
            fcojax.local_steps(3),
            num_rounds=4,
        )[0]
        for loss, data in ((problem.moment_loss, held), (half_squared_error, examples))
    )
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-14)
    assert jnp.abs(first).max() > 0.05


def test_losses_and_gaps_of_moments_equal_those_of_rows():
    [(x, y)], _ = _clients(4, (30,))
    own, w = problem.moments(x, y), np.array([0.3, 0.0, -0.2, 0.0])
    np.testing.assert_allclose(own.loss(w), np.mean((x @ w - y) ** 2) / 2, rtol=1e-13)
    best = _coordinate_descent(x, y, w, 0.1, 200)
    far = own.loss(w) + 0.1 * np.abs(w).sum() - own.loss(best) - 0.1 * np.abs(best).sum()
    assert own.duality_gap(best, np.array(0.1)) < 1e-14
    assert own.duality_gap(w, np.array(0.1)) > far > 0
    assert own.mapping(best, 0.1) < 1e-14
    slope = x.T @ (x @ w - y) / len(y)
    shrunk = np.sign(w - slope) * np.maximum(abs(w - slope) - 0.1, 0.0)
    np.testing.assert_allclose(own.mapping(w, 0.1), abs(w - shrunk).max(), rtol=1e-13)


def test_a_path_of_lassos_is_solved_to_the_tolerance():
    [(x, y)], _ = _clients(5, (30,))
    own = problem.moments(x, y)
    strengths = np.geomspace(abs(own.cross).max(), 0.01, 6)
    found = np.asarray(lasso_path(*own, strengths, tolerance=1e-12, max_sweeps=500))
    assert not found[0].any()
    assert own.duality_gap(found, strengths).max() <= 1e-12 * own.energy
    expected = _coordinate_descent(x, y, np.zeros(5), strengths[-1], 500)
    np.testing.assert_allclose(found[-1], expected, atol=1e-6)
    early = np.asarray(lasso_path(*own, strengths, tolerance=1e-12, max_sweeps=1))
    assert own.duality_gap(early, strengths).max() > 1e-6


CORRELATIONS = {
    "independent": (0.0, 0.0, 0.0),
    "correlated": (0.5, 0.5, 0.5),
    "heterogeneous": (0.0, 0.4, 0.7),
}


@pytest.mark.parametrize("design", CORRELATIONS)
def test_features_and_labels_have_the_stated_laws(design):
    config = config_of_sites.get_config()
    config.dim, config.num_true, config.num_test = 20, 5, 20_000
    config.rows, config.held_out = (20_000, 16_000, 18_000), (12_000, 10_000, 14_000)
    sites = problem.draw(config, design, seed=3)
    uneven = design == "heterogeneous"
    scales, noises = ((1, 1.4, 0.7), (1, 1.5, 0.8)) if uneven else ((1, 1, 1), (1, 1, 1))
    place = np.arange(20)
    for j, (train, held) in enumerate(zip(sites.train, sites.validation, strict=True)):
        law = scales[j] ** 2 * CORRELATIONS[design][j] ** abs(place[:, None] - place)
        for own, num in ((train, config.rows[j]), (held, config.held_out[j])):
            room = 6 / num**0.5
            assert abs(own.gram - law).max() < room * scales[j] ** 2
            variance = sites.truth @ law @ sites.truth
            assert sites.signal[j] == pytest.approx(variance, rel=room)
            assert own.energy == pytest.approx(variance * (1 + noises[j] ** 2), rel=room)
    np.testing.assert_allclose(sites.deviations, noises * sites.signal**0.5, rtol=1e-14)
    features, labels = sites.test
    share = {"independent": 0.0, "correlated": 0.5, "heterogeneous": 0.4}[design]
    assert abs(features.T @ features / 20_000 - share ** abs(place[:, None] - place)).max() < 0.05
    left = labels - features @ sites.truth
    assert left.std() == pytest.approx(sites.deviations.mean(), rel=0.03)
    sizes = abs(sites.truth[sites.truth != 0])
    assert len(sizes) == 5 and sizes.min() >= 0.4 and sizes.max() <= 1.2
    largest = max(np.linalg.eigvalsh(own.gram)[-1] for own in sites.train)
    assert sites.smoothness == pytest.approx(largest, rel=1e-12)
    assert sites.clients.weights.tolist() == [0.5, 0.3, 0.2]


def test_the_strength_is_the_weighted_mean_of_what_sites_choose():
    config = config_of_sites.get_config()
    config_of_sites.quick(config)
    config.dim, config.num_true, config.rows, config.held_out = 12, 3, (30, 20, 16), (10, 8, 6)
    config.num_strengths = 8
    sites = problem.draw(config, "independent", seed=0)
    choice = runs.common_strength(config, sites, jax.devices()[0])
    expected = []
    for own, held in zip(sites.train, sites.validation, strict=True):
        strengths = np.geomspace(1, 1e-3, 8) * abs(own.cross).max()
        root = np.linalg.cholesky(own.gram)  # rows with these moments
        labels = np.linalg.solve(root, own.cross) * 12**0.5
        models = [
            _coordinate_descent(root.T * 12**0.5, labels, np.zeros(12), strength, 300)
            for strength in strengths
        ]
        expected.append(strengths[held.loss(np.array(models)).argmin()])
    assert choice.strength == pytest.approx(np.dot([0.5, 0.3, 0.2], expected), rel=1e-12)
    assert choice.duality_gap <= config.path_tolerance


def test_uploads_are_those_of_the_source():
    config = config_of_sites.get_config()
    assert uploads(config, "averaged_cd", 100)["total_bytes"] + 96 == 1_440_120
    assert uploads(config, "fed_dual_avg", 1)["fit_bytes"] == 14_400
    assert uploads(config, "fed_dual_avg", 20)["total_bytes"] == 3 * 20 * 14_400 + 8 * 3 * 5
    assert rounds_at_cap(config) == 20


def _fabricated(config, lead, late=0.0):
    """Return rows in which FedDualAvg's F1 leads by ``lead``, with a small gap if ``lead`` > 0."""
    rows = []
    for at, (design, num_steps) in enumerate(cells(config)):
        for seed in range(config.num_seeds):
            place, shared = {"design": design, "seed": seed}, {"mapping": 0.1, "test_error": 9.0}
            for method in runs.METHODS:
                dual = method == "fed_dual_avg"
                gap = (1e-5 if dual == (lead > 0) else 1.695) * (1 + 0.01 * (seed - 1))
                f1 = 0.2 + dual * (lead + 0.028 * at) + 0.002 * (seed - 1) * dual
                for num_rounds in config.num_rounds:
                    rows.append(
                        {"part": "run", "num_steps": num_steps, "method": method}
                        | place
                        | shared
                        | {"round": num_rounds, "f1": f1, "active": 131 + 10.875 * at + seed - 1}
                        | {"gap": gap + late * (num_rounds == 100)}
                        | uploads(config, method, num_rounds)
                    )
            if num_steps == config.num_steps[0]:
                row = {"part": "pooled", "duality_gap": 1e-12, "local_duality_gap": 1e-5}
                rows.append(row | {"objective": 20.0, "f1": 0.5, "active": 40} | place | shared)
    return rows


def _held(config, rows):
    found = claims.claims(config, rows, summarise(config, rows))
    return {f"{claim.text}: {claim.part}": claim.holds for claim in found}


def _lost(config, rows):
    return [text for text, holds in _held(config, rows).items() if not holds]


def test_claims_hold_or_fail_with_the_rows():
    config = config_of_sites.get_config()
    config.num_seeds = 3
    held = _held(config, _fabricated(config, 0.243))
    assert len(held) == 18 + 2 + 9 + 2 + 3 + 2 and all(held.values())
    behind = _lost(config, _fabricated(config, -0.3))
    assert sum("smaller gap" in text for text in behind) == 9
    assert sum("below one cap" in text for text in behind) == 9
    assert sum("mean gap" in text for text in behind) == 2
    assert all(
        "differences in F1 at the cap" in text for text in _lost(config, _fabricated(config, 0.1))
    )
    moving = _lost(config, _fabricated(config, 0.243, late=-1.0))
    assert any("makes no progress" in text for text in moving)


@pytest.mark.slow
def test_a_quick_run_leaves_rows_tables_and_a_figure(tmp_path):
    study, config, rows, summary = quick_study("sites", tmp_path)
    num_cells = len(cells(config))
    assert len(select(rows, part="pooled")) == len(config.designs) * config.num_seeds
    assert len(select(rows, part="run")) == num_cells * config.num_seeds * 2 * 3
    assert len(summary["best"]) == num_cells * 3 + len(config.designs)
    for row in select(rows, part="run"):
        assert row["gap"] > -1e-9 and row["mapping"] >= 0
        assert (row["rate"] is None) == (row["method"] == "averaged_cd")
    for row in select(rows, part="pooled"):
        assert row["mapping"] < 1e-5
    # Dual averaging approaches the optimum; averaged descent does not.
    ours, theirs = (
        [row["gap"] for row in select(rows, method=name, num_steps=1, round=100)]
        for name in runs.METHODS
    )
    assert np.all(np.array(ours) < np.array(theirs) / 50)
    assert {claim.holds for claim in study.claims(config, rows, summary) if claim.quick} == {True}
    [drawn] = study.figures(config, rows, summary, tmp_path)
    assert drawn.name == "sites.png" and drawn.stat().st_size > 30_000
