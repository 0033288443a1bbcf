"""Proxes, projections and mirror steps compared with cvxpy, scikit-learn and scipy."""

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from sklearn.isotonic import isotonic_regression
from sklearn.linear_model import ElasticNet

from fcojax import transforms
from fcojax.transforms.penalties.total_variation import costs_in_order, costs_in_parallel

pytestmark = pytest.mark.slow

SIZE = 9
STEP, SCALE = 0.7, 0.9
WEIGHTS = np.linspace(0.2, 2.0, SIZE)
LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1, 1])
EQUATIONS = np.random.default_rng(7).normal(size=(3, SIZE))
GRAM = np.cov(np.random.default_rng(8).normal(size=(SIZE, 20))) + 0.5 * np.eye(SIZE)


def group_norms(x):
    return sum(cp.norm2(x[np.flatnonzero(g == LABELS)]) for g in range(3))


def within(low, high):
    return lambda x: [x >= low, x <= high]


# Each row: the shape, our transform, psi for cvxpy without its strength, and the set, or None.
PROBLEMS = {
    "l1": (SIZE, transforms.l1(), cp.norm1, None),
    "l2_squared": (SIZE, transforms.l2_squared(), cp.sum_squares, None),
    "elastic_net": (
        SIZE,
        transforms.elastic_net(0.7),
        lambda x: 0.7 * cp.norm1(x) + 0.3 * cp.sum_squares(x),
        None,
    ),
    "l2": (SIZE, transforms.l2(), cp.norm2, None),
    "l_inf": (SIZE, transforms.l_inf(), cp.norm_inf, None),
    "group_l2": (SIZE, transforms.group_l2(labels=LABELS), group_norms, None),
    "sparse_group": (
        SIZE,
        transforms.sparse_group(0.4, labels=LABELS),
        lambda x: 0.4 * cp.norm1(x) + 0.6 * group_norms(x),
        None,
    ),
    "lp_power": (
        SIZE,
        transforms.lp_power(2.5),
        lambda x: cp.sum(cp.power(cp.abs(x), 2.5)),
        None,
    ),
    "total_variation": (SIZE, transforms.total_variation(), cp.tv, None),
    "fused_lasso": (
        SIZE,
        transforms.fused_lasso(0.3),
        lambda x: 0.3 * cp.norm1(x) + 0.7 * cp.tv(x),
        None,
    ),
    "with_box": (
        SIZE,
        transforms.with_box(transforms.l1(), -0.2, 0.5),
        cp.norm1,
        within(-0.2, 0.5),
    ),
    "simplex": (SIZE, transforms.simplex(), None, lambda x: [x >= 0, cp.sum(x) == SCALE]),
    "l1_ball": (SIZE, transforms.l1_ball(), None, lambda x: [cp.norm1(x) <= SCALE]),
    "l2_ball": (SIZE, transforms.l2_ball(), None, lambda x: [cp.norm2(x) <= SCALE]),
    "box": (SIZE, transforms.box(-0.3, WEIGHTS), None, within(-0.3, WEIGHTS)),
    "affine": (
        SIZE,
        transforms.affine(EQUATIONS, np.ones(3)),
        None,
        lambda x: [EQUATIONS @ x == np.ones(3)],
    ),
    "monotone": (SIZE, transforms.monotone(), None, lambda x: [cp.diff(x) >= 0]),
    "nuclear": ((4, 3), transforms.nuclear(), cp.normNuc, None),
    "nuclear, wide": ((3, 4), transforms.nuclear(), cp.normNuc, None),
    "nuclear_ball": ((4, 3), transforms.nuclear_ball(), None, lambda x: [cp.normNuc(x) <= SCALE]),
    "psd": ((3, 3), transforms.psd(), None, lambda x: [x == x.T, x >> 0]),
    "nuclear norm inside a spectral ball": (
        (4, 3),
        transforms.on_singular_values(transforms.with_box(transforms.l1(), -0.5, 0.5)),
        cp.normNuc,
        lambda x: [cp.sigma_max(x) <= 0.5],
    ),
}


def solved(x, objective, constraints):
    precise = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
    cp.Problem(cp.Minimize(objective), constraints).solve(solver="CLARABEL", **precise)
    return x.value


@pytest.mark.gate
@pytest.mark.parametrize("name", PROBLEMS)
def test_prox_agrees_with_an_interior_point_method(name):
    shape, penalty, psi, members = PROBLEMS[name]
    v = np.random.default_rng(len(name)).normal(size=shape) * 2
    x = cp.Variable(shape)
    objective = 0.5 * cp.sum_squares(x - v) + (STEP * SCALE * psi(x) if psi else 0.0)
    ours = penalty.prox(jnp.asarray(v), STEP, SCALE)
    theirs = solved(x, objective, members(x) if members else [])
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    if psi:
        value = SCALE * float(psi(cp.Constant(ours)).value)
        np.testing.assert_allclose(penalty.value(ours, SCALE), value, atol=1e-12)


# Each row: our mirror, its potential, psi, and the set, or None.
MIRRORS = {
    "diagonal l1": (
        transforms.diagonal(jnp.asarray(WEIGHTS), transforms.l1()),
        lambda x: 0.5 * WEIGHTS @ cp.square(x),
        cp.norm1,
        None,
    ),
    "diagonal box": (
        transforms.diagonal(jnp.asarray(WEIGHTS), transforms.box(-0.2, 0.5)),
        lambda x: 0.5 * WEIGHTS @ cp.square(x),
        None,
        within(-0.2, 0.5),
    ),
    "quadratic": (
        transforms.quadratic(jnp.asarray(GRAM)),
        lambda x: 0.5 * cp.quad_form(x, GRAM),
        cp.sum_squares,
        None,
    ),
    "p_norm": (transforms.p_norm(1.5), lambda x: 0.5 * cp.square(cp.pnorm(x, 1.5)), cp.norm1, None),
    "entropy": (transforms.entropy(), lambda x: -cp.sum(cp.entr(x)), cp.norm1, None),
    "entropic_simplex": (
        transforms.entropic_simplex(),
        lambda x: -cp.sum(cp.entr(x)),
        None,
        lambda x: [cp.sum(x) == SCALE],
    ),
}


@pytest.mark.gate
@pytest.mark.parametrize("name", MIRRORS)
def test_a_mirror_step_agrees_with_an_interior_point_method(name):
    mirror, potential, psi, members = MIRRORS[name]
    z, x = np.random.default_rng(0).normal(size=SIZE), cp.Variable(SIZE)
    objective = potential(x) - z @ x + (STEP * SCALE * psi(x) if psi else 0.0)
    found = mirror.to_primal(jnp.asarray(z), STEP, SCALE)
    np.testing.assert_allclose(
        found, solved(x, objective, members(x) if members else []), atol=2e-5
    )


@pytest.mark.parametrize(("penalty", "share"), [("l1", 1.0), ("elastic_net", 0.7)])
def test_solutions_of_scikit_learn_are_fixed_points_of_proximal_gradient(penalty, share):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(40, SIZE)), rng.normal(size=40)
    # Its squared norm is halved.
    alpha = 0.05 * (share + 2 * (1 - share))
    model = ElasticNet(
        alpha=alpha, l1_ratio=0.05 * share / alpha, fit_intercept=False, tol=1e-13, max_iter=10**6
    )
    w = model.fit(x, y).coef_
    ours = getattr(transforms, penalty)(*[share] * (penalty != "l1"))
    stepped = ours.prox(jnp.asarray(w - 0.3 * x.T @ (x @ w - y) / 40), 0.3, 0.05)
    np.testing.assert_allclose(stepped, w, atol=1e-9)
    assert 0 < np.count_nonzero(w) < SIZE


SIGNALS = {
    "noise": np.random.default_rng(0).normal(size=2000),
    "random walk": np.cumsum(np.random.default_rng(1).normal(size=2000)),
    "ties": np.round(np.random.default_rng(2).normal(size=2000)),
    "equal": np.full(2000, 0.1),
    "increasing": np.geomspace(1e-9, 1.0, 2000),
    "decreasing": np.linspace(1.0, -1.0, 2000),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_monotone_is_the_isotonic_regression_of_scikit_learn(name):
    signal = SIGNALS[name]
    project = jax.jit(transforms.monotone().prox)
    expected = isotonic_regression(signal)
    np.testing.assert_allclose(project(signal, 1.0, 1.0), expected, atol=1e-12)
    narrow = project(signal.astype(np.float32), np.float32(1.0), np.float32(1.0))
    np.testing.assert_allclose(narrow, expected, atol=1e-5 * np.max(np.abs(signal)))


@pytest.mark.parametrize("strength", [0.0, 0.3, 20.0])
@pytest.mark.parametrize("name", SIGNALS)
def test_total_variation_is_certified_by_its_dual(name, strength):
    """The cumulative sum of v - x is dual feasible with zero duality gap."""
    v = SIGNALS[name]
    x = np.asarray(jax.jit(transforms.total_variation().prox)(v, 1.0, strength))
    dual = np.cumsum(v - x)
    room = 1e-10 * (1.0 + np.max(np.abs(v)))
    assert abs(dual[-1]) <= room
    assert np.max(np.abs(dual)) <= strength + room
    gap = strength * np.sum(np.abs(np.diff(x))) + np.vdot(dual[:-1], np.diff(x))
    assert abs(gap) <= room * v.size


def test_costs_in_parallel_equal_those_in_order():
    """The prox uses the first algorithm on a CPU and the second on other backends."""
    rng = np.random.default_rng(5)
    room = np.where(np.arange(500) % 100 == 0, 0.0, 0.4)
    price = rng.normal(size=500)
    expected = costs_in_order(price, room)
    np.testing.assert_allclose(costs_in_parallel(price, room), expected, atol=1e-12)


@pytest.mark.parametrize("name", ["simplex", "l1_ball"])
@pytest.mark.parametrize("spread", [1e-4, 1.0, 30.0])
def test_ball_projections_of_long_vectors_agree_with_a_sort(name, spread):
    """For long vectors the search starts from chunks."""
    rng = np.random.default_rng(4)
    v = np.exp(spread * rng.normal(size=20_000) / 10) * rng.choice([-1.0, 1.0], size=20_000)
    entries = np.abs(v) if name == "l1_ball" else v
    falling = np.sort(entries)[::-1]
    levels = (np.cumsum(falling) - 5.0) / np.arange(1, v.size + 1)
    theta = levels[np.flatnonzero(falling > levels)[-1]]
    expected = np.sign(v) * np.maximum(entries - theta, 0.0)
    penalty = {"simplex": transforms.simplex(), "l1_ball": transforms.l1_ball()}[name]
    if name == "simplex":
        expected = np.maximum(v - theta, 0.0)
    np.testing.assert_allclose(penalty.prox(jnp.asarray(v), 1.0, 5.0), expected, atol=1e-11)


@pytest.mark.parametrize("p", [1.02, 1.2, 1.5, 1.9, 2.0, 2.2, 3.0, 7.0, 50.0])
def test_power_solves_its_equation_to_the_last_bits(p):
    """At sizes from 1e-6 to 1e6, against a bracketing root finder."""
    sizes = 10.0 ** np.linspace(-6, 6, 13)
    for strength in (1e-3, 1.0, 1e3):
        ours = transforms.lp_power(p).prox(jnp.asarray(sizes), 1.0, strength)
        for size, root in zip(sizes, np.asarray(ours), strict=True):

            def miss(u, size=size, strength=strength):
                return u + strength * p * u ** (p - 1) - size

            expected = scipy.optimize.brentq(miss, 0.0, size, xtol=1e-300, rtol=1e-14, maxiter=5000)
            assert root == pytest.approx(expected, rel=1e-11, abs=1e-300)
