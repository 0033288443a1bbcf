"""Clients of 1 to 5,000 examples in one population: correct, little padding, one compilation."""

import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.algorithms import Algorithm, ClientResult
from fcojax.algorithms.local import mean_gradient

KEY = jax.random.key(0)
SIZES = (40, 1, 5000, 2, 700, 3, 90, 1, 2400, 12, 300, 7)
SMALL = (40, 1, 130, 2, 70, 3, 90, 1, 5)
START = jnp.array([0.5, -1.0, 2.0])


@functools.cache
def population(sizes=SIZES, weights="examples"):
    """Rows of 4 KB, the size of a page, so that every row of padding counts."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((sum(sizes), 3))
    rest = np.zeros((sum(sizes), 512 - 4))
    examples = {"x": x, "y": x.sum(axis=1) + rng.standard_normal(sum(sizes)), "rest": rest}
    return fcojax.from_rows(examples, sizes, weights)


def loss(w, rows):
    return (rows["x"] @ w - rows["y"]) ** 2


class Hparams(NamedTuple):
    client_lr: float = 0.05


@functools.cache
def observer(of):
    """The model is the weighted mean of ``of(w, batch)``, summed over a client's steps."""

    def client_update(hparams, message, client, local, key):
        nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(of, START, local.full()))
        add = lambda total, batch: jax.tree.map(jnp.add, total, of(START, batch))  # noqa: E731
        return ClientResult(client, local.scan(add, nothing), {})

    start = {"rows": jnp.zeros(()), "real": jnp.zeros(())} if of is counts else jnp.zeros(3)
    return Algorithm(
        init=lambda hparams, params: (start, ()),
        broadcast=lambda hparams, server: server,
        client_update=client_update,
        server_update=lambda hparams, server, mean, fraction, key: mean,
        model=lambda hparams, server: server,
    )


def counts(w, batch):
    """Return the rows that a step computes, and the real rows among them."""
    return {"rows": jnp.asarray(float(batch.weights.size)), "real": jnp.sum(batch.weights)}


gradient = mean_gradient(loss)


def one_round(of, data, work, **options):
    return fcojax.run(
        observer(of), Hparams(), START, data, KEY, fcojax.Plan(work, **options), num_rounds=1
    )[0]


def pooled_gradient(data):
    rows = jax.tree.map(np.asarray, data.examples)
    residual = rows["x"] @ np.asarray(START) - rows["y"]
    return 2 * rows["x"].T @ residual / len(residual)


@pytest.mark.parametrize("chunk", [None, 5])
def test_full_gradients_are_those_of_the_pooled_data(chunk):
    data = population()
    found = one_round(gradient, data, fcojax.local_steps(1), client_chunk_size=chunk)
    np.testing.assert_allclose(found, pooled_gradient(data), rtol=1e-10)


@pytest.mark.parametrize(
    "chunk", [1, 4, *(pytest.param(chunk, marks=pytest.mark.slow) for chunk in (2, 9))]
)
@pytest.mark.parametrize("work", [fcojax.local_steps(2), fcojax.local_epochs(2)])
def test_every_row_is_read_in_every_step_and_few_are_padding(work, chunk):
    data = population(SMALL, None)
    found = one_round(counts, data, work, client_chunk_size=chunk)
    sizes = np.resize(np.sort(SMALL)[::-1], -(-9 // chunk) * chunk).reshape(-1, chunk)
    assert float(found["rows"]) * 9 <= 2 * 1.15 * chunk * sizes.max(axis=1).sum()
    assert float(found["real"]) * 9 == pytest.approx(2 * sum(SMALL))


@pytest.mark.parametrize("chunk", [1, 4])
def test_epochs_see_every_example_once(chunk):
    data = population(SMALL, None)
    found = one_round(gradient, data, fcojax.local_epochs(1, 1), client_chunk_size=chunk)
    np.testing.assert_allclose(found, pooled_gradient(data) * sum(SMALL) / 9, rtol=1e-10)


def test_draws_with_replacement_differ_from_step_to_step():
    def names(w, batch):
        return batch.examples["x"][0]

    data = population((200, 100), None)
    one, many = (
        fcojax.run(
            observer(names),
            Hparams(),
            START,
            data,
            KEY,
            num_rounds=1,
            plan=fcojax.Plan(fcojax.local_steps((k, 1), 1, replace=True), client_chunk_size=1),
        )[0]
        for k in (1, 65)
    )
    # If blocks of steps repeated their draws the sum would contain few different rows.
    rows = np.asarray(data.examples["x"])
    last = 2 * np.asarray(many - one)
    assert not any(np.allclose(last / 64, row, atol=1e-6) for row in rows)


def test_other_cohorts_and_rates_compile_nothing_anew():
    data, work = population(), fcojax.local_epochs(1, 300)
    options = {"num_rounds": 4, "plan": fcojax.Plan(work, fcojax.uniform_cohort(cohort_size=3))}
    plain = observer(gradient)
    once = plain._replace(client_update=chex.assert_max_traces(plain.client_update, 1))
    renamed = fcojax.from_rows(data.examples, data.sizes, ids=[f"c{m:02d}" for m in range(12)])
    for rate, other, seed in ((0.1, data, 0), (0.2, data, 9), (0.2, renamed, 9)):
        fcojax.run(once, Hparams(rate), START, other, jax.random.key(seed), **options)


@pytest.mark.parametrize("work", [fcojax.local_steps(2), fcojax.local_epochs(2, 4)])
def test_equal_clients_need_no_branch_and_no_sort(work):
    """Ragged clients do, which shows that the searched words are the right ones."""

    def program(data):
        run = functools.partial(
            fcojax.run,
            observer(gradient),
            Hparams(),
            START,
            num_rounds=1,
            plan=fcojax.Plan(work, client_chunk_size=3),
        )
        return jax.jit(lambda data, key: run(data=data, key=key)).lower(data, KEY).as_text()

    equal, ragged = program(population((8,) * 9)), program(population(SMALL))
    for word in ("stablehlo.case", "stablehlo.sort"):
        assert word not in equal and word in ragged
