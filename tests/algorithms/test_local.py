import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fcojax.algorithms.local import Batch, mean_gradient, mean_loss
from fcojax.algorithms.work import local_epochs, local_steps
from fcojax.engine.members import local_handle
from fcojax.problems.building import from_clients

SIZES = (5, 2, 7)


def population(sizes=SIZES):
    """Each example's value identifies it: client * 100 + row."""
    return from_clients([{"name": 100.0 * m + np.arange(n)} for m, n in enumerate(sizes)])


def visits(work, client, sizes=SIZES, seed=0):
    """Return the examples of each step and their weights, from the scan."""
    data = population(sizes)
    num_steps = work.max_steps(data.max_size)
    width = work.batch_size or data.max_size

    def step(carry, batch):
        index, names, weights = carry
        return (
            index + 1,
            names.at[index].set(batch.examples["name"]),
            weights.at[index].set(batch.weights),
        )

    local = local_handle(data, work, jax.random.key(seed), jnp.array(3), client, client)
    start = jnp.array(0), jnp.zeros((num_steps, width)), jnp.zeros((num_steps, width))
    index, names, weights = jax.jit(local.scan, static_argnums=0)(step, start)
    assert index == local.num_steps
    return np.asarray(names), np.asarray(weights)


@pytest.mark.parametrize(("client", "epochs", "batch_size"), [(0, 1, 2), (1, 3, 7), (2, 2, 3)])
def test_an_epoch_visits_every_example_once(client, epochs, batch_size):
    names, weights = visits(local_epochs(epochs, batch_size), client)
    seen, times = np.unique(names[weights > 0], return_counts=True)
    assert np.array_equal(seen, 100 * client + np.arange(SIZES[client]))
    assert (times == epochs).all()
    steps_taken = int((weights.sum(axis=1) > 0).sum())
    assert steps_taken == -(-epochs * SIZES[client] // batch_size)
    # Only the last batch may be short, and each epoch is complete before the next begins.
    flat = names.reshape(-1)[weights.reshape(-1) > 0].reshape(epochs, SIZES[client])
    assert (np.sort(flat, axis=1) == seen).all()
    assert (weights[: steps_taken - 1] == 1).all()


@pytest.mark.parametrize("epochs", [pytest.param(0.5, marks=pytest.mark.slow), (1 / 3, 2.5)])
def test_a_fraction_of_an_epoch_is_its_first_examples(epochs):
    """As many as that fraction of the client's examples, rounded up; the last batch may be short.

    A third is exact: in floating point, a third of 6 examples might be 3.
    """
    sizes = (6, 3)
    for client, size in enumerate(sizes):
        names, weights = visits(local_epochs(epochs, 2), client, sizes)
        all_names, _ = visits(local_epochs(3, 2), client, sizes)
        own = epochs[client] if isinstance(epochs, tuple) else epochs
        read = math.ceil(round(own * size, 9))
        assert np.array_equal(names[weights > 0], all_names.reshape(-1)[:read])
        assert int((weights.sum(axis=1) > 0).sum()) == -(-read // 2)
    with pytest.raises(ValueError, match="num_epochs"):
        local_epochs(0.5)
    with pytest.raises(ValueError, match=r"num_epochs is 0.0004; pass at least 0.001"):
        local_epochs(0.0004, 4)  # would be rounded to no step


def test_epochs_are_reshuffled():
    names, _ = visits(local_epochs(2, 7), 2)
    assert not np.array_equal(names[0], names[1])


@pytest.mark.parametrize("client", range(3))
def test_steps_draw_distinct_examples_of_the_client(client):
    names, weights = visits(local_steps(6, 4), client)
    real = min(4, SIZES[client])
    assert (weights.sum(axis=1) == real).all()
    for drawn, weight in zip(names, weights, strict=True):
        assert len(set(drawn[weight > 0])) == real
        assert set(drawn[weight > 0]) <= set(100 * client + np.arange(SIZES[client]))


def test_steps_are_independent_of_each_other():
    names, _ = visits(local_steps(400, 1), 0)
    pairs = np.unique(np.stack([names[:-1, 0], names[1:, 0]]), axis=1, return_counts=True)[1]
    assert len(pairs) == 25 and pairs.max() < 3 * pairs.mean()


def test_replacement_may_repeat_and_ignores_the_size():
    names, weights = visits(local_steps(5, 20, replace=True), 1)
    assert (weights == 1).all()
    assert set(names.reshape(-1)) == {100.0, 101.0}


@pytest.mark.parametrize("batch_size", [3, None])
@pytest.mark.parametrize("kind", [local_steps, local_epochs])
def test_uneven_work_is_uniform_between_its_ends(kind, batch_size):
    """Over clients and rounds, whose draws are independent."""
    data, work = population((6, 6, 6, 6)), kind(5, batch_size, fewest=2)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    @functools.partial(jax.vmap, in_axes=(None, 0))
    def steps(index, client):
        return local_handle(data, work, jax.random.key(0), index, client, client).num_steps

    taken = np.asarray(steps(jnp.arange(1_000), jnp.arange(4)))
    if kind is local_epochs and batch_size:
        assert (taken % 2 == 0).all()  # six examples in batches of three
        taken = taken // 2
    assert taken.min() == 2 and taken.max() == 5
    for one, other in ((taken[:, ::2], taken[:, 1::2]), (taken[1:], taken[:-1])):
        pairs = np.bincount(((one - 2) * 4 + other - 2).reshape(-1), minlength=16)
        assert stats.chisquare(pairs).pvalue > 1e-3


@pytest.mark.parametrize(("client", "work"), [(1, local_steps(2)), (2, local_epochs(2))])
def test_the_full_batch_is_every_example_and_nothing_else(client, work):
    names, weights = visits(work, client)
    for drawn, weight in zip(names, weights, strict=True):
        assert np.array_equal(drawn[weight > 0], 100 * client + np.arange(SIZES[client]))


def test_padding_neither_counts_nor_leaks():
    """A padded example whose loss is not finite changes neither the loss nor its gradient."""

    def loss(w, examples):
        return jnp.log(examples) * w

    batch = Batch(jnp.array([1.0, jnp.e, 0.0]), jnp.array([1.0, 1.0, 0.0]))
    assert mean_loss(loss)(jnp.array(2.0), batch) == pytest.approx(1.0)
    real = Batch(batch.examples[:2], batch.weights[:2])
    gradient = mean_gradient(lambda w, x: w**2 * x)
    assert gradient(3.0, batch) == pytest.approx(gradient(3.0, real))


WORKS = [local_steps(4), local_steps(4, 2), local_epochs(2, 3), local_steps((1, 4, 2), 2)]


def handle(work, client, data=None, index=0):
    data = population() if data is None else data
    return local_handle(data, work, jax.random.key(0), jnp.array(index), client, client)


@pytest.mark.parametrize(
    "work", [*WORKS[:1], *(pytest.param(work, marks=pytest.mark.slow) for work in WORKS[1:])]
)
def test_a_traced_number_of_steps_is_a_beginning(work):
    """ProxSkip's geometric numbers of steps need this: fewer than planned, and different ones."""

    @jax.jit
    @jax.vmap
    def sums(num_steps, client):
        local = handle(work, client)
        return local.scan(
            lambda carry, batch: carry + batch.examples["name"] @ batch.weights,
            jnp.array(0.0),
            num_steps=num_steps,
        )

    for client in range(3):
        _, outputs = handle(work, client).scan(
            lambda carry, batch: carry, 0, emit=lambda _, b: b.examples["name"] @ b.weights
        )
        expected = np.append(0.0, np.cumsum(outputs))
        counts = jnp.arange(6)  # larger numbers are cut to the planned number
        found = sums(counts, jnp.full(6, client))
        most = int(handle(work, client).num_steps)
        np.testing.assert_allclose(found, expected[np.minimum(counts, most)])


@pytest.mark.slow
@pytest.mark.parametrize("work", [local_steps(3), local_steps(3, 2), local_epochs(1, 2)])
def test_every_step_of_every_client_and_round_has_a_key_of_its_own(work):
    def numbers(client, index):
        _, keys = handle(work, client, index=index).scan(
            lambda carry, batch: carry,
            0,
            emit=lambda _, batch: jax.random.bits(batch.key, (), jnp.uint32),
        )
        return np.asarray(keys)[: int(handle(work, client).num_steps)]

    drawn = np.concatenate([numbers(client, index) for client in range(3) for index in range(2)])
    assert len(set(drawn.tolist())) == len(drawn)
    np.testing.assert_array_equal(numbers(1, 0), numbers(1, 0))


def test_the_full_batch_is_padded_with_the_clients_own_rows():
    """Otherwise the rows of others could turn a masked zero into NaN in a gradient."""
    for client, size in enumerate(SIZES):
        names = np.asarray(handle(local_steps(1), client).full().examples["name"])
        own = set(100.0 * client + np.arange(size))
        assert set(names.tolist()) == own
