"""Laws of robust means: copies, permutations, limits, breakdown, and slow oracles."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from fcojax import robust
from tests.support.rules import robust_mean as mean

pytestmark = pytest.mark.gate

SHARE = 0.25  # of four equal points it is one
RULES = {
    "median": robust.median(),
    "trimmed_mean": robust.trimmed_mean(SHARE),
    "geometric_median": robust.geometric_median(10),
    "krum": robust.krum(SHARE),
    "centred_clipping": robust.centred_clipping(2.0),
}
# With a share of zero or an infinite radius they equal the weighted mean.
LIMITS = {
    "trimmed_mean": robust.trimmed_mean(0.0),
    "geometric_median": robust.geometric_median(3, 1e6),
    "centred_clipping": robust.centred_clipping(np.inf),
}


def cloud(seed=0, n=7, dim=3):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, dim)) + 0.5, rng.integers(1, 4, n).astype(float)


@pytest.mark.parametrize("name", LIMITS)
def test_without_bad_points_a_robust_rule_is_the_weighted_mean(name):
    points, weights = cloud(3)
    expected = np.average(points, axis=0, weights=weights)
    np.testing.assert_allclose(mean(LIMITS[name], points, weights), expected, rtol=1e-12)


def test_medians_are_those_of_numpy_and_of_the_definition():
    rng = np.random.default_rng(4)
    for n in (1, 2, 5, 6):
        points = rng.standard_normal((n, 4))
        np.testing.assert_allclose(
            mean(robust.median(), points, np.ones(n)), np.median(points, axis=0), rtol=1e-14
        )
    points, weights = cloud(5)
    found = mean(robust.median(), points, weights)
    for column, middle in zip(points.T, found, strict=True):
        assert weights[column < middle].sum() <= weights.sum() / 2
        assert weights[column > middle].sum() <= weights.sum() / 2


def test_ten_equal_shares_have_the_median_of_ten():
    """In float32 five times a tenth does not sum to one half."""
    points = np.arange(10, dtype=np.float32)[:, None] ** 2
    assert mean(robust.median(), points, np.full(10, 0.1, np.float32)) == [20.5]


@pytest.mark.slow
def test_the_geometric_median_is_the_minimiser_and_in_one_dimension_the_median():
    points, weights = cloud(6)
    many = robust.geometric_median(2000, 1e-9)

    def objective(z):
        return weights @ np.linalg.norm(points - z, axis=1)

    options = {"xatol": 1e-10, "fatol": 1e-14, "maxiter": 4000}
    best = scipy.optimize.minimize(
        objective, points.mean(axis=0), method="Nelder-Mead", options=options
    )
    assert objective(mean(many, points, weights)) <= best.fun * (1 + 1e-9)
    line, odd = points[:, :1], np.array([1, 1, 2, 1, 1, 2, 1.0])
    np.testing.assert_allclose(mean(many, line, odd), mean(robust.median(), line, odd), atol=1e-6)


def test_krum_and_the_trimmed_mean_by_hand():
    """Equal weights, f = 1 of 6, against loops over subsets."""
    points, _ = cloud(7, n=6)
    squares = np.sum((points[:, None] - points[None]) ** 2, axis=-1)
    scores = np.sort(squares, axis=1)[:, :5].sum(axis=1)  # itself and four neighbours
    ones, share = np.ones(6), 1 / 6
    np.testing.assert_allclose(mean(robust.krum(share), points, ones), points[scores.argmin()])
    trimmed = np.sort(points, axis=0)[1:-1].mean(axis=0)
    np.testing.assert_allclose(mean(robust.trimmed_mean(share), points, ones), trimmed, rtol=1e-12)


def test_buckets_keep_the_mean_and_their_weights():
    points, weights = cloud(9)
    seen = []

    def watched(hparams, groups, mass):
        jax.debug.callback(lambda *found: seen.append(found), groups, mass)
        return mass @ groups

    buckets = robust.bucketing(2, robust.averaged(watched))
    for seed in range(3):
        found = mean(buckets, points, weights, jax.random.key(seed))
        np.testing.assert_allclose(found, np.average(points, axis=0, weights=weights))
    assert all(groups.shape == (4, 3) for groups, _ in seen)
    assert len({round(float(groups[0, 0]), 6) for groups, _ in seen}) > 1
    alone = mean(robust.bucketing(2, robust.krum(0.0)), points, np.eye(7)[3])
    np.testing.assert_allclose(alone, points[3], rtol=1e-14)


BREAKING = ("median", "trimmed_mean", "geometric_median", "krum")


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKING)
def test_breakdown_is_just_under_half_of_the_weight(name):
    """Breakdown depends on weight, not number: one heavy point against eight light ones."""
    points, _ = cloud(10, n=9)
    points[0] = 1e6
    rules = {
        "median": robust.median(),
        "trimmed_mean": robust.trimmed_mean(0.49),
        "geometric_median": robust.geometric_median(),
        "krum": robust.krum(0.49),
    }
    for heavy, holds in ((0.45, True), (0.55, False)):
        weights = np.append(heavy, np.full(8, (1 - heavy) / 8))
        found = mean(rules[name], points, weights)
        assert (np.linalg.norm(found) < 20) == holds


BAD_OF_THREE = {
    "median": robust.median(),
    "trimmed_mean": robust.trimmed_mean(1 / 3),
    "krum": robust.krum(1 / 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1e10, 1e20, 3e37, -1e20])
@pytest.mark.parametrize("name", BAD_OF_THREE)
def test_exactly_the_share_that_a_rule_bears_is_borne_in_float32(name, factor):
    """With three sites of equal weight 1 - 1/3 exceeds the sum of two thirds by 1.8e-7."""
    honest = np.array([[1.0, -2.0], [3.0, 2.0]], np.float32)
    sent = np.float32(factor) * np.array([[2.0, 1.0]], np.float32)
    for order in itertools.permutations(range(3)):
        points = np.concatenate([honest, sent])[list(order)]
        shares = jnp.full(3, 1 / 3, jnp.float32)
        found = mean(BAD_OF_THREE[name], points, shares)
        assert found.dtype == np.float32
        assert np.all((found >= honest.min(axis=0)) & (found <= honest.max(axis=0)))


@st.composite
def tied_clouds(draw):
    """Draw few points on a small grid, so that distances, medians and scores often tie."""
    n = draw(st.integers(1, 6))
    entries = st.lists(st.integers(-2, 2), min_size=2, max_size=2)
    points = np.array(draw(st.lists(entries, min_size=n, max_size=n)), float)
    weights = np.array(draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)), float)
    return points, weights, draw(st.permutations(range(n)))


def padded(points, weights, size=18):
    """Pad to one shape, for one compilation; points without weight have no effect."""
    fill = size - len(points)
    return np.vstack([points, np.full((fill, 2), 7.0)]), np.append(weights, np.zeros(fill))


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
@given(cloud=tied_clouds())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_ties_depend_neither_on_the_order_nor_on_copies(name, cloud):
    points, weights, order = cloud
    order = list(order)
    counts = weights.astype(int)
    versions = {
        "once": (points, weights),
        "in another order": (points[order], weights[order]),
        "copies": (np.repeat(points, counts, axis=0), np.ones(counts.sum())),
    }
    once, *others = (mean(RULES[name], *padded(*one)) for one in versions.values())
    for other in others:
        np.testing.assert_allclose(other, once, rtol=1e-9, atol=1e-9)
