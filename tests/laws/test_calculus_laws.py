"""Penalties built from other penalties: rows for ``test_penalty_laws``, and identities."""

import hypothesis.extra.numpy as hypothesis_numpy
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from fcojax import transforms
from fcojax.transforms.calculus.compose import translated
from fcojax.transforms.calculus.per_entry import per_entry
from tests.laws.penalty_laws import Row, close

pytestmark = pytest.mark.slow

TREE = {"bias": jnp.zeros(()), "empty": jnp.zeros((0,)), "kernel": jnp.zeros((2, 3))}
VECTOR = jnp.zeros(4)
SHIFT = {"bias": jnp.array(0.3), "empty": jnp.zeros(0), "kernel": jnp.arange(6.0).reshape(2, 3)}


def fold(x):
    """Sums and differences of neighbours over sqrt(2): orthogonal, one level of a Haar wavelet."""
    even, odd = x[0::2] / 2**0.5, x[1::2] / 2**0.5  # first, because the largest float16 is 65,504
    return {"sum": even + odd, "difference": even - odd}


def unfold(y):
    high, low = y["sum"] / 2**0.5, y["difference"] / 2**0.5
    return jnp.stack([high + low, high - low], axis=-1).reshape(-1)


ON_KERNELS = transforms.on_subtree(transforms.l1(), transforms.named("kernel"))

PENALTIES = {
    "on_subtree": Row(
        ON_KERNELS._replace(scale_max=None), TREE
    ),  # unpenalised entries are never zero
    "per_leaf": Row(transforms.per_leaf(transforms.l1()), TREE),
    "per_entry": Row(per_entry(transforms.l1()), TREE),
    "scaled": Row(transforms.scaled(transforms.l1(), 2.5), TREE),
    "translated": Row(translated(transforms.l1(), SHIFT), TREE, cancels=True, offset=5.0),
    "precomposed": Row(transforms.precomposed(transforms.l1(), fold, unfold), VECTOR, cancels=True),
    "with_box": Row(
        transforms.with_box(transforms.l1(), -0.5, 1.5),
        TREE,
        member=lambda x, scale: np.clip(x, -0.5, 1.5),
    ),
}


points = hypothesis_numpy.arrays(
    np.float64, 4, elements=st.floats(-4.0, 4.0, width=16, allow_subnormal=False)
)
positive = st.floats(0.0625, 4.0, width=16)
many = settings(max_examples=25, deadline=None, derandomize=True)


def test_per_leaf_gives_every_leaf_its_own_ball():
    ball = transforms.l1_ball()
    model = {"first": jnp.array([3.0, 0.0]), "second": jnp.array([0.0, 4.0])}
    each = transforms.per_leaf(ball).prox(model, 1.0, 1.0)
    jointly = ball.prox(model, 1.0, 1.0)
    assert np.allclose(each["first"], [1.0, 0.0]) and np.allclose(each["second"], [0.0, 1.0])
    assert np.allclose(jointly["first"], [0.0, 0.0]) and np.allclose(jointly["second"], [0.0, 1.0])


envelope = transforms.moreau_envelope(transforms.l1())
slopes = jax.jit(jax.grad(envelope, argnums=(0, 1, 2)))


@many
@given(points, positive, positive)
def test_derivatives_of_the_envelope_are_those_of_huber(v, step, scale):
    by_v, by_step, by_scale = slopes(v, step, scale)
    far = np.abs(v) > step * scale
    assert close(by_v, np.where(far, scale * np.sign(v), v / step), 1e-12, v / step)
    assert close(by_step, -0.5 * np.sum(np.where(far, scale, v / step) ** 2), 1e-12, 64 / step**2)
    if not np.any(np.abs(v) == step * scale):  # this is the derivative of the prox
        assert close(by_scale, np.sum(np.where(far, np.abs(v) - step * scale, 0.0)), 1e-12, v, 16)


def test_envelope_of_a_ball_is_half_the_squared_distance():
    half_square = transforms.moreau_envelope(transforms.l2_ball())
    v = jnp.array([3.0, 4.0])
    assert np.allclose(half_square(v, 2.0, 1.0), 4.0)
    by_v, by_step, by_radius = jax.grad(half_square, argnums=(0, 1, 2))(v, 2.0, 1.0)
    assert np.allclose(by_v, [1.2, 1.6])
    assert np.allclose(by_step, -2.0)
    assert np.allclose(by_radius, -2.0)


def test_envelope_at_step_zero_is_the_penalty():
    v = jnp.array([3.0, -0.5])
    assert float(envelope(v, 0.0, 2.0)) == 7.0
    assert all(np.all(np.isfinite(slope)) for slope in jax.tree.leaves(slopes(v, 0.0, 2.0)))
    assert transforms.moreau_envelope(transforms.l2_ball())(v, 0.0, 1.0) == np.inf
