"""Two penalties of singular values take one decomposition, and zeros are exact in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax import transforms
from fcojax.transforms import on_singular_values, with_box

STEP, SCALE, BOUND = 1000.0, 0.1, 0.05
LEVEL = STEP * SCALE
VALUES = np.concatenate([np.linspace(11_900.0, 300.0, 10), np.linspace(45.0, 5.0, 10)])
EPS = np.finfo(np.float32).eps


def soft(values):
    return np.maximum(values - LEVEL, 0.0)


def cut(values):
    return np.minimum(values, BOUND)


def inside(penalty):
    return on_singular_values(with_box(penalty, -BOUND, BOUND))


# The joint penalty, and its map of singular values in numpy: the penalty, then the ball.
PAIRS = {
    "nuclear norm in a spectral ball": (inside(transforms.l1()), lambda s: cut(soft(s))),
    "elastic net in a spectral ball": (
        inside(transforms.elastic_net(1.0)),
        lambda s: cut(soft(s)),
    ),
    "squared Frobenius norm in a spectral ball": (
        inside(transforms.l2_squared()),
        lambda s: cut(s / (1 + 2 * LEVEL)),
    ),
    "ball in a ball": (
        on_singular_values(with_box(transforms.box(-BOUND, BOUND), -2 * BOUND, 2 * BOUND)),
        cut,
    ),
    "half the nuclear norm in a spectral ball": (
        transforms.scaled(inside(transforms.l1()), 0.5),
        lambda s: cut(np.maximum(s - LEVEL / 2, 0.0)),
    ),
    "nuclear norm in a spectral ball, leaf by leaf": (
        transforms.per_leaf(inside(transforms.l1())),
        lambda s: cut(soft(s)),
    ),
}


def matrix(values, shape=(60, 20), seed=0):
    """Return a matrix with these singular values, in float64, and its factors."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.normal(size=(n, len(values))))[0] for n in shape)
    return left * values @ right.T, left, right


@pytest.mark.parametrize("name", PAIRS)
def test_a_composed_prox_is_one_decomposition_and_zeros_stay_zeros(name):
    """Ten values of up to 11,900 with a ball of 0.05, and ten that the penalty removes."""
    penalty, expected = PAIRS[name]
    v, left, right = matrix(VALUES)
    new = expected(VALUES)
    found = np.asarray(penalty.prox(jnp.asarray(v, jnp.float32), STEP, SCALE), np.float64)
    # A rounding error of v changes each value by at most this, and rotates vectors by its ratio.
    error = EPS * VALUES[0]
    moved = np.abs(expected(VALUES + error) - new).max()
    room = 16 * EPS * BOUND + 4 * moved
    sizes = np.linalg.svd(found, compute_uv=False)
    assert np.abs(sizes - np.sort(new)[::-1]).max() <= room
    assert np.sum(sizes > room) == np.sum(new > 0)
    assert np.linalg.norm(found - left * new @ right.T, 2) <= 2 * BOUND * error / VALUES[-1] + room
    assert np.isfinite(float(penalty.value(jnp.asarray(found, jnp.float32), SCALE)))


def test_two_decompositions_do_not_keep_zeros():
    v = jnp.asarray(matrix(VALUES)[0], jnp.float32)
    first = transforms.nuclear().prox(v, STEP, SCALE)
    ball = on_singular_values(transforms.box(-BOUND, BOUND))
    second = ball.prox(first, 0.0, BOUND)
    assert np.sum(np.linalg.svd(second, compute_uv=False) > 1e-5) == 20


@pytest.mark.parametrize("name", PAIRS)
def test_a_composed_prox_decomposes_once(name):
    penalty, _ = PAIRS[name]
    text = str(jax.make_jaxpr(lambda v: penalty.prox(v, STEP, SCALE))(jnp.zeros((4, 3))))
    assert text.count(" svd[") == 1


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("gap", [1e-3, 1e-8, 1e-12])
def test_derivative_across_the_narrow_piece_between_two_flat_ones(gap, share):
    """V = diag(1 + g + s, 1 - s), D = g: slopes are 0 at both values, but the quotient is not."""
    with jax.enable_x64(True):
        penalty = on_singular_values(with_box(transforms.l1(), -gap, gap))
        above, below = 1 + (1 + share) * gap, 1 - share * gap
        v = jnp.diag(jnp.array([above, below]))
        for sign in (1.0, -1.0):
            along = jnp.array([[0.0, 1.0], [sign, 0.0]])
            found = jax.jvp(lambda v: penalty.prox(v, 1.0, 1.0), (v,), (along,))[1]
            expected = gap / (above - sign * below)
            np.testing.assert_allclose(found, expected * along, atol=1e-3)
