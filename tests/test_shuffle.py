import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fcojax import shuffle


@functools.partial(jax.jit, static_argnames="size")
def whole(key, size, stream=0):
    positions = jnp.arange(size)
    return shuffle.permuted(key, size, jnp.full_like(positions, stream), positions)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000, 4097])
def test_result_is_a_permutation(size):
    order = np.asarray(whole(jax.random.key(size), size))
    assert np.array_equal(np.sort(order), np.arange(size))


def test_a_traced_size_gives_the_same_permutation():
    key = jax.random.key(0)
    traced = jax.jit(lambda n: shuffle.permuted(key, n, jnp.zeros(5, int), jnp.arange(5)))(9)
    assert np.array_equal(traced, whole(key, 9)[:5])


@pytest.mark.parametrize("size", [5e300, 5.0, np.float32(5)])
@pytest.mark.parametrize("draw", [shuffle.permuted, shuffle.uniform_indices])
def test_a_size_that_is_not_whole_is_refused(draw, size):
    zero = jnp.zeros(5, int)
    with pytest.raises(ValueError, match="size has the dtype float"):
        draw(jax.random.key(0), size, zero, jnp.arange(5))


def test_a_large_population_needs_no_table():
    size = 2**30 + 12345
    permuted = jax.jit(shuffle.permuted)
    members = permuted(jax.random.key(3), size, jnp.zeros(1000, int), jnp.arange(1000))
    assert len(set(members.tolist())) == 1000
    assert int(members.min()) >= 0 and int(members.max()) < size
    # Uniform over the whole range of values.
    assert stats.kstest(np.asarray(members) / size, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("size", [2, 3, 5])
def test_all_orders_are_equally_likely(size):
    count = 40_000
    orders = jax.jit(jax.vmap(lambda key: whole(key, size)))(
        jax.random.split(jax.random.key(1), count)
    )
    codes = np.asarray(orders) @ (size ** np.arange(size))
    observed = np.unique(codes, return_counts=True)[1]
    expected = np.prod(np.arange(1, size + 1))
    assert len(observed) == expected
    assert stats.chisquare(observed).pvalue > 1e-3


def test_neighbouring_entries_are_uniform_pairs():
    """Ordered pairs of entries are uniform over the pairs of distinct values."""
    size, count = 11, 60_000
    orders = np.asarray(
        jax.jit(jax.vmap(lambda key: whole(key, size)))(jax.random.split(jax.random.key(2), count))
    )
    for lag in (1, 2, 5):
        observed = np.bincount(orders[:, 0] * size + orders[:, lag], minlength=size * size)
        pairs = observed.reshape(size, size)[~np.eye(size, dtype=bool)]
        assert np.trace(observed.reshape(size, size)) == 0
        assert stats.chisquare(pairs).pvalue > 1e-3


def test_streams_of_one_key_are_independent():
    size, count = 8, 30_000
    streams = jnp.arange(count)
    first = jax.jit(shuffle.permuted)(jax.random.key(5), size, streams, jnp.zeros_like(streams))
    pairs = np.bincount(np.asarray(first[:-1]) * size + np.asarray(first[1:]), minlength=size**2)
    assert stats.chisquare(pairs).pvalue > 1e-3


def test_draws_with_replacement_are_uniform():
    drawn = np.asarray(shuffle.uniform_indices(jax.random.key(0), 7, jnp.arange(70_000)))
    assert stats.chisquare(np.bincount(drawn, minlength=7)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("size", "stream", "expected"),
    [
        (5, 0, [3, 2, 4, 1, 0, 3]),
        (1000, 3, [610, 140, 323, 939, 741, 735]),
        (2**30 + 5, 7, [179269819, 44519290, 843091714, 1031608707, 706283137, 821453893]),
    ],
)
def test_permutations_do_not_change_between_versions(size, stream, expected):
    """Keys must reproduce results, so these numbers hold for every version and device."""
    positions = jnp.arange(6) % size
    order = shuffle.permuted(jax.random.key(11), size, jnp.full_like(positions, stream), positions)
    assert order.tolist() == expected


def rows_drawn(key, rows):
    positions = jnp.arange(4)
    return rows[shuffle.permuted(key, rows.shape[0], jnp.zeros_like(positions), positions)]


def test_drawn_rows_can_be_differentiated_and_mapped():
    rows, keys = jnp.arange(21.0).reshape(7, 3), jax.random.split(jax.random.key(2), 3)
    one, mapped = jax.jit(rows_drawn), jax.jit(jax.vmap(rows_drawn, in_axes=(0, None)))
    drawn = np.stack([one(key, rows) for key in keys])
    np.testing.assert_array_equal(mapped(keys, rows), drawn)

    def energy(rows, key):
        return jnp.sum(rows_drawn(key, rows) ** 2) / 2

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(None, 0))
    def slopes(rows, key):
        along = jax.jvp(lambda rows: energy(rows, key), (rows,), (jnp.ones_like(rows),))[1]
        return jax.grad(energy)(rows, key), along

    backward, forward = slopes(rows, keys)
    expected = np.stack([np.where(np.isin(rows, taken), rows, 0) for taken in drawn])
    np.testing.assert_array_equal(backward, expected)
    np.testing.assert_array_equal(forward, expected.sum(axis=(1, 2)))
