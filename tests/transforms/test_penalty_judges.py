"""Proxes and projections compared with cvxpy, scikit-learn and scipy."""

import cvxpy
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from sklearn.isotonic import isotonic_regression
from sklearn.linear_model import ElasticNet, Lasso

from fcojax import transforms
from fcojax.transforms.penalties.total_variation import costs_in_order, costs_in_parallel

pytestmark = pytest.mark.slow

SIZE = 9
STEP, SCALE = 0.7, 0.9
WEIGHTS = np.linspace(0.2, 2.0, SIZE)
LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1, 1])
NORMAL = np.linspace(-1.0, 2.0, SIZE)
EQUATIONS = np.random.default_rng(7).normal(size=(3, SIZE))


def group_norms(x):
    return sum(cvxpy.norm2(x[np.flatnonzero(g == LABELS)]) for g in range(3))


# Each row: our transform, psi for cvxpy without its strength, and the set if there is one.
PROBLEMS = {
    "l1": (transforms.l1(), cvxpy.norm1, None),
    "l2_squared": (transforms.l2_squared(), cvxpy.sum_squares, None),
    "elastic_net": (
        transforms.elastic_net(0.7),
        lambda x: 0.7 * cvxpy.norm1(x) + 0.3 * cvxpy.sum_squares(x),
        None,
    ),
    "l2": (transforms.l2(), cvxpy.norm2, None),
    "l_inf": (transforms.l_inf(), cvxpy.norm_inf, None),
    "group_l2": (transforms.group_l2(labels=LABELS), group_norms, None),
    "sparse_group": (
        transforms.sparse_group(0.4, labels=LABELS),
        lambda x: 0.4 * cvxpy.norm1(x) + 0.6 * group_norms(x),
        None,
    ),
    "power": (
        transforms.lp_power(2.5),
        lambda x: cvxpy.sum(cvxpy.power(cvxpy.abs(x), 2.5)),
        None,
    ),
    "total_variation": (transforms.total_variation(), cvxpy.tv, None),
    "fused_lasso": (
        transforms.fused_lasso(0.3),
        lambda x: 0.3 * cvxpy.norm1(x) + 0.7 * cvxpy.tv(x),
        None,
    ),
    "l1 on the orthant": (
        transforms.with_box(transforms.l1(), 0.0, np.inf),
        cvxpy.norm1,
        lambda x: [x >= 0],
    ),
    "simplex": (transforms.simplex(), None, lambda x: [x >= 0, cvxpy.sum(x) == SCALE]),
    "l1_ball": (transforms.l1_ball(), None, lambda x: [cvxpy.norm1(x) <= SCALE]),
    "l2_ball": (transforms.l2_ball(), None, lambda x: [cvxpy.norm2(x) <= SCALE]),
    "box": (transforms.box(-0.3, WEIGHTS), None, lambda x: [x >= -0.3, x <= WEIGHTS]),
    "affine": (
        transforms.affine(EQUATIONS, np.ones(3)),
        None,
        lambda x: [EQUATIONS @ x == np.ones(3)],
    ),
    "monotone": (transforms.monotone(), None, lambda x: [cvxpy.diff(x) >= 0]),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_prox_agrees_with_an_interior_point_method(name):
    penalty, psi, members = PROBLEMS[name]
    v = np.random.default_rng(len(name)).normal(size=SIZE) * 2
    x = cvxpy.Variable(SIZE)
    objective = 0.5 * cvxpy.sum_squares(x - v)
    if psi is not None:
        objective = objective + STEP * SCALE * psi(x)
    problem = cvxpy.Problem(cvxpy.Minimize(objective), [] if members is None else members(x))
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    ours = penalty.prox(jnp.asarray(v), STEP, SCALE)
    np.testing.assert_allclose(ours, x.value, atol=1e-5)
    if psi is not None:
        value = SCALE * float(psi(cvxpy.Constant(ours)).value)
        np.testing.assert_allclose(penalty.value(ours, SCALE), value, atol=1e-12)


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


@pytest.mark.parametrize(
    "penalty, model, strength",
    [
        (transforms.l1(), Lasso, 0.1),
        # scikit-learn's penalty is alpha (r |x|_1 + (1 - r) |x|^2 / 2)
        (transforms.elastic_net(0.5 / 0.75), ElasticNet, 0.1 * 0.75),
    ],
    ids=["lasso", "elastic net"],
)
def test_solutions_of_scikit_learn_are_fixed_points_of_prox_gradient(penalty, model, strength):
    rng = np.random.default_rng(3)
    matrix = rng.normal(size=(60, 20))
    target = matrix[:, :3] @ np.array([1.0, -2.0, 0.5]) + 0.1 * rng.normal(size=60)
    fitted = model(alpha=0.1, fit_intercept=False, tol=1e-14, max_iter=100_000).fit(matrix, target)
    step = 60 / np.linalg.norm(matrix, 2) ** 2

    @jax.jit
    def iterate(x):
        gradient = matrix.T @ (matrix @ x - target) / 60
        return penalty.prox(x - step * gradient, step, strength)

    x = jnp.asarray(fitted.coef_)
    np.testing.assert_allclose(iterate(x), x, atol=1e-7)
    assert np.array_equal(np.asarray(iterate(x)) != 0, fitted.coef_ != 0)


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


# Polyhedra for linear programs: the set, with ``A x <= b`` and ``C x = d``.
IDENTITY = np.eye(SIZE)
CUBE = np.vstack([IDENTITY, -IDENTITY])
POLYHEDRA = {
    "simplex": (
        transforms.simplex(),
        {"A_ub": -IDENTITY, "b_ub": np.zeros(SIZE), "A_eq": np.ones((1, SIZE)), "b_eq": [SCALE]},
    ),
    "box": (
        transforms.box(-0.5, 0.25),
        {"A_ub": CUBE, "b_ub": np.repeat([0.25, 0.5], SIZE)},
    ),
    "monotone": (
        transforms.monotone(),
        {"A_ub": -np.diff(IDENTITY, axis=0), "b_ub": np.zeros(SIZE - 1)},
    ),
}


@pytest.mark.parametrize("name", POLYHEDRA)
def test_projections_satisfy_the_variational_inequality(name):
    """p projects v on C if and only if no x in C has <v - p, x> above <v - p, p>."""
    penalty, polyhedron = POLYHEDRA[name]
    v = np.random.default_rng(3).normal(size=SIZE) * 2 + 3 * NORMAL
    p = np.asarray(penalty.prox(v, STEP, SCALE))
    assert np.abs(v - p).max() > 0.1  # v is outside
    found = scipy.optimize.linprog(-(v - p), bounds=(None, None), **polyhedron)
    assert found.success, found.message
    assert -found.fun == pytest.approx((v - p) @ p, abs=1e-9)


def test_projections_on_the_l1_ball_satisfy_the_variational_inequality():
    """The l1 ball is the image of a simplex of twice its dimension: x = x+ - x-."""
    v = np.random.default_rng(4).normal(size=SIZE)
    p = np.asarray(transforms.l1_ball().prox(v, STEP, SCALE))
    slope = np.concatenate([v - p, p - v])
    found = scipy.optimize.linprog(-slope, A_ub=np.ones((1, 2 * SIZE)), b_ub=[SCALE])
    assert -found.fun == pytest.approx((v - p) @ p, abs=1e-9)
