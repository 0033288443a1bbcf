"""TAMUNA and FedComLoc against slow loops: cohorts, minibatches, weights and lost uploads.

The loops keep the control variates h of the papers, of every client and in full; the library keeps
what a client can know. Randomness alone is the run's: cohorts, minibatches, who owns which
coordinate, and the coins of a compressor.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import uploads
from fcojax.algorithms import fed_com_loc, tamuna
from fcojax.extend import CLIENT, SERVER, purpose_key
from tests.support import federations

KEY, START = jax.random.key(8), np.array([1.0, -0.6, 0.3, 0.8])
LR, STEPS, ROUNDS = 0.15, 3, 12
DIM, CLIENTS = START.size, len(federations.RAGGED)
WORK = fcojax.local_steps(STEPS, 2)
COHORTS = {
    "sampled and lost": fcojax.dropout(fcojax.uniform_cohort(cohort_size=3), 0.3),
    "coin flips": fcojax.coin_flips(0.4),
    "everyone": fcojax.everyone(),
}


@functools.cache
def population(weights):
    return fcojax.from_clients(federations.quadratic_clients(), weights)


def shares(data):
    weights = np.asarray(data.weights)
    return weights / weights.sum()


def gradient(x, member, rows, weights):
    client, each = federations.quadratic_clients()[member], weights / weights.sum()
    return np.einsum("n,nij,j->i", each, client["A"][rows], x) - each @ client["c"][rows]


def models(algorithm, data, cohort):
    _, history = fcojax.run(
        algorithm,
        algorithm.hparams_type(client_lr=LR),
        jnp.asarray(START),
        data,
        KEY,
        fcojax.Plan(WORK, cohort),
        num_rounds=ROUNDS,
        observe=lambda hparams, w, context: {"w": w},
    )
    return np.asarray(history["w"])


def owned_by_all(index, owners):
    """1 where a client owns a coordinate: coordinate j goes to places q j, ..., q j + q - 1."""
    seed = 0
    if index:
        seed = jax.random.bits(purpose_key(KEY, SERVER, index - 1), (), jnp.uint32)
    order = jax.random.permutation(jax.random.key(seed), jnp.arange(CLIENTS, dtype=jnp.int32))
    place = np.asarray(order)
    owned = np.zeros((CLIENTS, DIM))
    for coordinate in range(DIM):
        chosen = [(owners * coordinate + k) % CLIENTS for k in range(owners)]
        owned[:, coordinate] = np.isin(place, chosen)
    return owned


def slow_tamuna(rounds, share, owners):
    """The model is such that the control variates that are due always add up to zero."""
    rate = CLIENTS * (owners - 1) / (owners * (CLIENTS - 1)) / (LR * STEPS)
    w, control = START, np.zeros((CLIENTS, DIM))
    last, mask = np.tile(START, (CLIENTS, 1)), np.ones((CLIENTS, DIM))
    found = []
    for index, cohort in enumerate(rounds):
        owned = owned_by_all(index, owners)
        due = control + rate * mask * (w - last)
        np.testing.assert_allclose(share @ due, 0, atol=1e-12)
        ends = {}
        for member, weight, batches in cohort:
            x = w
            for rows, real in batches:
                if real.sum():
                    x = x - LR * (gradient(x, member, rows, real) - due[member])
            if weight > 0:
                ends[member] = x
        for member, x in ends.items():
            control[member], last[member], mask[member] = due[member], x, owned[member]
        step = sum(share[m] * owned[m] * (x - w) for m, x in ends.items())
        # Where nobody owns a coordinate the step is zero, but for rounding in the weight.
        weight = share @ mask
        w = w + step / np.where(weight > 1e-15, weight, 1)
        found.append(w)
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, "examples"])
@pytest.mark.parametrize("owners", [2, 4])
@pytest.mark.parametrize("cohort", COHORTS)
def test_tamuna_is_the_slow_loop(cohort, owners, weights):
    data, cohort = population(weights), COHORTS[cohort]
    algorithm = tamuna(federations.quadratic, num_clients=CLIENTS, num_owners=owners)
    rounds = federations.replay(data, KEY, ROUNDS, WORK, cohort)
    expected = slow_tamuna(rounds, shares(data), owners)
    assert np.abs(np.diff(expected, axis=0)).max() > 1e-2
    np.testing.assert_allclose(models(algorithm, data, cohort), expected, rtol=0, atol=1e-12)


def largest(x, key):
    return np.where(np.abs(x) >= np.sort(np.abs(x))[-2], x, 0)


def through(compressor, x, key):
    """By the library's compressor, for one that is random."""
    encoded = compressor.encode((), jnp.asarray(x), key)
    return np.asarray(compressor.decode((), encoded, key, jnp.asarray(x)))


COMPRESSORS = {
    "top_k": (uploads.top_k(2), largest),
    "rand_k": (uploads.rand_k(2), functools.partial(through, uploads.rand_k(2))),
}


def slow_fed_com_loc(rounds, share, compress, place):
    """Every client's control variate after every round, also of those that were absent."""
    delta = LR * STEPS
    w, control, found = START, np.zeros((CLIENTS, DIM)), []
    for index, cohort in enumerate(rounds):
        ends = {}
        for member, weight, batches in cohort:
            key = jax.random.fold_in(purpose_key(KEY, CLIENT, index), member)
            x = w
            for step, (rows, real) in enumerate(batches):
                seen = compress(x, jax.random.fold_in(key, step)) if place == "gradient" else x
                x = x - LR * (gradient(seen, member, rows, real) - control[member])
            if weight > 0:
                ends[member] = compress(x, key) if place == "upload" else x
        after = w
        if ends:
            of_cohort = sum(share[m] for m in ends)
            mean = sum(share[m] * (x - w) for m, x in ends.items()) / of_cohort
            after = w - delta * (share @ control) + mean
            if place == "broadcast":
                after = compress(after, purpose_key(KEY, SERVER, index))
        for member in range(CLIENTS):
            end = ends.get(member, w)
            control[member] = control[member] + (after - end) / delta
        w = after
        found.append(w)
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["upload", "gradient", "broadcast"])
@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("cohort", COHORTS)
def test_fed_com_loc_is_the_slow_loop(cohort, compressor, place):
    data, cohort = population("examples"), COHORTS[cohort]
    chosen, compress = COMPRESSORS[compressor]
    algorithm = fed_com_loc(federations.quadratic, compressor=chosen, compresses=place)
    rounds = federations.replay(data, KEY, ROUNDS, WORK, cohort)
    expected = slow_fed_com_loc(rounds, shares(data), compress, place)
    assert np.abs(np.diff(expected, axis=0)).max() > 1e-2
    size = np.abs(expected).max()
    np.testing.assert_allclose(models(algorithm, data, cohort), expected, rtol=0, atol=1e-12 * size)
