"""Laws of mirror maps for every mirror map, and identities of each."""

import functools

import hypothesis.extra.numpy as hypothesis_numpy
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from fcojax import transforms
from tests.laws.mirror_laws import FIXED_LAWS, LAWS, SIZE, Row, generic, to_tree
from tests.laws.penalty_laws import close, pairs
from tests.support.tables import with_gate

pytestmark = pytest.mark.slow

WEIGHTS = np.array([2.0, 0.5, 1.0, 4.0, 1.5])
GRAM = np.cov(np.random.default_rng(0).normal(size=(SIZE, 40))) + np.diag(WEIGHTS)


def positive(x, scale):
    del scale
    return np.abs(x) + 0.05


def on_simplex(x, scale):
    return scale * positive(x, scale) / np.sum(positive(x, scale))


def half_square(norm, constant=1.0):
    return lambda u, v: 0.5 * constant * norm(u - v) ** 2


def l1_norm(x):
    return np.sum(np.abs(x))


def p_norm_row(p):
    return Row(transforms.p_norm(p), half_square(functools.partial(np.linalg.norm, ord=p), p - 1.0))


def diagonal_row(penalty, **traits):
    weights = to_tree(WEIGHTS)
    norm = half_square(lambda x: np.sqrt(np.sum(WEIGHTS * x**2)))
    return Row(transforms.diagonal(weights, penalty), norm, **traits)


def largest_sum(u, v):
    return max(l1_norm(u), l1_norm(v))


MIRRORS = {
    "euclidean l1": Row(transforms.euclidean(transforms.l1()), half_square(np.linalg.norm)),
    "diagonal zero": diagonal_row(transforms.zero()),
    "diagonal l1": diagonal_row(transforms.l1()),
    "diagonal l2_squared": diagonal_row(transforms.l2_squared()),
    "diagonal box": diagonal_row(
        transforms.box(-0.5, 1.5), feasible=lambda x, scale: np.clip(x, -0.5, 1.5), finite_psi=False
    ),
    "diagonal, one weight": Row(
        transforms.diagonal(3.0, transforms.l1()), half_square(np.linalg.norm, 3.0)
    ),
    "quadratic": Row(
        transforms.quadratic(jnp.asarray(GRAM)), lambda u, v: 0.5 * (u - v) @ GRAM @ (u - v)
    ),
    "p_norm 1.1": p_norm_row(1.1),
    "p_norm 1.5": p_norm_row(1.5),
    "p_norm 2": p_norm_row(2.0),
    "entropy": Row(
        transforms.entropy(),
        lambda u, v: 0.5 * l1_norm(u - v) ** 2 / largest_sum(u, v),
        inside=positive,
    ),
    "entropic_simplex": Row(
        transforms.entropic_simplex(),
        lambda u, v: 0.5 * l1_norm(u - v) ** 2 / largest_sum(u, v),
        inside=on_simplex,
    ),
}

# The gate runs every law on one row of each kind.
REPRESENTATIVES = {"euclidean l1", "diagonal box", "p_norm 1.5", "entropy"}

points = hypothesis_numpy.arrays(
    np.float64, SIZE, elements=st.floats(-4.0, 4.0, width=16, allow_subnormal=False)
)
numbers = st.floats(0.0625, 4.0, width=16)
many = settings(max_examples=25, deadline=None, derandomize=True)


@pytest.mark.parametrize("law, name", with_gate(pairs(LAWS, MIRRORS), REPRESENTATIVES))
@many
@given(points, points, points, numbers, numbers)
def test_law(law, name, u, v, w, step, scale):
    law(MIRRORS[name], u, v, w, step, scale)


@pytest.mark.parametrize("name", with_gate(MIRRORS, REPRESENTATIVES))
@pytest.mark.parametrize("law", FIXED_LAWS)
def test_fixed_law(law, name):
    law(MIRRORS[name])


# Identities of single mirror maps.


@pytest.mark.parametrize("name", ["diagonal l1", "p_norm 1.1", "p_norm 1.5"])
@many
@given(points, numbers, numbers)
def test_l1_is_a_soft_threshold_in_the_dual(name, z, step, scale):
    row = MIRRORS[name]
    soft = np.sign(z) * np.maximum(np.abs(z) - step * scale, 0.0)
    found = row("to_primal", z, step, scale)
    assert close(found, row("from_dual", soft), 1e-12, found)
    assert np.array_equal(found == 0.0, soft == 0.0)


@many
@given(points)
def test_p_norm_maps_preserve_the_norm(x):
    """``<grad h(x), x> = |x|_p^2 = |grad h(x)|_q^2``."""
    z = MIRRORS["p_norm 1.5"]("to_dual", x)
    square = np.linalg.norm(x, 1.5) ** 2
    assert close(np.vdot(z, x), square, 1e-12, square)
    assert close(np.linalg.norm(z, 3.0) ** 2, square, 1e-12, square)


@many
@given(points, numbers, numbers)
def test_a_diagonal_metric_is_a_change_of_variables(z, step, scale):
    """``u = q^(1/2) x``, ``y = q^(-1/2) z``: Euclidean, with weight ``q^(-1/2)`` on ``|u_i|``."""
    y, level = z / np.sqrt(WEIGHTS), step * scale / np.sqrt(WEIGHTS)
    u = np.sign(y) * np.maximum(np.abs(y) - level, 0.0)
    found = MIRRORS["diagonal l1"]("to_primal", z, step, scale)
    assert close(found, u / np.sqrt(WEIGHTS), 1e-12, u)


@many
@given(points, numbers, numbers)
def test_a_full_metric_is_a_change_of_variables(z, step, scale):
    """With ``Q = L L^T``, ``u = L^T x``: ``u + 2 t lambda L^-1 L^-T u = L^-1 z``."""
    lower = np.linalg.cholesky(GRAM)
    inverse = np.linalg.inv(lower)
    u = np.linalg.solve(np.eye(SIZE) + 2 * step * scale * inverse @ inverse.T, inverse @ z)
    found = MIRRORS["quadratic"]("to_primal", z, step, scale)
    assert close(found, np.linalg.solve(lower.T, u), 1e-12, u)


@many
@given(points, st.floats(-100.0, 100.0), numbers)
def test_the_simplex_is_invariant_to_shifts(z, shift, scale):
    row = MIRRORS["entropic_simplex"]
    found = row("to_primal", z, 1.0, scale)
    assert close(row("to_primal", z + shift, 3.0, scale), found, 1e-12)
    assert close(np.sum(found), scale, 1e-13)


@many
@given(points, points, numbers, numbers)
def test_a_step_on_the_simplex_is_an_exponentiated_gradient(x, gradient, step, scale):
    row = MIRRORS["entropic_simplex"]
    x = on_simplex(x, scale)
    moved = x * np.exp(-step * gradient)
    found = row("to_primal", row("to_dual", x) - step * gradient, step, scale)
    assert close(found, scale * moved / np.sum(moved), 1e-12)


def test_the_divergence_of_the_simplex_is_kullback_leibler():
    u, v = on_simplex(generic(0), 1.0), on_simplex(generic(1), 1.0)
    found = MIRRORS["entropic_simplex"]("divergence", u, v)
    assert close(found, np.sum(u * np.log(u / v)), 1e-14)


def test_no_finite_dual_point_of_the_simplex_overflows():
    z = np.array([1e300, 1e300, -1e300, 0.0, 5.0])
    found = MIRRORS["entropic_simplex"]("to_primal", z, 1.0, 2.0)
    assert found.tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_a_diagonal_metric_may_be_built_under_jit():
    @jax.jit
    def step(weights, z):
        return transforms.diagonal(weights, transforms.l1()).to_primal(z, 1.0, 1.0)

    found = step(jnp.array([1.0, 4.0]), jnp.array([3.0, 3.0]))
    assert found.tolist() == [2.0, 0.5]
