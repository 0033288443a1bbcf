"""Laws of compressors: those of ``fcojax.check``, exact errors, bytes, and special cases.

A row has a compressor, the vector at which its stated bound is attained, and the exact mean squared
error at any vector.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax import check, uploads
from fcojax.uploads import coding
from fcojax.uploads.compressor import Compressor, packed, unpacked
from fcojax.uploads.quantise import hartley
from tests.support.compressors import IDENTITY
from tests.support.tables import with_gate

SIZE, DRAWS = 16, 20_000
KEY = jax.random.key(5)


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def grid_error(unit):
    """Return the exact squared error of random rounding to multiples of ``unit(x)``."""

    def error(x):
        step = unit(x)
        share = np.abs(x) / step % 1
        return step**2 * np.sum(share * (1 - share))

    return error


def power_error(x):
    low = 2.0 ** np.floor(np.log2(np.abs(x)))
    return np.sum((np.abs(x) - low) * (2 * low - np.abs(x)))


def smallest(count):
    return lambda x: np.sum(np.sort(x**2)[:-count])


def levels_error(x):
    return np.sum(x**2) - np.abs(x).sum() ** 2 / x.size


def dropped(share):
    """Entries times 1 / share with probability share."""
    return lambda x: (1 / share - 1) * np.sum(x**2)


EQUAL, ONE = np.ones(SIZE), np.eye(SIZE)[3]
OPPOSITE = np.eye(SIZE)[2] + np.eye(SIZE)[2 + SIZE // 2]
STEEP = np.where(np.arange(SIZE) == 0, 1.0, 1 / (1 + np.sqrt(SIZE)))


class Row(NamedTuple):
    """A compressor, and what is known about it."""

    compressor: Compressor
    num_bytes: int  # of 16 numbers in float64
    error: Callable[[Any], Any] | None = None  # x -> E |C(x) - x|^2, if it has a simple formula
    worst: Any = None  # a vector that attains the stated bound, if one does


ROWS = {
    "identity": Row(IDENTITY, 128, lambda x: 0.0, EQUAL),
    "rand_k": Row(uploads.rand_k(3), 24, dropped(3 / SIZE), EQUAL),
    "rand_k of a share": Row(uploads.rand_k(0.5), 64, dropped(0.5), EQUAL),
    "rand_k, contractive": Row(
        uploads.contractive(uploads.rand_k(4)), 32, lambda x: 0.75 * np.sum(x**2), EQUAL
    ),
    "top_k": Row(uploads.top_k(4), 32 + 2, smallest(4), EQUAL),
    "top_k of a share": Row(uploads.top_k(0.2), 24 + 2, smallest(3), EQUAL),
    "qsgd, 1 level": Row(uploads.qsgd(1), 8 + 4, grid_error(np.linalg.norm)),
    "qsgd, 7 levels": Row(uploads.qsgd(7), 8 + 8, grid_error(lambda x: np.linalg.norm(x) / 7)),
    "natural": Row(uploads.natural(), 16 + 2, power_error, EQUAL * 4 / 3),
    "sign": Row(uploads.sign(), 8 + 2, levels_error, ONE),
    "half": Row(uploads.half(), 32),
    "drive": Row(uploads.drive("least error"), 8 + 2, None),
    "drive, unbiased": Row(uploads.drive(), 8 + 2),
    "rand_k and natural": Row(
        uploads.compose(uploads.rand_k(4), uploads.natural()),
        4 + 1,
        lambda x: 3 * np.sum(x**2) + 4 * power_error(x),
        EQUAL * 4 / 3,
    ),
    "top_k and natural": Row(uploads.compose(uploads.top_k(4), uploads.natural()), 4 + 1 + 2),
    "qsgd, contractive": Row(uploads.contractive(uploads.qsgd(3)), 8 + 6),
}
REPRESENTATIVES = {"rand_k", "top_k", "qsgd, 7 levels", "drive"}


def each_row(test):
    return pytest.mark.slow(pytest.mark.parametrize("name", with_gate(ROWS, REPRESENTATIVES))(test))


def some_rows(condition):
    return with_gate([name for name in ROWS if condition(ROWS[name])], REPRESENTATIVES)


@functools.lru_cache
def compiled(compressor, num_draws):
    """``x -> C(x)`` for many keys."""

    @jax.jit
    def many(x):
        def one(key):
            return compressor.decode(None, compressor.encode(None, x, key), key, x)

        return jax.vmap(one)(jax.random.split(KEY, num_draws))

    return many


def draws(name, x, num_draws=DRAWS):
    return np.asarray(compiled(ROWS[name].compressor, num_draws)(jnp.asarray(x)))


def mean_and_deviation(values):
    return values.mean(axis=0), values.std(axis=0) / np.sqrt(len(values))


def squared_errors(name, x):
    return np.sum((draws(name, x) - x) ** 2, axis=1)


@each_row
def test_each_compressor_is_what_it_states(name):
    found = check.piece_laws(ROWS[name].compressor)
    assert [law for law, finding in found.items() if finding.holds is False] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", some_rows(lambda row: row.error))
def test_the_error_has_its_closed_form(name):
    for seed in (2, 3):
        x = normal(seed, SIZE)
        mean, deviation = mean_and_deviation(squared_errors(name, x))
        assert abs(mean - ROWS[name].error(x)) <= 5 * deviation + 1e-12


def bound_of(row):
    """Return the stated bound on E |C(x) - x|^2 / |x|^2, for 16 numbers."""
    like = jnp.zeros(SIZE)
    found = []
    if row.compressor.variance is not None:
        found.append(row.compressor.variance(None, like))
    if row.compressor.contraction is not None:
        found.append(1 - row.compressor.contraction(None, like))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", some_rows(bound_of))
def test_the_stated_bound_holds_for_these_and_is_attained(name):
    """Vectors that ``fcojax.check`` does not try."""
    row = ROWS[name]
    for x in (STEEP, OPPOSITE, *([] if row.worst is None else [row.worst])):
        mean, deviation = mean_and_deviation(squared_errors(name, x) / np.sum(x**2))
        for bound in bound_of(row):
            assert mean <= bound + 5 * deviation + 1e-12
            assert x is not row.worst or mean >= bound - 5 * deviation - 1e-12


@each_row
def test_bytes_are_those_of_the_arrays_that_are_sent(name):
    row, x = ROWS[name], jnp.zeros(SIZE)
    assert uploads.facts(row.compressor, x).num_bytes == row.num_bytes
    encoded = coding.encode(row.compressor, None, [x], KEY)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(encoded.sent)) == row.num_bytes


@each_row
def test_payloads_keep_their_form(name):
    """A payload with scalars, matrices, empty arrays, integers and two dtypes."""
    dtype = jnp.bfloat16
    compressor = ROWS[name].compressor
    payload = {
        "count": jnp.arange(3),
        "empty": jnp.zeros((0, 2), dtype),
        "matrix": jnp.asarray(normal(7, 5, 4), dtype),
        "number": jnp.asarray(0.5),
    }
    encoded = jax.jit(functools.partial(coding.encode, compressor, None))(payload, KEY)
    found = coding.decode(compressor, encoded)
    assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, payload)
    assert jax.tree.map(jnp.result_type, found) == jax.tree.map(jnp.result_type, payload)
    assert found["count"].tolist() == [0, 1, 2]
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(found))


@each_row
def test_what_is_not_finite_stays_so(name):
    """Even if the bad entry is not sent; the engine then drops the client."""
    for bad in (np.nan, np.inf):
        payload = [jnp.where(jnp.arange(SIZE) == 5, bad, 0.1)]
        encoded = coding.encode(ROWS[name].compressor, None, payload, KEY)
        assert not np.all(np.isfinite(coding.decode(ROWS[name].compressor, encoded)[0]))


# Reductions.


def through(compressor, payload, hparams=None, key=KEY):
    return coding.decode(compressor, coding.encode(compressor, hparams, payload, key))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 257])
def test_the_hartley_transform_is_orthogonal_and_its_own_inverse(size):
    x = jnp.asarray(normal(13, size))
    angles = 2 * np.pi * np.outer(*2 * [np.arange(size)]) / max(size, 1)
    matrix = (np.cos(angles) + np.sin(angles)) / np.sqrt(max(size, 1))
    np.testing.assert_allclose(hartley(x), matrix @ x, atol=1e-11)
    np.testing.assert_allclose(hartley(hartley(x)), x, atol=1e-13)


def test_a_sparse_vector_stays_biased_as_the_docstring_says():
    """For (2, 1) only the first entry is sent, with any random signs."""
    found = [
        through(uploads.drive("unbiased"), [jnp.array([2.0, 1.0])], key=key)[0]
        for key in jax.random.split(KEY, 20)
    ]
    np.testing.assert_allclose(found, np.tile([2.5, 0.0], (20, 1)), atol=1e-12)


# Numbers.


def test_drive_keeps_the_product_with_the_vector_or_errs_least():
    x = jnp.asarray(normal(3, 37))
    unbiased, least = (
        through(uploads.drive(scale), [x])[0] for scale in ("unbiased", "least error")
    )
    np.testing.assert_allclose(unbiased @ x, x @ x, rtol=1e-12)
    np.testing.assert_allclose(least @ x, least @ least, rtol=1e-12)


def test_natural_compression_rounds_to_a_power_of_two_next_to_it_and_as_qsgd_without_bias():
    x = normal(2, SIZE)
    found = [draws(name, x, 4000) for name in ("natural", "qsgd, 7 levels")]
    assert np.isin(found[0] / (np.sign(x) * 2.0 ** np.floor(np.log2(np.abs(x)))), (1, 2)).all()
    for mean, deviation in map(mean_and_deviation, found):
        assert np.all(np.abs(mean - x) <= 5 * deviation)


def test_packed_numbers_are_unpacked():
    for num_bits in (1, 7, 10, 32):
        numbers = np.random.default_rng(20).integers(0, 2**num_bits, 37)
        code = packed(jnp.asarray(numbers), num_bits)
        assert code.nbytes == -(-37 * num_bits // 8)
        np.testing.assert_array_equal(unpacked(code, num_bits, 37), numbers)
