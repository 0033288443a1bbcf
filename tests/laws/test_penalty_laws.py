"""All laws for all penalties and constraints to which they apply."""

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from fcojax import transforms
from tests.laws import test_calculus_laws, test_spectral_laws
from tests.laws.penalty_laws import (
    DERIVATIVE_LAWS,
    FIXED_LAWS,
    PRECISION_LAWS,
    SIZES,
    Row,
    derivatives_are_difference_quotients,
    examples,
    pairs,
    prox_residual_is_a_subgradient,
)
from tests.support.tables import with_gate

TREE = {"bias": jnp.zeros(()), "empty": jnp.zeros((0,)), "kernel": jnp.zeros((2, 3))}
VECTOR = jnp.zeros(8)
MATRIX = jnp.zeros((3, 4))
GRID = np.array([[1, 1, 0], [1, 1, 1], [1, 1, 1]], bool)
LABELS = {
    "bias": np.array(1),
    "empty": np.zeros(0, int),
    "kernel": np.array([[0, 1, 0], [3, 0, 1]]),
}
LOWER = {
    "bias": -1.0,
    "empty": np.zeros(0),
    "kernel": np.array([[-1.0, 0.0, 1.0], [-np.inf, 2, 0]]),
}
EQUATIONS = np.array([[1.0, 0, 2, 0, -1, 0, 1], [0, 1, 1, 0, 0, 3, 0], [1, 1, 3, 0, -1, 3, 1]])


def positive(x, scale):
    del scale
    return np.abs(x)


def on_simplex(x, scale):
    return scale * (np.abs(x) + 1.0) / np.sum(np.abs(x) + 1.0)


def in_ball(order):
    def member(x, scale):
        return x * scale / max(np.linalg.norm(x, order), scale, 1e-300)

    return member


def on_affine(x, scale):
    del scale
    start = np.linalg.lstsq(EQUATIONS, EQUATIONS.sum(axis=1), rcond=None)[0]
    null = np.linalg.svd(EQUATIONS)[2][2:]  # the third equation is the sum of the others
    return start + null.T @ (null @ x)


def first_two(x, scale):
    del scale
    return np.where(np.arange(x.size) < 2, x, 0.0)


PENALTIES = {
    "zero": Row(transforms.zero(), TREE),
    "l1": Row(transforms.l1(), TREE),
    "l2_squared": Row(transforms.l2_squared(), TREE),
    "elastic_net": Row(transforms.elastic_net(0.7), TREE),
    "power 1.1": Row(transforms.lp_power(1.1), TREE, slack=10.0),
    "power 3/2": Row(transforms.lp_power(1.5), TREE),
    "power 2": Row(transforms.lp_power(2), TREE),
    "power 2.7": Row(transforms.lp_power(2.7), TREE, slack=2.0),
    "power 3": Row(transforms.lp_power(3), TREE),
    "power 10": Row(transforms.lp_power(10), TREE),
    "l2": Row(transforms.l2(), TREE),
    "l_inf": Row(transforms.l_inf(), TREE),
    "group_l2 by axis": Row(transforms.group_l2(axis=1), MATRIX),
    "group_l2 by label": Row(transforms.group_l2(labels=LABELS), TREE),
    "sparse_group by axis": Row(transforms.sparse_group(0.3, axis=0), MATRIX),
    "sparse_group by label": Row(transforms.sparse_group(0.7, labels=LABELS), TREE),
    "total_variation": Row(transforms.total_variation(), VECTOR),
    "total_variation of rows": Row(transforms.total_variation(), TREE),
    "fused_lasso": Row(transforms.fused_lasso(0.4), VECTOR, nested=True),
    "grid_variation": Row(transforms.grid_variation(GRID, 300), VECTOR, nested=True, slack=100.0),
    "l1 on the orthant": Row(
        transforms.with_box(transforms.l1(), 0.0, np.inf), TREE, member=positive
    ),
    "simplex": Row(transforms.simplex(), TREE, indicator=True, member=on_simplex),
    "l1_ball": Row(transforms.l1_ball(), TREE, indicator=True, member=in_ball(1)),
    "l2_ball": Row(transforms.l2_ball(), TREE, indicator=True, member=in_ball(2)),
    "box": Row(
        transforms.box(LOWER, 2.0),
        TREE,
        indicator=True,
        member=lambda x, scale: np.array([0.5, 0.5, 0.5, 1.5, -(x[4] ** 2), 2, 0]),
    ),
    "orthant": Row(transforms.box(0.0, np.inf), TREE, indicator=True, member=positive),
    "affine": Row(
        transforms.affine(EQUATIONS, EQUATIONS.sum(axis=1)), TREE, indicator=True, member=on_affine
    ),
    "monotone": Row(
        transforms.monotone(), VECTOR, indicator=True, member=lambda x, scale: np.sort(x)
    ),
    "monotone columns": Row(
        transforms.monotone(axis=0), MATRIX, indicator=True, member=lambda x, scale: np.sort(x)
    ),
    "l0_ball": Row(transforms.l0_ball(2), TREE, indicator=True, member=first_two),
}

ALL = PENALTIES | test_calculus_laws.PENALTIES | test_spectral_laws.PENALTIES
# One row of each kind is in the default suite.
REPRESENTATIVES = {
    "l1",
    "group_l2 by axis",
    "sparse_group by axis",
    "fused_lasso",
    "simplex",
    "l1_ball",
    "l0_ball",
}


def table(rows, only=lambda row: True):
    """Return rows as test parameters, all but the representatives marked slow."""
    return [
        pytest.param(name, marks=[] if name in REPRESENTATIVES else pytest.mark.slow)
        for name, row in rows.items()
        if only(row)
    ]


@pytest.mark.parametrize("name", table(ALL, lambda row: row.penalty.convex))
@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_the_residual_of_the_prox_is_a_subgradient(name, data):
    prox_residual_is_a_subgradient(ALL[name], *data.draw(examples(ALL[name])))


@pytest.mark.parametrize("name", table(ALL))
@pytest.mark.parametrize("law", FIXED_LAWS)
def test_fixed_law(law, name):
    law(ALL[name])


@pytest.mark.slow
@pytest.mark.parametrize("law, name", with_gate(pairs(DERIVATIVE_LAWS, ALL), REPRESENTATIVES))
def test_derivative_law(law, name):
    law(ALL[name])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("law, name", pairs(PRECISION_LAWS, ALL))
def test_precision_law(law, name, dtype):
    law(ALL[name], dtype)


@pytest.mark.parametrize("name", ["nuclear, tall", "psd", "simplex"])
def test_derivatives_of_some_by_default(name):
    derivatives_are_difference_quotients(ALL[name])
