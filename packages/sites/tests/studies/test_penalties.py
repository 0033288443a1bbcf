"""Sorted l1 and trend filtering against slow oracles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax.transforms import l1
from fcojax_sites.studies.select.penalties import on_entries, slope, trend_filter


def pooled(lowered):
    """Return the closest decreasing sequence, by pooling adjacent violators."""
    blocks = []
    for number in lowered:
        blocks.append([number, 1])
        while len(blocks) > 1 and blocks[-2][0] <= blocks[-1][0]:
            (last, many), (mean, few) = blocks.pop(), blocks.pop()
            blocks.append([(last * many + mean * few) / (many + few), many + few])
    return np.concatenate([[mean] * many for mean, many in blocks])


def test_slope_is_pooling_of_sorted_magnitudes():
    rng = np.random.default_rng(0)
    weights = np.sort(rng.uniform(size=60))[::-1]
    prox = jax.jit(slope(weights).prox)
    for scale in (0.01, 1.0, 3.0):
        v = np.round(rng.normal(size=60), 1)  # with ties
        order = np.argsort(-np.abs(v), kind="stable")
        expected = np.zeros(60)
        expected[order] = np.maximum(pooled(np.abs(v)[order] - 0.7 * scale * weights), 0)
        np.testing.assert_allclose(prox(v, 0.7, scale), np.sign(v) * expected, atol=1e-12)
    least = float(slope(weights).scale_max(jnp.asarray(v)))
    for share, is_zero in ((1.001, True), (0.999, False)):
        assert (not np.any(prox(v, 1.0, share * least))) is is_zero


def test_the_prox_of_a_long_trend_closes_the_duality_gap():
    """``v - x`` is D'u with u within its bounds, and s |Dx|_1 = <u, Dx>."""
    rng = np.random.default_rng(1)
    matrix, prox = np.diff(np.eye(60), n=2, axis=0), jax.jit(trend_filter().prox)
    for bound in (0.01, 1.0, 30.0):
        v = rng.normal(size=60).cumsum()
        x = np.asarray(prox(v, bound, 1.0))
        dual = np.linalg.lstsq(matrix.T, v - x, rcond=None)[0]
        assert np.abs(dual).max() <= bound * (1 + 1e-9)
        gap = bound * np.abs(matrix @ x).sum() - dual @ matrix @ x
        assert gap <= 1e-9 * (1 + bound) * np.abs(v).max()
    np.testing.assert_array_equal(prox(v, 0.0, 1.0), v)


def test_beyond_its_largest_scale_a_trend_is_the_best_line():
    v, penalty = np.random.default_rng(2).normal(size=15), trend_filter()
    fit = np.polyval(np.polyfit(np.arange(15), v, 1), np.arange(15))
    least = float(penalty.scale_max(jnp.asarray(v)))
    for scale in (1.001 * least, 1e60):
        np.testing.assert_allclose(penalty.prox(jnp.asarray(v), 1.0, scale), fit, atol=1e-9)
    assert float(penalty.value(v, 2.0)) == pytest.approx(2 * np.abs(np.diff(v, 2)).sum())


def test_each_part_gets_its_entries():
    both = on_entries((slope(np.array([2.0, 1.0])), [3, 0]), (l1(), [2]))
    x = {"a": jnp.array([3.0, 5.0]), "b": jnp.array([-2.0, 4.0])}
    assert float(both.value(x, 0.5)) == 0.5 * (2 * 4 + 3 + 2)
    moved = both.prox(x, 1.0, 1.0)
    assert moved["a"].tolist() == [2.0, 5.0] and moved["b"].tolist() == [-1.0, 2.0]
    assert float(both.scale_max(x)) == pytest.approx(7 / 3)
