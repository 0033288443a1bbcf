"""Edge cases of penalties: kinks, empty trees, overflow, nearly equal singular values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax import transforms
from fcojax.transforms import fused_lasso, total_variation
from fcojax.transforms.calculus.compose import translated
from fcojax.transforms.calculus.per_entry import per_entry

FACTORIES = "zero l1 l2_squared l2 l_inf total_variation simplex l1_ball l2_ball monotone nuclear"
EMPTY = [getattr(transforms, name)() for name in f"{FACTORIES} nuclear_ball psd".split()]
EMPTY += [
    transforms.elastic_net(0.5),
    transforms.lp_power(2.3),
    transforms.group_l2(axis=0),
    transforms.group_l2(labels={}),
    transforms.sparse_group(0.5, labels={}),
    transforms.fused_lasso(0.5),
    transforms.box(-1.0, np.inf),
    transforms.affine(np.zeros((1, 0)), np.zeros(1)),
    transforms.l0_ball(2),
    transforms.per_leaf(transforms.l_inf()),
    transforms.scaled(transforms.l_inf(), 2.0),
    per_entry(transforms.l1()),
    translated(transforms.l1(), {}),
    transforms.with_box(transforms.l1(), -1.0, 1.0),
    transforms.on_singular_values(transforms.l1()),
]


@pytest.mark.parametrize("penalty", EMPTY)
def test_an_empty_tree_has_value_zero_and_is_its_own_prox(penalty):
    for scale in (0.0, 1.0):
        assert penalty.value({}, scale) == 0.0
        assert penalty.prox({}, 0.5, scale) == {}
    if penalty.scale_max is not None:
        assert penalty.scale_max({}) == 0.0


def test_a_vector_with_nan_gives_nan():
    v, groups = jnp.array([1.0, jnp.nan, 1.0]), {"labels": np.zeros(3, int)}
    of_groups = transforms.group_l2(**groups), transforms.sparse_group(0.5, **groups)
    for penalty in (transforms.l2(), transforms.l2_ball(), *of_groups):
        assert np.all(np.isnan(jax.jit(penalty.prox)(v, 1.0, 0.5)))
        assert not penalty.value(v, 0.5) <= 0.0


def slope(penalty, at, step=1.0, scale=1.0):
    return float(jax.jit(jax.grad(penalty.prox))(at, step, scale))


KINKS = {
    "l1 stays zero": (transforms.l1(), 1.0, 0.0),
    "l2 stays zero": (transforms.l2(), -1.0, 0.0),
    "l_inf stays zero": (transforms.l_inf(), 1.0, 0.0),
    "elastic_net stays zero": (transforms.elastic_net(0.5), 0.5, 0.0),
    "l1_ball is inside": (transforms.l1_ball(), 1.0, 1.0),
    "l2_ball is inside": (transforms.l2_ball(), -1.0, 1.0),
    "box is inside below": (transforms.box(-1.0, 2.0), -1.0, 1.0),
    "box is inside above": (transforms.box(-1.0, 2.0), 2.0, 1.0),
    "a box of one point": (transforms.box(1.0, 1.0), 1.0, 0.0),
    "with_box is inside": (transforms.with_box(transforms.zero(), -1.0, 2.0), 2.0, 1.0),
}


@pytest.mark.parametrize("name", KINKS)
def test_the_derivative_at_a_kink_is_one_sided(name):
    penalty, at, expected = KINKS[name]
    assert slope(penalty, at) == expected


@pytest.mark.parametrize("p", [2.0, 2.3, 3.0, 10.0])
def test_derivative_of_powers_of_at_least_two_at_zero(p):
    for strength in (0.0, 0.7, 1e6):
        expected = 1 / (1 + 2 * strength) if p == 2.0 else 1.0
        found = slope(transforms.lp_power(p), 0.0, 1.0, strength)
        assert found == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    "penalty, scale, expected",
    [
        (transforms.l2_ball(), 1.0, 0.5),
        (transforms.l2(), 100.0, 250.0),
        (transforms.group_l2(axis=0), 100.0, 250.0),
        (transforms.group_l2(labels=np.full(4, 2**62)), 100.0, 250.0),
    ],
)
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_norms_do_not_overflow_in_half_precision(penalty, scale, expected, dtype):
    moved = jax.jit(penalty.prox)(jnp.full(4, 300.0, dtype), 1.0, scale)
    assert moved.dtype == dtype
    assert np.all(np.asarray(moved, float) == expected)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e-38, 1e-25, 1e19, 1e30])
def test_norms_and_their_gradients_at_the_ends_of_single_precision(size):
    """The norm of (3, 0, 4), whose gradient is the unit vector."""
    v = jnp.asarray([3 * size, 0.0, 4 * size], jnp.float32)
    unit = np.array([0.6, 0.0, 0.8], np.float32)
    sums = transforms.group_l2(axis=0), transforms.group_l2(labels=np.zeros(3, int))
    for penalty in (transforms.l2(), *sums):
        value, gradient = jax.value_and_grad(lambda x, penalty=penalty: penalty.value(x, 1.0))(v)
        np.testing.assert_allclose(value, np.float32(5 * size), rtol=1e-6)
        np.testing.assert_allclose(gradient, unit, rtol=1e-6)
        assert penalty.scale_max(v) == pytest.approx(5 * size, rel=1e-6)
        along = jax.jvp(lambda x, p=penalty: p.prox(x, 1.0, jnp.float32(2 * size)), (v,), (v,))[1]
        np.testing.assert_allclose(along, v, rtol=1e-6)  # the prox is positively homogeneous


@pytest.mark.parametrize("p", [1.5, 2.0, 2.3, 3.0, 10.0])
def test_powers_at_the_ends_of_single_precision(p):
    """A root that underflows is 0, not NaN."""
    prox = jax.jit(transforms.lp_power(p).prox)
    for size in (1e-21, 1.0, 1e30):
        for strength in (1e-30, 1.0, 1e30):
            exact = np.asarray(prox(jnp.float64(size), 1.0, strength))
            found = np.asarray(prox(jnp.float32(size), np.float32(1.0), np.float32(strength)))
            np.testing.assert_allclose(found, exact, rtol=5e-6, atol=2e-38)


def test_affine_projections_from_far_away_in_single_precision():
    rows = np.random.default_rng(0).normal(size=(3, 20))
    penalty = transforms.affine(rows, np.ones(3))
    prox = jax.jit(penalty.prox)
    noise = np.random.default_rng(1).normal(size=20)
    for v in (1e6 * noise, 1e6 * rows[0], 1e6 * rows.sum(axis=0) + noise):
        moved = prox(jnp.asarray(v, jnp.float32), 1.0, 1.0)
        assert penalty.value(moved, 1.0) == 0.0
        size = np.max(np.abs(moved))
        assert np.max(np.abs(rows @ np.asarray(moved, float) - 1)) <= 1e-5 * (1 + size)
    assert penalty.value(jnp.asarray(noise), 1.0) == np.inf


def test_a_simplex_much_smaller_than_the_entries_in_single_precision():
    moved = transforms.simplex().prox(jnp.asarray([1e30, -2e30, 1e30], jnp.float32), 1.0, 1.0)
    assert moved.tolist() == [0.5, 0.0, 0.5]
    moved = transforms.l1_ball().prox(jnp.asarray([1e30, -2e30, 1.0], jnp.float32), 1.0, 1.0)
    assert moved.tolist() == [0.0, -1.0, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize("gap", [1e-3, 1e-8, 1e-12])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("name", ["nuclear", "nuclear_ball"])
def test_derivative_with_nearly_equal_singular_values_on_both_sides_of_the_kink(name, gap, share):
    """V = diag(1 + s g, 1 - (1 - s) g) and f the map of singular values with its kink at 1.

    Along a symmetric (skew) matrix off the diagonal the derivative is the quotient of differences
    (of sums) of f: Lewis and Sendov's formula for two values.
    """
    above, below = 1 + share * gap, 1 - (1 - share) * gap
    penalty, radius = {
        "nuclear": (transforms.nuclear(), 1.0),
        "nuclear_ball": (transforms.nuclear_ball(), above - 1),  # the level is 1 then
    }[name]
    new = np.array([above - 1, 0.0])
    v = jnp.diag(jnp.array([above, below]))
    for sign in (1.0, -1.0):
        along = jnp.array([[0.0, 1.0], [sign, 0.0]])
        found = jax.jvp(lambda v: penalty.prox(v, 1.0, radius), (v,), (along,))[1]
        quotient = (new[0] - sign * new[1]) / (above - sign * below)
        np.testing.assert_allclose(found, quotient * along, atol=1e-12)


@pytest.mark.parametrize("penalty", [total_variation(), fused_lasso(0.0)])
def test_total_variation_of_any_strength_is_the_mean_and_so_is_its_derivative(penalty):
    signals = jnp.array([[0.0, 1.0, 5.0, 4.0], [0.0, 0.0, 0.0, 0.0]], jnp.float32)

    @jax.jit
    def both(v, along):
        return jax.jvp(lambda v: penalty.prox(v, 1e30, 1e30), (v,), (along,))  # 1e60 overflows

    mean = jnp.full((4, 4), 0.25, jnp.float32)
    one = jnp.zeros_like(signals).at[:, 1].set(1.0)
    moved, slope = both(signals, one)
    np.testing.assert_allclose(moved, signals @ mean, rtol=1e-6)
    np.testing.assert_allclose(slope, one @ mean, rtol=1e-6)
    beside_nan, _ = both(signals.at[0, 2].set(jnp.nan), one)
    assert jnp.isnan(beside_nan[0]).all() and (beside_nan[1] == 0).all()


@pytest.mark.parametrize("p", [1.1, 1.5, 1.9, 2.2, 3.0, 7.0, 50.0])
@pytest.mark.parametrize("strength", [1e-3, 1.0, 1e3])
def test_the_prox_of_a_power_solves_its_equation(p, strength):
    v = 10.0 ** jnp.linspace(-6, 6, 13) * jnp.array([-1.0, *[1.0, -1.0] * 6])
    x = transforms.lp_power(p).prox(v, 1.0, strength)
    power = jnp.sign(x) * jnp.abs(x) ** (p - 1)
    np.testing.assert_allclose(x + strength * p * power, v, rtol=1e-12)
