"""The library's convolution and pooling against XLA's, over grids of options."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen
from jax import lax
from jax.test_util import check_grads

from fcojax.xla.jaxprs import fast_inside_loops


def convolution(lhs, rhs, *args, **options):
    """``jax.lax.conv_general_dilated`` in the library's form."""

    def theirs(lhs, rhs):
        return lax.conv_general_dilated(lhs, rhs, *args, **options)

    return fast_inside_loops(theirs)(lhs, rhs)


def max_pool(x, *window):
    """``flax.linen.max_pool`` in the library's form."""
    return fast_inside_loops(lambda x: linen.max_pool(x, *window))(x)


ORDERS = {
    1: (("NWC", "WIO", "NWC"), ("NCW", "OIW", "NCW")),
    2: (("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("HWNC", "IHWO", "CHWN")),
}
# Window, stride, padding, dilation of the input and of the kernel, groups, outputs per group.
OPTIONS = [
    options
    for options in itertools.product(
        (1, 2, 3),
        (1, 2),
        ("SAME", "VALID", ((2, 1), (0, 3)), ((-1, 0), (1, -1))),
        (1, 2),
        (1, 2),
        ((1, 3), (2, 2), (4, 1), (4, 2)),
    )
    if options[3] == 1 or not isinstance(options[2], str)  # jax.lax does not support the others
]


def case(rank, number):
    """Return the arguments of one convolution: both shapes, and the others by name."""
    window, stride, padding, lhs_dilation, rhs_dilation, (groups, each) = OPTIONS[number]
    orders = ORDERS[rank][number % len(ORDERS[rank])]
    sizes = {"N": 2, "C": 4, "I": 4 // groups, "O": groups * each, "H": 9, "W": 8}
    space = {"H": window, "W": window + 1 if rank == 2 else window}
    lhs = tuple(sizes[letter] for letter in orders[0])
    rhs = tuple((sizes | space)[letter] for letter in orders[1])
    options = {
        "window_strides": (stride, 1)[:rank] if number % 3 else (stride,) * rank,
        "padding": padding if isinstance(padding, str) else padding[:rank],
        "lhs_dilation": (lhs_dilation,) * rank,
        "rhs_dilation": (rhs_dilation, 1)[:rank] if number % 2 else None,
        "dimension_numbers": orders,
        "feature_group_count": groups,
    }
    return lhs, rhs, options


def normal(shape, seed=0, dtype=np.float64):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


@functools.partial(jax.jit, static_argnums=0)
def values_and_gradients(number_of_case, lhs, rhs):
    """Return the value and both gradients, of the library and of ``jax.lax``."""
    _, _, options = case(*number_of_case)

    def side(convolve):
        y, pull = jax.vjp(functools.partial(convolve, **options), lhs, rhs)
        return y, pull(jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape))

    return side(convolution), side(lax.conv_general_dilated)


def check_case(rank, number):
    lhs, rhs, _ = case(rank, number)
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-5)):
        ours, theirs = values_and_gradients(
            (rank, number), normal(lhs, 0, dtype), normal(rhs, 1, dtype)
        )
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            assert a.dtype == dtype and a.shape == b.shape
            largest = np.abs(b).max(initial=1.0)
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * largest)


NUMBERS = np.random.default_rng(0).permutation(len(OPTIONS)).tolist()


@pytest.mark.parametrize("number", NUMBERS[:5])
def test_equals_xla(number):
    check_case(1 + number % 2, number)


@pytest.mark.parametrize("number", NUMBERS[:1])
def test_derivatives_match_finite_differences(number):
    """Forward and reverse mode, first and second order."""
    lhs, rhs, options = case(1, number)
    convolve = functools.partial(convolution, **options)
    check_grads(jax.jit(convolve), (normal(lhs), normal(rhs, 1)), 2, eps=1e-3)


def test_vmap_over_kernels_is_a_loop_over_clients():
    lhs, rhs, options = case(2, NUMBERS[0])
    convolve = functools.partial(convolution, **options)
    x, kernels = normal((3, *lhs)), normal((3, *rhs), 1)

    def slope(x, kernel):
        return jax.grad(lambda *given: jnp.sum(convolve(*given) ** 3), (0, 1))(x, kernel)

    together = jax.jit(jax.vmap(slope))
    assert "convolution" not in together.lower(x, kernels).as_text()
    for a, b in zip(
        together(x, kernels), jax.lax.map(lambda xk: slope(*xk), (x, kernels)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_bfloat16_is_rounded_once():
    lhs, rhs, options = case(2, NUMBERS[0])
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
    options = {"dimension_numbers": ORDERS[1][0]} | options
    expected = lax.conv_general_dilated(*given, **options)
    found = convolution(*given, **options)
    np.testing.assert_array_equal(found, expected)


def test_shapes_that_do_not_match_raise_the_error_of_jax():
    with pytest.raises(ValueError, match="feature"):
        convolution(normal((1, 5, 5)), normal((5, 2, 3)), (1,), "SAME")


POOLS = [
    ((2,), (2,), "VALID", (3, 7, 2)),
    ((3,), None, "SAME", (7, 2)),
    ((2, 3), (2, 3), "VALID", (2, 5, 7, 3)),
    ((3, 2), (1, 2), ((1, 2), (0, 1)), (2, 5, 6, 3)),
    ((2, 2), (2, 2), "SAME", (4, 2, 5, 5, 1)),
]


@pytest.mark.parametrize("row", range(len(POOLS)))
def test_max_pool_is_that_of_flax(row):
    """Return value and gradient; small integers have many ties."""
    window, strides, padding, shape = POOLS[row]
    x = jnp.round(normal(shape))

    @functools.partial(jax.jit, static_argnums=0)
    def value_and_gradient(pool, x):
        y, vjp = jax.vjp(lambda x: pool(x, window, strides, padding), x)
        return y, vjp(jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape))

    with jax.numpy_dtype_promotion("standard"):
        expected = value_and_gradient(linen.max_pool, x)
    y, gradient = value_and_gradient(max_pool, x)
    np.testing.assert_allclose(y, expected[0], rtol=1e-14)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-14, atol=1e-14)


def test_the_maximum_of_a_window_with_nan_is_nan():
    x = jnp.array([jnp.nan, 1.0, 2.0, jnp.nan, 3.0, 4.0]).reshape(1, 6, 1)
    found = max_pool(x, (2,), (2,)).ravel()
    np.testing.assert_array_equal(found, [np.nan, np.nan, 4.0])


def test_max_pool_of_integers():
    x = jnp.array([3, -5, -7], jnp.int32).reshape(1, 3, 1)
    assert max_pool(x, (2,), (1,), "SAME").ravel().tolist() == [3, -5, -7]


def test_depthwise_convolution_of_integers_is_exact():
    x = jnp.full((1, 2, 2), 2**60 + 1)
    given = x, jnp.ones((2, 1, 2), x.dtype), (1,), "VALID"
    options = {"dimension_numbers": ORDERS[1][0], "feature_group_count": 2}
    found = convolution(*given, **options)
    assert found.ravel().tolist() == [2 * (2**60 + 1)] * 2


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS[5:108])
def test_equals_xla_over_a_grid_of_options(number):
    check_case(1 + number % 2, number)
