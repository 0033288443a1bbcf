"""Random convolutions and poolings: values and two derivatives against XLA's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fcojax.xla.jaxprs import fast_inside_loops
from tests.support.windows import normal, slow_primitives


def random_convolution(seed):
    """Draw a convolution of 1 to 3 dimensions with a nonempty result, and its shapes."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    groups, depth, each = (int(n) for n in rng.integers(1, 4, 3))
    space, window = rng.integers(3, 8, rank), rng.integers(1, 4, rank)
    strides, lhs_dilation, rhs_dilation = rng.integers(1, 3, (3, rank)).tolist()
    padding = rng.integers(-1, 3, (rank, 2)).tolist()
    if rng.random() < 0.5:
        padding, lhs_dilation = str(rng.choice(["SAME", "VALID"])), [1] * rank
    letters = "XYZ"[:rank]
    orders = ["".join(rng.permutation(list(outer + letters))) for outer in ("NC", "OI", "NC")]
    sizes = dict(zip(letters, space.tolist(), strict=True)) | {"N": 2, "C": groups * depth}
    of_kernel = dict(zip(letters, window.tolist(), strict=True)) | {"I": depth, "O": groups * each}
    lhs = tuple(sizes[letter] for letter in orders[0])
    rhs = tuple(of_kernel[letter] for letter in orders[1])
    options = {
        "window_strides": strides,
        "padding": padding,
        "lhs_dilation": lhs_dilation,
        "rhs_dilation": rhs_dilation,
        "dimension_numbers": tuple(orders),
        "feature_group_count": groups,
    }
    convolve = functools.partial(lax.conv_general_dilated, **options)
    result = jax.eval_shape(convolve, jnp.zeros(lhs), jnp.zeros(rhs))
    return (convolve, (lhs, rhs)) if result.size else random_convolution(seed + 1000)


def random_pooling(seed):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 5))
    shape, window = rng.integers(3, 7, rank).tolist(), rng.integers(1, 4, rank).tolist()
    strides = rng.integers(1, 3, rank).tolist()
    # A window with only padding has the value minus infinity.
    padding = [tuple(rng.integers(0, size, 2).tolist()) for size in window]
    pool = functools.partial(
        lax.reduce_window,
        init_value=-jnp.inf,
        computation=lax.max,
        window_dimensions=window,
        window_strides=strides,
        padding=padding,
    )
    return pool, (tuple(shape),)


def numbers(function, *args):
    """Values, gradients, and gradients of a gradient's product with a direction."""
    places = tuple(range(len(args)))

    def total(*args):
        y = function(*args)
        return jnp.vdot(jnp.sin(y), constant(y, 7)), y

    def slope(*args):
        (_, y), gradients = jax.value_and_grad(total, places, has_aux=True)(*args)
        products = [jnp.vdot(g, constant(g, 8)) for g in gradients]
        return functools.reduce(jnp.add, products), (y, gradients)

    second, first = jax.grad(slope, places, has_aux=True)(*args)
    return *first, second


def constant(like, seed):
    """Return a normal array, the same for every dtype up to float32."""
    return normal(*like.shape, seed=seed).astype(np.float32).astype(like.dtype)


def check_float64(ours, theirs):
    """Require equality up to 1e-12 of the largest entry."""
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(theirs).max(initial=1e-3))


def check_float32(ours, theirs, exact):
    """Require results as close to float64 as XLA's, up to 1e-6 of the norm.

    Both round every product and sum in different orders, so they differ by the errors of both; if
    entries cancel, these exceed 1e-6 of the result and neither order is better.
    """
    error, theirs = (np.linalg.norm(np.asarray(a, float) - exact) for a in (ours, theirs))
    assert error <= max(1e-6 * np.linalg.norm(exact), 2 * theirs)


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 100))]


@pytest.mark.parametrize("make", [random_convolution, random_pooling])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_windows_are_those_of_xla(make, seed):
    function, shapes = make(seed)
    args = [constant(jnp.zeros(shape), place) for place, shape in enumerate(shapes)]
    single = [arg.astype(np.float32) for arg in args]
    rewritten = functools.partial(numbers, fast_inside_loops(function))
    ours, theirs = jax.jit(rewritten), jax.jit(functools.partial(numbers, function))
    exact = jax.tree.leaves(theirs(*args))
    for a, b in zip(jax.tree.leaves(ours(*args)), exact, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        check_float64(a, b)
    both = jax.tree.leaves(ours(*single)), jax.tree.leaves(theirs(*single))
    for a, b, reference in zip(*both, exact, strict=True):
        assert a.dtype == b.dtype == np.float32 and a.shape == b.shape
        check_float32(a, b, reference)
    assert not slow_primitives(rewritten, *args)
