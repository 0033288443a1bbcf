"""Matrix penalties and mirror maps compared with solutions by cvxpy and scipy."""

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from fcojax import transforms

pytestmark = pytest.mark.slow

STEP, SCALE = 0.7, 0.9
GAP = 1e-10  # of the objective; by strong convexity the solution is accurate to its square root
TOLERANCE = 2e-5
rng = np.random.default_rng(0)
TALL, SQUARE = rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
VECTOR = rng.normal(size=6)
WEIGHTS = rng.uniform(0.5, 3.0, size=6)
GRAM = np.cov(rng.normal(size=(6, 20))) + 0.5 * np.eye(6)


def solve(x, objective, constraints=()):
    cp.Problem(cp.Minimize(objective), list(constraints)).solve(
        solver=cp.CLARABEL, tol_gap_abs=GAP, tol_gap_rel=GAP, tol_feas=GAP
    )
    return x.value


def distance(x, v):
    return 0.5 * cp.sum_squares(x - v)


def prox_of(value):
    def judge(v):
        x = cp.Variable(v.shape)
        return solve(x, STEP * SCALE * value(x) + distance(x, v))

    return judge


def projection_on(constraint):
    def judge(v):
        x = cp.Variable(v.shape)
        return solve(x, distance(x, v), [constraint(x)])

    return judge


def cone(v):
    x = cp.Variable(v.shape, PSD=True)
    return solve(x, distance(x, v))


PENALTIES = {
    "nuclear": (transforms.nuclear(), TALL, prox_of(cp.normNuc)),
    "nuclear, wide": (transforms.nuclear(), TALL.T, prox_of(cp.normNuc)),
    "nuclear_ball": (
        transforms.nuclear_ball(),
        TALL,
        projection_on(lambda x: cp.normNuc(x) <= SCALE),
    ),
    "psd": (transforms.psd(), SQUARE, cone),
    "nuclear norm inside a spectral ball": (
        transforms.on_singular_values(transforms.with_box(transforms.l1(), -0.5, 0.5)),
        TALL,
        lambda v: solve(
            x := cp.Variable(v.shape),
            STEP * SCALE * cp.normNuc(x) + distance(x, v),
            [cp.sigma_max(x) <= 0.5],
        ),
    ),
    "with_box": (
        transforms.with_box(transforms.l1(), -0.2, 0.5),
        VECTOR,
        lambda v: solve(
            x := cp.Variable(6),
            STEP * SCALE * cp.norm1(x) + distance(x, v),
            [x >= -0.2, x <= 0.5],
        ),
    ),
}


@pytest.mark.parametrize("name", PENALTIES)
def test_prox_solves_its_problem(name):
    penalty, v, judge = PENALTIES[name]
    found = penalty.prox(jnp.asarray(v), STEP, SCALE)
    assert np.max(np.abs(found - judge(v))) <= TOLERANCE


def mirror_step_of(potential, value=cp.norm1, constraints=lambda x: ()):
    def judge(z):
        x = cp.Variable(6)
        objective = potential(x) + STEP * SCALE * value(x) - z @ x
        return solve(x, objective, constraints(x))

    return judge


def nothing(x):
    return 0.0


MIRRORS = {
    "diagonal l1": (
        transforms.diagonal(jnp.asarray(WEIGHTS), transforms.l1()),
        mirror_step_of(lambda x: 0.5 * WEIGHTS @ cp.square(x)),
    ),
    "diagonal box": (
        transforms.diagonal(jnp.asarray(WEIGHTS), transforms.box(-0.2, 0.5)),
        mirror_step_of(
            lambda x: 0.5 * WEIGHTS @ cp.square(x), nothing, lambda x: [x >= -0.2, x <= 0.5]
        ),
    ),
    "quadratic": (
        transforms.quadratic(jnp.asarray(GRAM)),
        mirror_step_of(lambda x: 0.5 * cp.quad_form(x, GRAM), cp.sum_squares),
    ),
    "p_norm": (
        transforms.p_norm(1.5),
        mirror_step_of(lambda x: 0.5 * cp.square(cp.pnorm(x, 1.5))),
    ),
    "entropy": (transforms.entropy(), mirror_step_of(lambda x: -cp.sum(cp.entr(x)))),
    "entropic_simplex": (
        transforms.entropic_simplex(),
        mirror_step_of(lambda x: -cp.sum(cp.entr(x)), nothing, lambda x: [cp.sum(x) == SCALE]),
    ),
}


@pytest.mark.parametrize("name", MIRRORS)
def test_mirror_step_solves_its_problem(name):
    mirror, judge = MIRRORS[name]
    found = mirror.to_primal(jnp.asarray(VECTOR), STEP, SCALE)
    assert np.max(np.abs(found - judge(VECTOR))) <= TOLERANCE


def test_singular_value_maps_agree_with_the_decomposition_of_scipy():
    left, values, right = scipy.linalg.svd(TALL, full_matrices=False)
    for penalty, new in ((transforms.nuclear(), np.maximum(values - STEP * SCALE, 0.0)),):
        found = penalty.prox(jnp.asarray(TALL), STEP, SCALE)
        assert np.allclose(found, left * new @ right, atol=1e-14)
    assert np.allclose(transforms.nuclear().value(jnp.asarray(TALL), 2.0), 2.0 * values.sum())
