"""Manifolds that coincide, and degenerate points; the laws are in ``tests/laws``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax.transforms import (
    distance,
    flat,
    generalised_stiefel,
    grassmann,
    oblique,
    product_manifold,
    riemannian_gradient,
    rotation,
    sphere,
    stiefel,
)
from fcojax.transforms.manifolds.manifold import ambient_norm


def tangent_pair(manifold, shape, size=0.4):
    rng = np.random.default_rng(0)
    x = manifold.project(jnp.asarray(rng.standard_normal(shape)))
    u = manifold.to_tangent(x, jnp.asarray(rng.standard_normal(shape)))
    return x, size * u / jnp.linalg.norm(u)


@pytest.mark.slow
def test_maps_of_products_need_those_of_every_factor():
    pair = product_manifold({"a": stiefel(), "b": flat()})
    assert pair.log is None and pair.exp is not None
    assert pair.reach == 1.0
    weighted = product_manifold([generalised_stiefel(4 * jnp.eye(3)), flat()])
    x = weighted.project([jnp.eye(3, 1), jnp.ones(2)])
    g = [jnp.ones((3, 1)), jnp.ones(2)]
    frame, free = riemannian_gradient(weighted, x, g)
    np.testing.assert_allclose(frame, [[0.0], [0.25], [0.25]], atol=1e-15)
    np.testing.assert_array_equal(free, g[1])


@pytest.mark.slow
def test_distances_are_in_the_ambient_inner_product():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((4, 4))
    metric = root @ root.T + np.eye(4)
    weighted = product_manifold([generalised_stiefel(jnp.asarray(metric)), flat()])
    y = [jnp.asarray(rng.standard_normal((4, 2))), jnp.asarray(rng.standard_normal(3))]
    for there, back in ((weighted.riesz, weighted.metric), (weighted.metric, weighted.riesz)):
        for leaf, same in zip(y, back(y, there(y, y)), strict=True):
            np.testing.assert_allclose(same, leaf, atol=1e-12)
    # It is the distance of the singular values of L^T y from 1.
    excess = np.linalg.svd(np.linalg.cholesky(metric).T @ y[0], compute_uv=False) - 1
    assert float(distance(weighted, y)) == pytest.approx(np.linalg.norm(excess), rel=1e-12)


@pytest.mark.parametrize("retraction", ["polar", "qr"])
def test_a_retraction_of_nothing_stays(retraction):
    """QR alone gives columns of either sign."""
    x, u = tangent_pair(stiefel(), (6, 3), size=1e-6)
    for side in (x, -x):
        found = jax.jit(stiefel(retraction=retraction).retract)(side, u)
        np.testing.assert_allclose(found, side + u, rtol=0, atol=1e-11)


def test_projection_inverse_is_exact_to_second_order():
    manifold = stiefel(inverse="projection")
    x, u = tangent_pair(manifold, (7, 3), size=1.0)

    @jax.jit
    def missed(t):
        return jnp.linalg.norm(manifold.inverse_retract(x, manifold.retract(x, t * u)) - t * u)

    off = missed(2.0**-5), missed(2.0**-6)
    assert abs(float(jnp.log2(off[0] / off[1])) - 3) <= 0.1


@pytest.mark.slow
def test_projection_of_zero_is_the_first_unit_vector():
    np.testing.assert_array_equal(sphere().project(jnp.zeros((2, 2))), [[1, 0], [0, 0]])
    columns = jnp.array([[0.0, 3.0], [0.0, 4.0]])
    np.testing.assert_allclose(oblique().project(columns), [[1, 0.6], [0, 0.8]])
    np.testing.assert_array_equal(stiefel().project(jnp.zeros((3, 2))), np.eye(3, 2))
    for manifold in (sphere(), oblique()):
        slope = jax.jacobian(manifold.project)(jnp.zeros((2, 2)))
        np.testing.assert_array_equal(slope, 0)


def test_projection_on_the_sphere_does_not_overflow():
    for scale in (1e-30, 1e30):
        y = np.array([3 * scale, 4 * scale], np.float32)
        np.testing.assert_allclose(sphere().project(y), [0.6, 0.8], rtol=1e-6)


@pytest.mark.slow
def test_results_at_cut_loci_are_finite():
    x = jnp.eye(4, 2)
    for manifold in (sphere(), oblique()):
        np.testing.assert_array_equal(manifold.log(x[:, :1], -x[:, :1]), 0)
        opposite = manifold.inverse_retract(x[:, :1], x[:, 1:])
        np.testing.assert_array_equal(opposite, x[:, 1:])
    across = jnp.eye(4)[:, 2:]  # every principal angle is a right angle
    for manifold in (
        stiefel(),
        stiefel(retraction="qr"),
        grassmann(),
    ):
        assert np.all(np.isfinite(manifold.inverse_retract(x, across)))
        assert np.all(np.isfinite(manifold.inverse_retract(x, -x)))
    assert np.all(np.isfinite(grassmann().log(x, across)))
    for turn in (-jnp.eye(2), jnp.diag(jnp.array([1.0, -1.0]))):
        assert np.all(np.isfinite(rotation().log(jnp.eye(2), turn)))


def test_distances_do_not_overflow_in_single_precision():
    """The norm of (3, 4), which doubles with a metric of 4."""
    doubled = generalised_stiefel(4 * jnp.eye(2, dtype=jnp.float32))
    for manifold, factor in ((sphere(), 1), (doubled, 2)):
        norm = jax.jit(jax.value_and_grad(lambda u, v, m=manifold: ambient_norm(m, v, u)))
        for size in (1e-30, 1e-20, 1e20, 1e30):
            v = np.array([[3 * size], [4 * size]], np.float32)
            length, gradient = norm(v, v)
            np.testing.assert_allclose(length, factor * 5 * size, rtol=1e-6)
            np.testing.assert_allclose(gradient.ravel(), factor * np.array([0.6, 0.8]), rtol=1e-6)


def test_projection_on_a_sphere_of_many_entries_in_half_precision():
    moved = sphere().project(jnp.ones(70_000, jnp.float16))
    assert moved.dtype == jnp.float16
    np.testing.assert_allclose(np.asarray(moved, float), 70_000**-0.5, rtol=1e-3)


def test_log_is_the_velocity_of_exp_and_project_has_the_tangent_for_derivative():
    x, u = tangent_pair(grassmann(), (5, 2))
    np.testing.assert_allclose(grassmann().log(x, grassmann().exp(x, u)), u, atol=1e-12)
    v = jnp.asarray(np.random.default_rng(1).standard_normal((5, 2)))
    moved = jax.jvp(stiefel().project, (x,), (v,))[1]
    np.testing.assert_allclose(moved, stiefel().to_tangent(x, v), atol=1e-12)
