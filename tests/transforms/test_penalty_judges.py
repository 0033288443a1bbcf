"""Proxes and projections compared with cvxpy, a certificate and a sort."""

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax import transforms
from fcojax.transforms.penalties.total_variation import costs_in_order, costs_in_parallel

pytestmark = pytest.mark.slow

SIZE, STEP, SCALE = 9, 0.7, 0.9
WEIGHTS = np.linspace(0.2, 2.0, SIZE)
LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1, 1])
EQUATIONS = np.random.default_rng(7).normal(size=(3, SIZE))
CUT = transforms.with_box(transforms.l1(), -0.5, 0.5)
ROUND = transforms.on_singular_values(CUT)


def group_norms(x):
    return sum(cp.norm2(x[np.flatnonzero(g == LABELS)]) for g in range(3))


# Each row: our transform, psi for cvxpy without its strength, and the set; either may be absent.
PROBLEMS = {
    "l1": (transforms.l1(), cp.norm1),
    "l2_squared": (transforms.l2_squared(), cp.sum_squares),
    "l2": (transforms.l2(), cp.norm2),
    "l_inf": (transforms.l_inf(), cp.norm_inf),
    "group_l2": (transforms.group_l2(labels=LABELS), group_norms),
    "lp_power": (transforms.lp_power(2.5), lambda x: cp.sum(cp.power(cp.abs(x), 2.5))),
    "total_variation": (transforms.total_variation(), cp.tv),
    "fused_lasso": (transforms.fused_lasso(0.3), lambda x: 0.3 * cp.norm1(x) + 0.7 * cp.tv(x)),
    "with_box": (CUT, cp.norm1, lambda x: [x >= -0.5, x <= 0.5]),
    "simplex": (transforms.simplex(), None, lambda x: [x >= 0, cp.sum(x) == SCALE]),
    "l1_ball": (transforms.l1_ball(), None, lambda x: [cp.norm1(x) <= SCALE]),
    "l2_ball": (transforms.l2_ball(), None, lambda x: [cp.norm2(x) <= SCALE]),
    "box": (transforms.box(-0.3, WEIGHTS), None, lambda x: [x >= -0.3, x <= WEIGHTS]),
    "affine": (transforms.affine(EQUATIONS, np.zeros(3)), None, lambda x: [EQUATIONS @ x == 0]),
    "monotone": (transforms.monotone(), None, lambda x: [cp.diff(x) >= 0]),
    "4 x 3 nuclear": (transforms.nuclear(), cp.normNuc),
    "3 x 4 nuclear": (transforms.nuclear(), cp.normNuc),
    "4 x 3 nuclear_ball": (transforms.nuclear_ball(), None, lambda x: [cp.normNuc(x) <= SCALE]),
    "3 x 3 psd": (transforms.psd(), None, lambda x: [x == x.T, x >> 0]),
    "4 x 3 nuclear in a spectral ball": (ROUND, cp.normNuc, lambda x: [cp.sigma_max(x) <= 0.5]),
}


@pytest.mark.gate
@pytest.mark.parametrize("name", PROBLEMS)
def test_prox_agrees_with_an_interior_point_method(name):
    penalty, psi, members = (*PROBLEMS[name], None)[:3]
    shape = (int(name[0]), int(name[4])) if " x " in name else SIZE
    v, x = np.random.default_rng(len(name)).normal(size=shape) * 2, cp.Variable(shape)
    objective = 0.5 * cp.sum_squares(x - v) + (STEP * SCALE * psi(x) if psi else 0.0)
    problem = cp.Problem(cp.Minimize(objective), members(x) if members else [])
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    ours = penalty.prox(jnp.asarray(v), STEP, SCALE)
    np.testing.assert_allclose(ours, x.value, atol=1e-5)
    if psi:
        value = SCALE * float(psi(cp.Constant(ours)).value)
        np.testing.assert_allclose(penalty.value(ours, SCALE), value, atol=1e-12)


SIGNALS = {
    "noise": np.random.default_rng(0).normal(size=2000),
    "random walk": np.cumsum(np.random.default_rng(1).normal(size=2000)),
    "ties": np.round(np.random.default_rng(2).normal(size=2000)),
    "equal": np.full(2000, 0.1),
    "increasing": np.geomspace(1e-9, 1.0, 2000),
    "decreasing": np.linspace(1.0, -1.0, 2000),
}


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
