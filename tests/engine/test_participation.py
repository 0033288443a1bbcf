"""Every sampler driven by the engine: who worked and who was heard, wherever the work is done."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.algorithms import Algorithm, ClientResult
from fcojax.engine.luck import COHORT
from fcojax.engine.plan import Plan
from fcojax.engine.stepper import start
from tests import federations, oracles

KEY = jax.random.key(3)
NUM_ROUNDS, NUM_CLIENTS = 12, len(federations.RAGGED)
TRACE = [[0, 3], [], [1, 2, 3, 4], [2]]
SAMPLERS = {
    "everyone": fcojax.everyone(),
    "uniform": fcojax.uniform_cohort(2),
    "weighted": fcojax.weighted_cohort(3, 2.0),
    "coins": fcojax.coin_flips(0.4),
    "cyclic": fcojax.cyclic(2),
    "some of a cycle": fcojax.cyclic(2, cohort_size=1),
    "markov": fcojax.markov(0.3, 0.2),
    "some of markov": fcojax.markov(0.3, 0.2, cohort_size=2),
    "trace": fcojax.from_trace(TRACE),
    "everyone, lossy": fcojax.dropout(fcojax.everyone(), 0.4),
    "uniform, lossy": fcojax.dropout(fcojax.uniform_cohort(3), 0.4),
    "markov, lossy": fcojax.dropout(fcojax.markov(0.2, 0.3), 0.4),
}

OTHER_PLACES = [(1, None), (2, None), (None, None), (2, 1), (None, 2)]
PLACES = [(1, 2), *(pytest.param(*place, marks=pytest.mark.slow) for place in OTHER_PLACES)]


class Stamp(NamedTuple):
    """A number per round, each a power of two, so that a sum of stamps tells its rounds."""

    stamp: fcojax.engine.hparams.Schedule | jax.Array


STAMPS = Stamp(fcojax.schedule(2.0 ** np.arange(NUM_ROUNDS)))


def client_update(hparams, message, client, local, key):
    del message, local, key
    return ClientResult(client + hparams.stamp, hparams.stamp, {"one": jnp.ones(())})


STAMPING = Algorithm(
    init=lambda hparams, params: (params, jnp.zeros(())),
    broadcast=lambda hparams, server: server,
    client_update=client_update,
    server_update=lambda hparams, server, mean, cohort, key: server + cohort.fraction * mean,
    model=lambda hparams, server: server,
)


@functools.cache
def data(num_devices=None):
    single = fcojax.from_clients(federations.clients())
    if num_devices is None:
        return single
    return fcojax.shard_clients(single, fcojax.client_mesh(num_devices))


@functools.cache
def drawn(name):
    """Whether each client works, and whether it is heard, [rounds, clients], asked one by one."""
    key, sizes = jax.random.fold_in(KEY, COHORT), data().sizes
    draw = jax.jit(lambda index: SAMPLERS[name](key, index, NUM_CLIENTS, sizes))
    works, heard = np.zeros((2, NUM_ROUNDS, NUM_CLIENTS), bool)
    for index in range(NUM_ROUNDS):
        cohort = draw(jnp.int32(index))
        members = np.arange(NUM_CLIENTS) if cohort.members is None else np.asarray(cohort.members)
        present = np.asarray(cohort.weights) > 0
        works[index, members[present]] = True
        arrives = present if cohort.arrives is None else present & np.asarray(cohort.arrives)
        heard[index, members[arrives]] = True
    return works, heard


def ran(name, chunk, num_devices):
    """The state after all rounds and the metrics of each."""
    plan = Plan(fcojax.local_steps(1), SAMPLERS[name], client_chunk_size=chunk)
    state = start(STAMPING, STAMPS, jnp.zeros(()), data(num_devices), KEY, plan)
    state, metrics = fcojax.advance(STAMPING, STAMPS, data(num_devices), state, plan, NUM_ROUNDS)
    return state, jax.tree.map(np.asarray, metrics)


@pytest.mark.parametrize(("chunk", "num_devices"), PLACES)
@pytest.mark.parametrize("name", SAMPLERS)
def test_the_engine_does_what_the_sampler_says(name, chunk, num_devices):
    """Those who are heard move, all others stay as they were, and the server hears what arrives.

    The sampler is asked by itself, so neither chunks nor devices change who takes part.
    """
    works, heard = drawn(name)
    assert not (heard & ~works).any()
    state, metrics = ran(name, chunk, num_devices)
    assert np.array_equal(state.clients[:NUM_CLIENTS], np.asarray(STAMPS.stamp.values) @ heard)
    expected = np.asarray(STAMPS.stamp.values) @ heard.mean(axis=1)
    assert float(state.server) == pytest.approx(expected, rel=1e-14)
    assert np.array_equal(metrics["participants"], works.sum(axis=1))
    assert np.array_equal(metrics["lost"], (works & ~heard).sum(axis=1))
    assert np.array_equal(metrics["one"], np.where(heard.any(axis=1), 1.0, np.nan), equal_nan=True)
    assert metrics["dropped"].sum() == 0


def test_the_samplers_of_this_table_leave_somebody_out():
    """Else the law above would be empty."""
    for name in set(SAMPLERS) - {"everyone", "everyone, lossy"}:
        works, _ = drawn(name)
        assert works.any(axis=0).sum() > 1 and not works.all(axis=0).any(), name
    for name in SAMPLERS:
        works, heard = drawn(name)
        assert (works != heard).any() == ("lossy" in name), name


def test_unreliable_clients_against_the_oracle():
    """Uneven work, chains that come and go, lost uploads: the rounds written out in numpy."""
    name, work = "fed_dual_avg", fcojax.local_epochs(3, 2, fewest=1)
    cohort, rates = SAMPLERS["markov, lossy"], federations.hparams(name)
    found = federations.models(
        federations.algorithm(name), rates, data(), KEY, num_rounds=8, work=work, cohort=cohort
    )
    rounds = federations.replay(data(), KEY, 8, work, cohort)
    expected = oracles.simulate(
        name, np.asarray(federations.as_vector(federations.start())), federations.clients(),
        rounds, *rates,
    )  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_when_every_upload_is_lost_nothing_moves():
    plan = Plan(fcojax.local_steps(1), fcojax.dropout(fcojax.everyone(), 1 - 1e-9))
    hparams = Stamp(jnp.ones(()))
    state = start(STAMPING, hparams, jnp.zeros(()), data(), KEY, plan)
    state, metrics = federations.block(STAMPING, plan, 2, hparams, data(), state)
    assert state.server == 0 and state.clients.tolist() == [0.0] * NUM_CLIENTS
    assert metrics["lost"] == metrics["participants"] == 2 * NUM_CLIENTS
    assert np.isnan(metrics["one"])


def test_an_upload_that_is_not_finite_is_dropped_whether_it_arrives_or_not():
    def spoiled(hparams, message, client, local, key):
        result = client_update(hparams, message, client, local, key)
        bad = local.num_examples == federations.RAGGED[0]
        return result._replace(upload=jnp.where(bad, jnp.nan, result.upload))

    algorithm = STAMPING._replace(client_update=spoiled)
    plan = Plan(fcojax.local_steps(1), fcojax.dropout(fcojax.everyone(), 0.5))
    hparams = Stamp(jnp.ones(()))
    state = start(algorithm, hparams, jnp.zeros(()), data(), KEY, plan)
    state, metrics = federations.block(algorithm, plan, 40, hparams, data(), state)
    first, *others = state.clients.tolist()
    assert first == 0 and min(others) > 0 and max(others) < 40
    lost, dropped, all_sent = (int(metrics[n]) for n in ("lost", "dropped", "participants"))
    assert sum(others) + lost + dropped == all_sent
    assert metrics["dropped"] == 40
    heard = metrics["participants"] - metrics["dropped"] - metrics["lost"]
    assert float(state.server) * NUM_CLIENTS == pytest.approx(int(heard))
