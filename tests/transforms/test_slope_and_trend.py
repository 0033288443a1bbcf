"""Sorted l1 and trend filtering against slow oracles, and their special cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax.transforms import (
    l1,
    l_inf,
    on_entries,
    slope,
    total_variation,
    trend_filter,
)


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


def test_slope_has_the_l1_norm_and_the_largest_magnitude_as_ends():
    v = np.random.default_rng(1).normal(size=9)
    for weights, norm in ((np.ones(9), l1()), (np.eye(9)[0], l_inf())):
        pair = slope(weights), norm

        @jax.jit
        def numbers(v, pair=pair):
            return [(t.prox(v, 0.5, 0.8), t.value(v, 0.8), t.scale_max(v)) for t in pair]

        ours, theirs = numbers(v)
        np.testing.assert_allclose(ours[0], theirs[0], atol=1e-14)
        np.testing.assert_allclose(ours[1:], theirs[1:], rtol=1e-6)


@pytest.mark.parametrize("degree", [1, 2])
def test_the_prox_of_a_long_signal_closes_the_duality_gap(degree):
    """``v - x`` is D'u with u within its bounds, and s |Dx|_1 = <u, Dx>."""
    rng = np.random.default_rng(degree)
    matrix = np.diff(np.eye(60), n=degree + 1, axis=0)
    prox = jax.jit(trend_filter(degree).prox)
    for bound in (0.01, 1.0, 30.0):
        v = rng.normal(size=60).cumsum()
        x = np.asarray(prox(v, bound, 1.0))
        dual = np.linalg.lstsq(matrix.T, v - x, rcond=None)[0]
        assert np.abs(dual).max() <= bound * (1 + 1e-9)
        gap = bound * np.abs(matrix @ x).sum() - dual @ matrix @ x
        assert gap <= 1e-9 * (1 + bound) * np.abs(v).max()
        assert (np.abs(matrix @ x) > 1e-9).sum() < 60 - degree - 1


def test_beyond_its_largest_scale_a_trend_is_the_best_polynomial():
    v = np.random.default_rng(2).normal(size=15)
    for degree in (1, 2):
        penalty = trend_filter(degree)
        prox = jax.jit(penalty.prox)  # one program for both scales
        fit = np.polyval(np.polyfit(np.arange(15), v, degree), np.arange(15))
        least = float(penalty.scale_max(jnp.asarray(v)))
        for scale in (1.001 * least, 1e60):
            np.testing.assert_allclose(prox(v, 1.0, scale), fit, atol=1e-9)
        variation = total_variation().value(jnp.diff(v, degree), 2.0)
        assert float(penalty.value(v, 2.0)) == pytest.approx(float(variation))


def test_refusals():
    with pytest.raises(ValueError, match="increase somewhere; pass them in decreasing order"):
        slope(np.array([1.0, 2.0, 0.5]))
    with pytest.raises(ValueError, match="need w_1 > 0 and w_p >= 0"):
        slope(np.zeros(3))
    with pytest.raises(ValueError, match="2 weights for 3 entries; pass one for each"):
        slope(np.array([2.0, 1.0])).prox(jnp.ones(3), 1.0, 1.0)
    with pytest.raises(ValueError, match="entry 1 is in two parts; pass it in one"):
        on_entries((l1(), [0, 1]), (l1(), [1]))
    with pytest.raises(ValueError, match="entry 4 but the point 3 entries"):
        on_entries((l1(), [4])).value(jnp.ones(3), 1.0)
