"""Held-out data: some rows of every client."""

import jax
import numpy as np
import pytest

from fcojax import from_rows
from fcojax.problems import hold_out_examples

KEY = jax.random.key(0)
SIZES = (2, 9, 30, 4, 100)


def population(sizes=SIZES, **options):
    """Each example's value identifies it: client * 1000 + row."""
    names = [1000 * m + np.arange(n) for m, n in enumerate(sizes)]
    return from_rows({"name": np.concatenate(names)}, sizes, **options)


def names(data):
    return np.asarray(data.examples["name"])


@pytest.mark.parametrize("share", [0.01, 0.3, 0.99])
def test_by_example_every_client_is_cut_in_two(share):
    data = population(ids=list("abcde"), weights=0.5)
    train, validation = hold_out_examples(data, share, KEY)
    assert sorted([*names(train), *names(validation)]) == sorted(names(data))
    for part in (train, validation):
        assert part.ids.tolist() == list("abcde")
        assert np.array_equal(part.weights, data.weights)
        owner = np.repeat(np.arange(5), part.sizes)
        assert np.array_equal(names(part) // 1000, owner)
        assert (np.diff(names(part)) > 0).all()  # the order of rows is kept
    for size, held in zip(SIZES, validation.sizes.tolist(), strict=True):
        assert held == min(max(round(share * size), 1), size - 1)


def test_by_example_rows_are_held_out_alike():
    """Each of ten rows of a client is held out in about three tenths of 300 splits."""
    data, times = population((10,) * 300), np.zeros(10)
    for row in names(hold_out_examples(data, 0.3, KEY)[1]) % 1000:
        times[row] += 1
    assert times.sum() == 900 and abs(times - 90).max() < 4 * np.sqrt(300 * 0.3 * 0.7)


def test_the_key_decides():
    data = population((20,) * 20)
    one, same, other = (hold_out_examples(data, 0.5, jax.random.key(seed))[1] for seed in (0, 0, 1))
    assert np.array_equal(names(one), names(same))
    assert not np.array_equal(names(one), names(other))
