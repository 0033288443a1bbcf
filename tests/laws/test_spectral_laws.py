"""Penalties on matrices: rows for ``test_penalty_laws``, and identities of matrices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax import transforms
from tests.laws.penalty_laws import Row

pytestmark = pytest.mark.slow

WIDE = {"empty": jnp.zeros((0, 2)), "kernel": jnp.zeros((2, 3))}
TALL = jnp.zeros((4, 2))
STACK = jnp.zeros((2, 2, 2))
SQUARE = jnp.zeros((3, 3))
NUCLEAR_IN_BALL = transforms.on_singular_values(transforms.with_box(transforms.l1(), -1.5, 1.5))


def into_nuclear_ball(shape):
    """Divide by the nuclear norm if it is too large; this is not the projection."""

    def member(x, scale):
        matrices = x.reshape(shape)
        size = np.linalg.norm(matrices, "nuc", axis=(-2, -1), keepdims=True)
        return (matrices * np.minimum(1.0, scale / np.maximum(size, 1e-300))).ravel()

    return member


def into_spectral_ball(shape):
    """Divide by the Frobenius norm, which is an upper bound."""

    def member(x, scale):
        matrices = x.reshape(shape)
        size = np.linalg.norm(matrices, axis=(-2, -1), keepdims=True)
        return (matrices * np.minimum(1.0, scale / np.maximum(size, 1e-300))).ravel()

    return member


def into_cone(x, scale):
    """``B B^T`` is positive semidefinite."""
    del scale
    return (x.reshape(3, 3) @ x.reshape(3, 3).T).ravel()


PENALTIES = {
    "nuclear, wide": Row(transforms.nuclear(), WIDE),
    "nuclear, tall": Row(transforms.nuclear(), TALL),
    "nuclear, stack": Row(transforms.nuclear(), STACK),
    "nuclear_ball, wide": Row(
        transforms.nuclear_ball(), WIDE, indicator=True, member=into_nuclear_ball((2, 3))
    ),
    "nuclear_ball, stack": Row(
        transforms.nuclear_ball(),
        STACK,
        indicator=True,
        member=into_nuclear_ball((2, 2, 2)),
    ),
    "psd": Row(transforms.psd(), SQUARE, indicator=True, member=into_cone),
    "on_singular_values, wide": Row(transforms.on_singular_values(transforms.l1()), WIDE),
    "on_singular_values, in a ball": Row(
        NUCLEAR_IN_BALL, TALL, member=lambda x, scale: into_spectral_ball((4, 2))(x, 1.5)
    ),
    "on_singular_values, elastic net": Row(
        transforms.on_singular_values(transforms.elastic_net(0.5)), STACK
    ),
    "on_singular_values, power": Row(
        transforms.on_singular_values(transforms.lp_power(3.0)), TALL, tolerance=1e-8
    ),
}


SINGULAR_VALUE_MAPS = {
    "nuclear": transforms.nuclear(),
    "nuclear_ball": transforms.nuclear_ball(),
    "nuclear in spectral_ball": NUCLEAR_IN_BALL,
}
PROX = {name: jax.jit(penalty.prox) for name, penalty in SINGULAR_VALUE_MAPS.items()}


def orthogonal(seed, size):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]


def test_the_distance_to_subgradients_ignores_leaves_without_entries():
    x = {"empty": jnp.zeros((0, 2)), "kernel": jnp.diag(jnp.array([2.0, 0.0]))}
    v = x | {"kernel": jnp.diag(jnp.array([4.0, 5.0]))}
    assert float(transforms.nuclear().subdiff_distance(x, v, 1.0)) == 5.0  # of (3, 4)


# Derivatives at points where the derivative of the decomposition divides by zero.


def directional(function, v, along, width=1e-6):
    return (function(v + width * along) - function(v - width * along)) / (2 * width)


@functools.cache
def derivatives(name):
    """Return ``(v, along, weights) -> `` the prox's directional derivative, in both modes."""

    def both(v, along, weights):
        def read(v):
            return jnp.vdot(weights, SINGULAR_VALUE_MAPS[name].prox(v, 0.5, 0.9))

        return jax.jvp(read, (v,), (along,))[1], jnp.vdot(jax.grad(read)(v), along)

    return jax.jit(both)


REPEATED = {
    "identity": np.eye(4, 3),
    "orthogonal": orthogonal(2, 4)[:, :3],
    "twice": orthogonal(3, 4)[:, :3] @ np.diag([2.0, 2.0, 0.3]) @ orthogonal(4, 3),
    "almost": np.diag([2.0, 2.0 + 1e-9, 1.0, 0.0])[:, :3],
    "rank one": np.outer([1.0, 2.0, 2.0, 0.0], [0.0, 0.6, 0.8]),
}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("build", [transforms.nuclear, transforms.nuclear_ball])
def test_a_matrix_that_is_not_finite_gives_nan_and_no_output_of_lapack(build, bad, capfd):
    matrix = jnp.ones((4, 3)).at[1, 2].set(bad)
    assert jnp.isnan(build().prox(matrix, 0.1, 0.1)).all()
    assert not jnp.isfinite(build().value(matrix, 0.1))
    written = capfd.readouterr()
    assert written.out + written.err == ""


@pytest.mark.parametrize("name", SINGULAR_VALUE_MAPS)
@pytest.mark.parametrize("case", REPEATED)
def test_derivative_at_repeated_singular_values(name, case):
    """No singular value is at the threshold, so all are differentiable."""
    v = REPEATED[case]
    along, weights = np.random.default_rng(5).normal(size=(2, 4, 3))
    expected = directional(lambda v: np.vdot(weights, PROX[name](v, 0.5, 0.9)), v, along)
    assert np.allclose(derivatives(name)(v, along, weights), expected, atol=1e-7)


@pytest.mark.parametrize("eigenvalues", [[1.0, 1.0, -2.0], [-1.0, -1.0, -1.0], [3.0, 1.0, -1.0]])
def test_derivative_of_the_cone_at_repeated_eigenvalues(eigenvalues):
    basis = orthogonal(7, 3)
    v = jnp.asarray(basis @ np.diag(eigenvalues) @ basis.T)
    along = jnp.asarray(np.random.default_rng(8).normal(size=v.shape))

    def project(v):
        return transforms.psd().prox(v, 1.0, 1.0)

    found = jax.jvp(project, (v,), (along,))[1]
    assert np.allclose(found, directional(project, v, along), atol=1e-8)
