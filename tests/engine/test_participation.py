"""Samplers and losses in the engine: who works and which uploads count, on any mesh."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fcojax
from fcojax.algorithms import Algorithm, ClientResult
from fcojax.engine.members import COHORT
from fcojax.engine.participation.samplers import Sampler
from fcojax.engine.plan import Plan
from fcojax.engine.stepper import start
from fcojax.uploads import Facts, Sent, UploadTransform, transform
from tests.support import federations

KEY = jax.random.key(3)
NUM_ROUNDS, NUM_CLIENTS = 12, len(federations.RAGGED)
TRACE = [[0, 3], [], [1, 2, 3, 4], [2]]
SAMPLERS = {
    "everyone": fcojax.everyone(),
    "uniform": fcojax.uniform_cohort(cohort_size=2),
    "weighted": fcojax.weighted_cohort(cohort_size=3, power=2.0),
    "coins": fcojax.coin_flips(0.4),
    "unequal coins": fcojax.coin_flips([0.8, 0.3, 0.4, 0.5, 0.6]),
    "held": fcojax.held(fcojax.coin_flips(0.4), rounds=2),
    "cyclic": fcojax.cyclic(num_groups=2),
    "some of a cycle": fcojax.cyclic(num_groups=2, cohort_size=1),
    "trace": fcojax.from_trace(TRACE),
}

LOSSES = fcojax.dropout(0.4)
# A sampler and what happens to uploads.
CASES = {name: (sampler, transform.NOTHING) for name, sampler in SAMPLERS.items()}
CASES |= {"trace, lossy": (SAMPLERS["trace"], LOSSES)}

# Chunk sizes, and numbers of devices.
QUICK = (("trace, lossy", (1, 2)), ("cyclic", (2, None)))


class Stamp(NamedTuple):
    """Return a power of two for each round, so that a sum of stamps determines its rounds."""

    stamp: fcojax.engine.hparams.Schedule | jax.Array


STAMPS = Stamp(fcojax.schedule(2.0 ** np.arange(NUM_ROUNDS)))


def client_update(hparams, message, client, local, key):
    del message, local, key
    return ClientResult(client + hparams.stamp, hparams.stamp, {"one": jnp.ones(())})


STAMPING = Algorithm(
    init=lambda hparams, params: (params, jnp.zeros(())),
    broadcast=lambda hparams, server: server,
    client_update=client_update,
    server_update=lambda hparams, server, mean, fraction, key: server + fraction * mean,
    model=lambda hparams, server: server,
)


@functools.cache
def data(num_devices=None):
    single = fcojax.from_clients(federations.clients())
    if num_devices is None:
        return single
    return fcojax.devices.shard_clients(single, fcojax.devices.device_mesh(clients=num_devices))


def arrivals(losses, num_rounds, num_clients=NUM_CLIENTS, key=KEY):
    """Return which uploads a transform lets arrive in a run, [rounds, clients]."""
    arrives = functools.partial(federations.arrives, losses, key)
    rounds, clients = jnp.arange(num_rounds), jnp.arange(num_clients)
    return np.asarray(jax.vmap(jax.vmap(arrives, (None, 0)), (0, None))(rounds, clients))


@functools.cache
def drawn(name):
    """Return whether each client works, and whether its upload counts, [rounds, clients]."""
    key, sizes = jax.random.fold_in(KEY, COHORT), data().sizes
    sampler, losses = CASES[name]
    draw = jax.jit(lambda index: sampler.draw(key, index, NUM_CLIENTS, sizes))
    works = np.zeros((NUM_ROUNDS, NUM_CLIENTS), bool)
    for index in range(NUM_ROUNDS):
        cohort = draw(jnp.int32(index))
        members = np.arange(NUM_CLIENTS) if cohort.members is None else np.asarray(cohort.members)
        present = np.asarray(cohort.present)
        works[index, members[present]] = True
    return works, works & arrivals(losses, NUM_ROUNDS)


def ran(name, chunk, num_devices):
    """Return the state after all rounds and the metrics of each round."""
    plan = Plan(fcojax.local_steps(1), *CASES[name], client_chunk_size=chunk)
    state = start(STAMPING, STAMPS, jnp.zeros(()), data(num_devices), KEY, plan)
    state, metrics = fcojax.advance(
        STAMPING, STAMPS, state, data(num_devices), plan, num_rounds=NUM_ROUNDS
    )
    return state, jax.tree.map(np.asarray, metrics)


@pytest.mark.parametrize(
    ("name", "chunk", "num_devices"),
    [
        pytest.param(name, *place, marks=() if (name, place) in QUICK else pytest.mark.slow)
        for name in CASES
        for place in ((1, 2), (2, None), (None, 2), (2, 1))
    ],
)
def test_the_engine_does_what_the_sampler_and_the_losses_say(name, chunk, num_devices):
    """Counted clients change their states, others do not, and the server sums the uploads.

    Both are called separately, so neither chunks nor devices may change who takes part.
    """
    works, counted = drawn(name)
    state, metrics = ran(name, chunk, num_devices)
    assert np.array_equal(state.clients[:NUM_CLIENTS], np.asarray(STAMPS.stamp.values) @ counted)
    expected = np.asarray(STAMPS.stamp.values) @ counted.mean(axis=1)
    assert float(state.server) == pytest.approx(expected, rel=1e-14)
    assert np.array_equal(metrics["participants"], works.sum(axis=1))
    assert np.array_equal(metrics["lost"], (works & ~counted).sum(axis=1))
    assert np.array_equal(
        metrics["one"], np.where(counted.any(axis=1), 1.0, np.nan), equal_nan=True
    )
    assert metrics["dropped"].sum() == 0


def leaves(kind):
    """Return the subclasses of a class without subclasses of their own."""
    below = kind.__subclasses__()
    return {leaf for one in below for leaf in leaves(one)} if below else {kind}


def test_every_sampler_is_in_the_table():
    classes = {kind for kind in leaves(Sampler) if kind.__module__.startswith("fcojax.engine.")}
    assert classes == {type(sampler) for sampler in SAMPLERS.values()}


def test_losses_are_independent_over_clients_and_rounds():
    num_rounds, probability = 5_000, 0.3
    lost = ~arrivals(fcojax.dropout(probability), num_rounds)
    for client in range(NUM_CLIENTS):
        count = int(lost[:, client].sum())
        assert stats.binomtest(count, num_rounds, probability).pvalue > 1e-3
    keep = 1 - probability
    expected = [keep * keep, keep * probability, probability * keep, probability**2]
    pairs = {"two clients": (lost[:, 0], lost[:, 1]), "two rounds": (lost[1:, 0], lost[:-1, 0])}
    for name, (one, other) in pairs.items():
        counts = np.bincount(one * 2 + other, minlength=4)
        assert stats.chisquare(counts, one.size * np.array(expected)).pvalue > 1e-3, name


def test_a_name_of_one_s_own_is_a_count():
    """Counts are summed; the mean of a metric skips the rounds in which no client counts."""

    def send(at, payload, state):
        return Sent(payload, state, at.round % 4 != 3)

    tired = UploadTransform("tired", send=send, facts=Facts(leaves_out="tired"))
    plan = Plan(fcojax.local_steps(1), uploads=tired)
    hparams = Stamp(jnp.ones(()))
    state = start(STAMPING, hparams, jnp.zeros(()), data(), KEY, plan)
    state, metrics = federations.block(STAMPING, plan, 8, hparams, data(), state)
    assert state.server == 6 and state.clients.tolist() == [6.0] * NUM_CLIENTS
    assert metrics["tired"] == 2 * NUM_CLIENTS and metrics["one"] == 1
