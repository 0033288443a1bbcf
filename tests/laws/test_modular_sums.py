"""Sums modulo a power of two: against integers that overflow, the grid's error, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax import uploads
from fcojax.uploads import At, Received
from fcojax.uploads.contract import RoundWeights

pytestmark = pytest.mark.gate

KEY, STEP, BITS = jax.random.key(4), 0.125, 8
GRID = uploads.modular_sum(STEP, BITS)


def sent(x, key):
    """Return the integers that a client sends."""
    return GRID.send(At(None, 0, key=key), [jnp.asarray(x)], ()).wire[0]


def mean_of(vectors):
    """Return the server's result for clients of equal weight, and the integers they sent."""
    codes = [sent(x, jax.random.fold_in(KEY, index)) for index, x in enumerate(vectors)]
    share = jnp.asarray(1 / len(vectors))
    one, number = jnp.ones(()), len(vectors)
    count = jnp.array(number)
    weights = RoundWeights(one, one, one, count, one, one / number)
    at = At(None, 0)
    total = sum(share * GRID.decode(at, [code], ())[0] for code in codes)
    found, _ = GRID.receive(at, Received([total], [], one, jnp.array(True)), weights, ())
    return np.asarray(found.mean[0]), np.array(codes)


def test_the_mean_is_that_of_sums_that_wrap():
    """A server adds remainders, so each summand is reduced separately, as here."""
    vectors = np.random.default_rng(0).uniform(-40, 40, (6, 50))  # 320 steps, of a range of 128
    vectors[-1] = -vectors[:-1].sum(axis=0) + np.linspace(-10, 10, 50)
    found, codes = mean_of(vectors)
    wire = np.mod(codes.astype(np.int64), 2**BITS)
    remainder = np.mod(wire.sum(axis=0), 2**BITS)
    signed = np.where(remainder >= 2 ** (BITS - 1), remainder - 2**BITS, remainder)
    np.testing.assert_allclose(found, STEP * signed / 6, rtol=1e-15)
    assert np.abs(codes).max() > 2**BITS


def test_one_sum_beyond_the_range_spoils_the_round():
    """-128 is in the range, 128 is not."""
    low, high = np.full((4, 3), -4.0), np.full((4, 3), 4.0)
    np.testing.assert_array_equal(mean_of(low)[0], low[0])
    assert np.isnan(mean_of(high)[0]).all()
    one = np.zeros((4, 3))
    one[:, 1] = 4.0
    assert np.isnan(mean_of(one)[0]).all()


def test_rounding_is_unbiased_with_the_error_of_the_grid():
    x = np.random.default_rng(1).standard_normal(20)

    @jax.jit
    def rounded(key):
        return STEP * sent(x, key)

    found = np.asarray(jax.vmap(rounded)(jax.random.split(KEY, 20_000)))
    deviation = found.std(axis=0) / np.sqrt(len(found))
    assert np.all(np.abs(found.mean(axis=0) - x) < 5 * deviation + 1e-12)
    share = x / STEP % 1
    squares = (found - x) ** 2
    expected, spread = STEP**2 * share * (1 - share), squares.std(axis=0) / np.sqrt(len(found))
    assert np.all(np.abs(squares.mean(axis=0) - expected) < 5 * spread + 1e-12)
