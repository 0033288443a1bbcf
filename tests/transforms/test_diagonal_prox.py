"""The prox with a step for each entry: against cvxpy, optimality, and the ordinary prox."""

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax.transforms import (
    box,
    diagonal,
    elastic_net,
    group_l2,
    l1,
    l2,
    l2_ball,
    named,
    nuclear,
    on_subtree,
    sparse_group,
)
from fcojax.transforms.calculus.per_entry import prox_per_entry

LABELS = np.array([0, 1, 0, 2, 1, 1])


def groups_of(x):
    return sum(cp.norm2(x[np.flatnonzero(label == LABELS)]) for label in range(3))


ROWS = {
    "l1": (l1(), lambda x, scale: scale * cp.norm1(x), []),
    "elastic net": (
        elastic_net(0.7),
        lambda x, scale: scale * (0.7 * cp.norm1(x) + 0.3 * cp.sum_squares(x)),
        [],
    ),
    "l2": (l2(), lambda x, scale: scale * cp.norm2(x), []),
    "group l2": (group_l2(labels=LABELS), lambda x, scale: scale * groups_of(x), []),
    "sparse group": (
        sparse_group(0.4, labels=LABELS),
        lambda x, scale: scale * (0.4 * cp.norm1(x) + 0.6 * groups_of(x)),
        [],
    ),
    "l2 ball": (l2_ball(), lambda x, scale: 0, [lambda x, scale: cp.norm2(x) <= scale]),
    "box": (
        box(-0.5, 0.7),
        lambda x, scale: 0,
        [lambda x, _: x >= -0.5, lambda x, _: x <= 0.7],
    ),
}


def steps_of(rng):
    return np.exp(rng.uniform(-3, 3, 6))


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_the_prox_equals_cvxpy(name):
    penalty, value, constraints = ROWS[name]
    prox, rng = prox_per_entry(penalty, "a test"), np.random.default_rng(0)
    for scale in (0.1, 0.5, 1.5):
        v, steps = rng.normal(size=6), steps_of(rng)
        x = cp.Variable(6)
        objective = value(x, scale) + cp.sum(cp.multiply(1 / (2 * steps), cp.square(x - v)))
        problem = cp.Problem(cp.Minimize(objective), [make(x, scale) for make in constraints])
        problem.solve(solver="CLARABEL")
        ours, theirs = np.asarray(prox(jnp.array(v), jnp.array(steps), scale)), x.value
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
        x.value = ours  # no worse than cvxpy's result
        assert float(objective.value) <= problem.value + 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["l2", "group l2", "sparse group"])
@pytest.mark.parametrize("spread", [1.0, 8.0, 16.0])
def test_steps_of_any_spread_are_optimal_to_rounding(name, spread):
    """Steps from exp(-spread) to exp(spread): the residual is a subgradient, zeros are exact."""
    penalty, rng = ROWS[name][0], np.random.default_rng(1)
    prox = jax.jit(penalty.diagonal_prox)
    for _ in range(30):
        steps = jnp.array(np.exp(rng.uniform(-spread, spread, 6)))
        v, scale = jnp.array(rng.normal(size=6) * np.sqrt(steps)), np.exp(rng.normal())
        x = prox(v, steps, scale)
        slope = (v - x) / steps
        distance = penalty.subdiff_distance(x, slope, scale)
        assert float(distance) <= 1e-9 * (1 + float(jnp.abs(v / steps).max()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["l2", "group l2", "sparse group", "l2 ball"])
def test_equal_steps_give_the_prox_for_one_step_and_its_derivative(name):
    penalty, rng = ROWS[name][0], np.random.default_rng(2)
    for _ in range(5):
        v, step, scale = jnp.array(rng.normal(size=6)), rng.uniform(0.1, 2), rng.uniform(0.1, 2)

        def one(v, step=step, scale=scale):
            return penalty.prox(v, step, scale)

        def each(v, step=step, scale=scale):
            return penalty.diagonal_prox(v, jnp.full(6, step), scale)

        np.testing.assert_allclose(each(v), one(v), atol=1e-14)
        np.testing.assert_allclose(jax.jacrev(each)(v), jax.jacrev(one)(v), atol=1e-12)
    np.testing.assert_array_equal(penalty.diagonal_prox(v, jnp.zeros(6), 100.0), v)
    zero = penalty.diagonal_prox(jnp.zeros(6), jnp.ones(6), 0.0)
    np.testing.assert_array_equal(zero, jnp.zeros(6))


def test_float32_and_subtrees_and_slices():
    model = {"bias": jnp.array(2.0, jnp.float32), "kernel": jnp.ones((3, 2), jnp.float32)}
    steps = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.25, leaf.dtype), model)
    penalty = on_subtree(group_l2(axis=1), named("kernel"))
    moved = penalty.diagonal_prox(model, steps, 2.0)
    assert moved["kernel"].dtype == jnp.float32 and float(moved["bias"]) == 2.0
    expected = penalty.prox(model, 0.25, 2.0)["kernel"]
    np.testing.assert_allclose(moved["kernel"], expected, rtol=1e-6)


def test_the_diagonal_mirror_takes_norms():
    mirror = diagonal(jnp.array([1.0, 4.0]), l2())
    z, scale = jnp.array([3.0, 2.0]), 0.5
    x = mirror.to_primal(z, 1.0, scale)
    np.testing.assert_allclose(z - jnp.array([1.0, 4.0]) * x, scale * x / jnp.linalg.norm(x))
    with pytest.raises(ValueError, match="couples entries"):
        diagonal(jnp.ones(2), nuclear())
