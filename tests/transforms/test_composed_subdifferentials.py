"""Composed penalties: the residual of a prox is a subgradient at the prox, up to rounding.

A composition evaluates its penalty at ``Qx`` or ``x - b``, where zeros, ties and active bounds of
the inner prox return as rounding errors.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax import transforms
from fcojax.transforms.calculus.compose import translated
from tests.laws.test_calculus_laws import fold, unfold

DIM = 6
MATRIX = jnp.linalg.qr(jax.random.normal(jax.random.key(3), (DIM, DIM)))[0]
SHIFT = 3.0 * jax.random.normal(jax.random.key(4), (DIM,))
LABELS = np.array([0, 0, 1, 1, 2, 2])
INNER = {
    "l1": transforms.l1(),
    "power": transforms.lp_power(1.5),
    "l_inf": transforms.l_inf(),
    "sparse_group": transforms.sparse_group(0.4, labels=LABELS),
    "box": transforms.box(-0.3, 1.0),
    "l1_ball": transforms.l1_ball(),
    "simplex": transforms.simplex(),
    "affine": transforms.affine(np.ones((1, DIM)), np.ones(1)),
}


def some_rows(penalty):
    """Four of six coordinates in another basis, and two unchanged."""
    rows = MATRIX[: DIM - 2]

    def forward(x):
        return jnp.concatenate([rows.astype(x.dtype) @ x[:DIM], x[DIM:]])

    def adjoint(y):
        return jnp.concatenate([rows.T.astype(y.dtype) @ y[: DIM - 2], y[DIM - 2 :]])

    return transforms.precomposed(penalty, forward, adjoint)


def whole(change):
    return lambda penalty: (change(penalty), DIM)


def wavelets(penalty):
    joined = transforms.precomposed(
        penalty,
        lambda x: jnp.concatenate([fold(x)["sum"], fold(x)["difference"]]),
        lambda y: unfold({"sum": y[: DIM // 2], "difference": y[DIM // 2 :]}),
    )
    return joined, DIM


OUTER = {
    "wavelets": wavelets,
    "some rows": lambda penalty: (some_rows(penalty), DIM + 2),
    "translated": whole(lambda penalty: translated(penalty, SHIFT)),
    "scaled": whole(lambda penalty: transforms.scaled(penalty, 2.5)),
    "per_leaf": whole(transforms.per_leaf),
    "on_subtree": whole(lambda penalty: transforms.on_subtree(penalty, lambda path, leaf: True)),
}
QUICK = {"some rows of l1", "wavelets of l1", "translated of box"}
# It takes a vector, while on_subtree passes a list of leaves.
NOT_OF_A_LIST = {("on_subtree", "sparse_group")}
COMPOSED = {
    f"{outer} of {inner}": make(penalty)
    for outer, make in OUTER.items()
    for inner, penalty in INNER.items()
    if (outer, inner) not in NOT_OF_A_LIST
}


def residuals(penalty, dtype, points, steps, scales):
    """Return the residuals' distances at the proxes, relative to the numbers in them."""

    @jax.jit
    @jax.vmap
    def one(v, step, scale):
        moved = penalty.prox(v, step, scale)
        slope = (v - moved) / step
        distance = penalty.subdiff_distance(moved, slope, scale)
        return distance / (1 + scale + jnp.linalg.norm(v) / jnp.minimum(step, 1))

    return np.asarray(one(*(jnp.asarray(each, dtype) for each in (points, steps, scales))))


def mark(name):
    return () if name in QUICK else pytest.mark.slow


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", [pytest.param(name, marks=mark(name)) for name in COMPOSED])
def test_the_residual_of_a_prox_is_a_subgradient_to_rounding(name, dtype):
    penalty, dim = COMPOSED[name]
    rng = np.random.default_rng(0)
    count = 300
    points = rng.normal(size=(count, dim)) * 10.0 ** rng.uniform(-2, 2, (count, 1))
    steps, scales = 10.0 ** rng.uniform(-2, 1, (2, count))
    assert residuals(penalty, dtype, points, steps, scales).max() < 300 * np.finfo(dtype).eps


@pytest.mark.parametrize("name", ["wavelets of l1", "translated of l1"])
def test_a_point_that_is_not_optimal_keeps_its_distance(name):
    """It is the inner penalty's at the inner point, here in closed form."""
    penalty, _ = COMPOSED[name]
    inner = np.array([1.0, -2.0, 0.0, 0.0, 1e-3, 0.0])
    slope = np.array([0.5, -1.0, 1.5, 0.2, -1.0, -1.0])  # deviations of 0.5, 0, 0.5, 0, 2 and 0
    if name.startswith("wavelets"):
        x, v = (
            np.asarray(unfold({"sum": each[:3], "difference": each[3:]})) for each in (inner, slope)
        )
    else:
        x, v = inner + np.asarray(SHIFT), slope
    found = penalty.subdiff_distance(jnp.asarray(x), jnp.asarray(v), 1.0)
    assert abs(found - np.sqrt(0.5**2 + 0.5**2 + 2**2)) < 1e-9
