"""The library's convolution and pooling against XLA's; see also ``test_random_windows``."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen
from jax import lax

from fcojax.xla.jaxprs import fast_inside_loops


def convolution(lhs, rhs, *args, **options):
    """``jax.lax.conv_general_dilated`` in the library's form."""

    def theirs(lhs, rhs):
        return lax.conv_general_dilated(lhs, rhs, *args, **options)

    return fast_inside_loops(theirs)(lhs, rhs)


def max_pool(x, *window):
    """``flax.linen.max_pool`` in the library's form."""
    return fast_inside_loops(lambda x: linen.max_pool(x, *window))(x)


ORDER = "NWC", "WIO", "NWC"
IMAGES = (2, 9, 8, 4), (3, 2, 2, 6)
STRIDED = {
    "window_strides": (2, 1),
    "padding": ((2, 1), (0, 3)),
    "rhs_dilation": (2, 1),
    "dimension_numbers": ("NHWC", "HWIO", "NHWC"),
    "feature_group_count": 2,
}


def normal(shape, seed=0, dtype=np.float64):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def test_bfloat16_is_rounded_once():
    (lhs, rhs), options = IMAGES, STRIDED
    x, kernel = normal(lhs, 0, jnp.bfloat16), normal(rhs, 1, jnp.bfloat16)
    exact = lax.conv_general_dilated(x.astype(float), kernel.astype(float), **options)
    y = jax.jit(functools.partial(convolution, **options))(x, kernel)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(y, float), exact, rtol=2.0**-8, atol=1e-3)
    wide = convolution(x, kernel, **options, preferred_element_type=jnp.float32)
    assert wide.dtype == jnp.float32
    np.testing.assert_allclose(wide, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        (((2, 0, 3), (2, 3, 4)), {}),
        (((2, 1, 3), (2, 3, 4)), {}),
        (((4, 5, 3), (2, 3, 4)), {"batch_group_count": 2}),
    ],
    ids=["no rows", "no places", "batch groups"],
)
def test_cases_without_a_product_call_xla(shapes, options):
    given = normal(shapes[0]), normal(shapes[1], 1), (1,), "VALID"
    options = {"dimension_numbers": ORDER} | options
    expected = lax.conv_general_dilated(*given, **options)
    np.testing.assert_array_equal(convolution(*given, **options), expected)


def test_shapes_that_do_not_match_raise_the_error_of_jax():
    with pytest.raises(ValueError, match="feature"):
        convolution(normal((1, 5, 5)), normal((5, 2, 3)), (1,), "SAME")


def test_the_maximum_of_a_window_with_nan_is_nan():
    x = jnp.array([jnp.nan, 1.0, 2.0, jnp.nan, 3.0, 4.0]).reshape(1, 6, 1)
    np.testing.assert_array_equal(max_pool(x, (2,), (2,)).ravel(), [np.nan, np.nan, 4.0])


def test_max_pool_of_integers():
    x = jnp.array([3, -5, -7], jnp.int32).reshape(1, 3, 1)
    assert max_pool(x, (2,), (1,), "SAME").ravel().tolist() == [3, -5, -7]


def test_depthwise_convolution_of_integers_is_exact():
    x = jnp.full((1, 2, 2), 2**60 + 1)
    given = x, jnp.ones((2, 1, 2), x.dtype), (1,), "VALID"
    options = {"dimension_numbers": ORDER, "feature_group_count": 2}
    assert convolution(*given, **options).ravel().tolist() == [2 * (2**60 + 1)] * 2
