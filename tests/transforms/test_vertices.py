"""Linear minimisation over balls compared with dual norms."""

import jax.numpy as jnp
import numpy as np
import pytest

from fcojax.transforms import l1_vertex, nuclear_vertex

RNG = np.random.default_rng(0)


def test_the_l1_vertex_attains_the_dual_norm():
    """min <g, s> over the ball is -r |g|_inf; over all leaves together."""
    g = {"a": jnp.array([1.0, -4.0]), "b": jnp.array([[3.0, 0.5]])}
    s = l1_vertex(g, 2.0)
    assert s["a"].tolist() == [0.0, 2.0] and not s["b"].any()
    assert l1_vertex(jnp.array([2.0, -2.0]), 1.0).tolist() == [-1.0, 0.0]
    assert np.abs(l1_vertex(jnp.zeros(3), 1.0)).sum() == 1.0


def test_the_nuclear_vertex_attains_the_dual_norm():
    """min <G, S> over the ball is -r sigma_1(G), at a matrix of rank one and nuclear norm r."""
    g = RNG.standard_normal((5, 3))
    s = np.asarray(nuclear_vertex(jnp.asarray(g), 1.5))
    values = np.linalg.svd(s, compute_uv=False)
    np.testing.assert_allclose(values, [1.5, 0, 0], rtol=0, atol=1e-14)
    assert np.sum(g * s) == pytest.approx(-1.5 * np.linalg.svd(g, compute_uv=False)[0], rel=1e-13)
    assert np.isnan(nuclear_vertex(jnp.full((2, 2), jnp.nan), 1.0)).all()


def test_a_gradient_with_a_nan_has_no_vertex():
    """A finite vertex would hide a diverged gradient."""
    assert np.isnan(l1_vertex(jnp.array([1.0, np.nan, 2.0]), 0.5)).any()
