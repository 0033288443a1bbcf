"""Distances to subdifferentials: zero at a prox, otherwise compared with a conic solver."""

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax import transforms
from fcojax.transforms.calculus.compose import translated
from fcojax.transforms.calculus.per_entry import per_entry
from tests.laws.test_penalty_laws import PENALTIES

SHAPE = (3, 4)
KNOWN = {name: row for name, row in PENALTIES.items() if row.penalty.subdiff_distance is not None}
STEP, SCALE = 0.7, 1.3
# One of each kind; the others are slow.
QUICK = ("l1", "group_l2 by axis", "l1_ball", "box")


def distance(penalty, x, v, scale):
    return float(jax.jit(penalty.subdiff_distance)(x, v, scale))


def test_which_penalties_have_a_distance():
    unknown = {name for name, row in PENALTIES.items() if row.penalty.convex} - set(KNOWN)
    assert unknown == {
        "l_inf",
        "total_variation",
        "total_variation of rows",
        "fused_lasso",
        "grid_variation",
        "l1 on the orthant",
        "monotone",
        "monotone columns",
    }


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in KNOWN]
)
def test_the_residual_of_a_prox_is_a_subgradient(name):
    """``(v - prox) / step`` is a subgradient at the prox, and a random vector is not."""
    row = KNOWN[name]
    for seed in range(2):
        v = row.normal(seed)
        moved = row.prox(v, STEP, SCALE)
        slope = (v - moved) / STEP
        point = row.to_tree(jnp.asarray(moved))
        room = 1e-10 * (1 + np.abs(slope).max()) * row.slack
        assert distance(row.penalty, point, row.to_tree(jnp.asarray(slope)), SCALE) <= room
        aside = row.to_tree(jnp.asarray(slope + row.normal(seed + 10)))
        if not row.indicator:  # the normal cone of a vertex has an interior
            assert distance(row.penalty, point, aside, SCALE) > 1e-3


# s is a subgradient at x of a norm if its dual norm is at most the scale and <s, x> the value at x;
# of a set, if <s, x> is the support function: the largest <s, y> over the set.
NORMS = {
    "l1": (transforms.l1(), lambda s: cp.max(cp.abs(s))),
    "l2": (transforms.l2(), lambda s: cp.norm(s, "fro")),
    "group_l2": (transforms.group_l2(axis=1), lambda s: cp.max(cp.norm(s, 2, axis=1))),
    "nuclear": (transforms.nuclear(), lambda s: cp.sigma_max(s)),
}
SETS = {
    "l1_ball": (transforms.l1_ball(), lambda s: cp.max(cp.abs(s))),
    "l2_ball": (transforms.l2_ball(), lambda s: cp.norm(s, "fro")),
    "simplex": (transforms.simplex(), lambda s: cp.max(s)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NORMS | SETS)
def test_distances_agree_with_a_conic_solver(name):
    penalty, dual = (NORMS | SETS)[name]
    rng = np.random.default_rng(0)
    for spread in (2.0, 0.5, 0.02):  # on the boundary of a ball, and inside
        x = penalty.prox(jnp.asarray(spread * rng.normal(size=SHAPE)), 0.3, SCALE)
        v, s = rng.normal(size=SHAPE), cp.Variable(SHAPE)
        along = cp.sum(cp.multiply(s, np.asarray(x)))
        held = [SCALE * dual(s) <= along + 1e-6]
        if name in NORMS:
            held = [float(penalty.value(x, SCALE)) <= along + 1e-6, dual(s) <= SCALE]
        problem = cp.Problem(cp.Minimize(cp.norm(s - v, "fro")), held)
        found = distance(penalty, x, jnp.asarray(v), SCALE)
        assert found == pytest.approx(problem.solve(solver="CLARABEL"), abs=5e-3)


def test_distances_of_composed_penalties():
    l1 = transforms.l1()
    x = {"bias": jnp.array(2.0), "kernel": jnp.array([1.0, 0.0])}
    v = {"bias": jnp.array(3.0), "kernel": jnp.array([5.0, 0.5])}
    free_bias = transforms.on_subtree(l1, transforms.named("kernel"))
    assert distance(free_bias, x, v, 1.0) == pytest.approx(5.0)  # 3 of the bias, 4 of the kernel
    assert distance(transforms.per_leaf(l1), x, v, 1.0) == pytest.approx(np.hypot(2.0, 4.0))
    assert distance(transforms.scaled(l1, 2.0), x, v, 1.0) == pytest.approx(np.hypot(1.0, 3.0))
    assert distance(transforms.l2(), jnp.zeros(2), jnp.array([0.6, 0.8]), 1.5) == 0
    assert distance(per_entry(l1), x, v, 1.0) == pytest.approx(np.hypot(2.0, 4.0))
    turned = transforms.precomposed(l1, lambda x: x[::-1], lambda y: y[::-1])
    assert turned.subdiff_distance is None and translated(l1, jnp.ones(2)).subdiff_distance is None
    assert transforms.with_box(l1, 0.0, 1.0).subdiff_distance is None
