import functools
import math
import re
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import tree
from fcojax.algorithms import Algorithm, ClientResult
from fcojax.engine.hparams import as_arrays
from fcojax.engine.members import COHORT
from fcojax.engine.placement.mesh import device_mesh, shard_clients
from fcojax.engine.plan import Plan, Program
from fcojax.engine.round import one_round
from fcojax.engine.run import advance_compiled
from fcojax.engine.stepper import start as start_state
from fcojax.engine.tally import RoundContext, Rows
from tests.support import federations

pytestmark = pytest.mark.gate

KEY = jax.random.key(3)
PLAN = Plan(fcojax.local_epochs(1, 3), fcojax.uniform_cohort(cohort_size=3))
SAMPLED = {"work": fcojax.local_epochs(1, 3), "cohort": fcojax.uniform_cohort(cohort_size=3)}


@functools.cache
def ragged(dtype=np.float64):
    return fcojax.from_clients(jax.tree.map(lambda x: x.astype(dtype), federations.clients()))


class Scale(NamedTuple):
    scale: float = 1.0


def counting():
    """Clients count the rounds in which they take part; the server counts the same uploads."""

    def client_update(hparams, message, client, local, key):
        return ClientResult(client + 1, jnp.ones(()), {"size": local.num_examples.astype(float)})

    return Algorithm(
        init=lambda hparams, params: (params, jnp.zeros(())),
        broadcast=lambda hparams, server: server,
        client_update=client_update,
        server_update=lambda hparams, server, mean, fraction, key: server + mean * fraction,
        model=lambda hparams, server: server,
    )


def poisoned(bad_clients):
    """Return FedAvg in which given clients upload NaN and would set their states to NaN."""
    honest = federations.algorithm("fed_avg")
    bad = jnp.asarray(bad_clients, jnp.int32)

    def init(hparams, params):
        return honest.init(hparams, params)[0], jnp.zeros(())

    def client_update(hparams, message, client, local, key):
        result = honest.client_update(hparams, message, (), local, key)
        spoiled = jnp.any(local.num_examples == bad)
        upload = jax.tree.map(lambda leaf: jnp.where(spoiled, jnp.nan, leaf), result.upload)
        state = jnp.where(spoiled, jnp.nan, client + 1)
        return ClientResult(state, upload, {"loss": jnp.where(spoiled, jnp.nan, 1.0)})

    return honest._replace(init=init, client_update=client_update)


@pytest.mark.slow
def test_scan_equals_a_python_loop():
    name = "fed_dual_avg"
    chosen, rates = federations.algorithm(name), as_arrays(federations.hparams(name))
    data = ragged()
    server, client = chosen.init(rates, federations.start())
    plan = Plan(SAMPLED["work"], SAMPLED["cohort"])

    @jax.jit
    def step(server, rows, index):
        return one_round(RoundContext(chosen, plan, rates, data, KEY, index, KEY), server, rows)

    rows, looped = Rows(client, ()), []
    for index in range(5):
        server, rows, *_ = step(server, rows, jnp.int32(index))
        looped.append(federations.as_vector(chosen.model(rates, server)))
    scanned = federations.models(chosen, rates, data, KEY, num_rounds=5, **SAMPLED)
    np.testing.assert_allclose(scanned, looped, rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("eval_every", [2, 5])
def test_evaluating_less_often_changes_no_model(eval_every):
    chosen, rates = federations.algorithm("fed_mid"), federations.hparams("fed_mid")
    every = federations.models(chosen, rates, ragged(), KEY, num_rounds=10, **SAMPLED)
    some = federations.models(
        chosen, rates, ragged(), KEY, num_rounds=10, eval_every=eval_every, **SAMPLED
    )
    np.testing.assert_allclose(some, every[eval_every - 1 :: eval_every], rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-6)])
@pytest.mark.parametrize("cohort", [fcojax.everyone(), fcojax.uniform_cohort(cohort_size=4)])
def test_chunks_do_not_change_the_result(cohort, dtype, tolerance):
    chosen, rates = federations.algorithm("fed_dual_avg"), federations.hparams("fed_dual_avg")
    start = jax.tree.map(lambda leaf: leaf.astype(dtype), federations.start())
    results = [
        fcojax.run(
            chosen,
            rates,
            start,
            ragged(dtype),
            KEY,
            num_rounds=6,
            plan=fcojax.Plan(fcojax.local_epochs(1, 3), cohort, client_chunk_size=chunk),
        )[0]
        for chunk in (1, 2, None)
    ]
    for other in results[1:]:
        chex.assert_trees_all_equal_dtypes(other, start)
        chex.assert_trees_all_close(other, results[0], rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("num_devices", [1, 2])
@pytest.mark.parametrize("cohort", [fcojax.everyone(), fcojax.uniform_cohort(cohort_size=3)])
def test_a_mesh_changes_nothing_but_where_the_work_is_done(cohort, num_devices):
    chosen, rates = federations.algorithm("fed_dual_avg"), federations.hparams("fed_dual_avg")
    options = {"num_rounds": 6, "work": fcojax.local_epochs(1, 3), "cohort": cohort}
    single = federations.models(chosen, rates, ragged(), KEY, **options)
    sharded = shard_clients(ragged(), device_mesh(clients=num_devices))
    assert sharded.sizes.tolist() == ragged().sizes.tolist()
    spread = federations.models(chosen, rates, sharded, KEY, **options)
    np.testing.assert_allclose(spread, single, rtol=1e-12, atol=1e-13)


def test_client_states_on_a_mesh_stay_with_their_clients():
    plan = Plan(fcojax.local_steps(1), fcojax.uniform_cohort(cohort_size=2))
    chosen, rates = counting(), Scale()

    def counts(data):
        state = start_state(chosen, rates, jnp.zeros(()), data, KEY, plan)
        return federations.block(chosen, plan, 9, rates, data, state)

    single, metrics = counts(ragged())
    spread, spread_metrics = counts(shard_clients(ragged(), device_mesh(clients=2)))
    assert single.clients.sum() == 18 and metrics["participants"] == 18
    assert np.array_equal(spread.clients[:5], single.clients)
    assert spread.server == pytest.approx(float(single.server))
    assert spread_metrics["size"] == pytest.approx(float(metrics["size"]))


def test_only_the_mean_upload_and_scalars_cross_devices():
    chosen, rates = federations.algorithm("fed_dual_avg"), federations.hparams("fed_dual_avg")
    rates, data = as_arrays(rates), shard_clients(ragged(), device_mesh(clients=2))
    plan = Plan(fcojax.local_steps(2, 2), fcojax.uniform_cohort(cohort_size=3))
    state = start_state(chosen, rates, federations.start(), data, KEY, plan)
    text = (
        advance_compiled.lower(Program(chosen, plan, None, 1, 4), rates, data, state, None)
        .compile()
        .as_text()
    )
    collectives = [
        line
        for line in text.splitlines()
        if any(f" {op}(" in line or f" {op}-start(" in line for op in COLLECTIVES)
    ]
    assert collectives, "the devices must exchange something"
    sizes = [size for line in collectives for size in _crossing_sizes(line)]
    model_size = federations.DIM + 1
    assert all(" all-reduce" in line for line in collectives)
    assert max(sizes) <= model_size
    # One model, its elapsed time and a few scalars, but no array of the size of a cohort.
    assert sum(sizes) <= model_size + 8


COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")


def _crossing_sizes(line):
    """Return the size of each array that a collective of the compiled program returns."""
    shapes = line.split(" = ", 1)[1].split(" all-", 1)[0]
    for dims in re.findall(r"[a-z]+\d+\[([\d,]*)\]", shapes):
        yield math.prod(int(dim) for dim in dims.split(",") if dim)


def test_the_same_key_gives_the_same_run_and_another_key_another():
    chosen, rates = federations.algorithm("fed_mid"), federations.hparams("fed_mid")
    first, again = (
        federations.models(chosen, rates, ragged(), KEY, **SAMPLED, num_rounds=5) for _ in range(2)
    )
    other = federations.models(chosen, rates, ragged(), jax.random.key(4), **SAMPLED, num_rounds=5)
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


def test_client_states_are_written_back_for_members_only():
    chosen, data = counting(), ragged()
    plan = Plan(fcojax.local_steps(1), fcojax.uniform_cohort(cohort_size=2))
    members = [
        fcojax.uniform_cohort(cohort_size=2)
        .draw(jax.random.fold_in(KEY, COHORT), jnp.int32(r), 5)
        .members
        for r in range(7)
    ]
    state = start_state(chosen, Scale(), jnp.zeros(()), data, KEY, plan)
    state, metrics = federations.block(chosen, plan, 7, Scale(), data, state)
    expected = np.bincount(np.concatenate(members), minlength=5)
    assert state.clients.tolist() == expected.tolist()
    assert metrics["participants"] == 14 and metrics["dropped"] == 0
    assert state.server == pytest.approx(7 * 2 / 5)  # fraction of the population, summed
    sizes = np.asarray(data.sizes)
    assert metrics["size"] == pytest.approx(sizes[np.concatenate(members)].mean())


@pytest.mark.parametrize("chunk", [1, None])
def test_non_finite_uploads_weigh_nothing_and_are_counted(chunk):
    """A client that returns NaN has the same effect as an absent one."""
    sizes = np.asarray(ragged().sizes)
    bad = 2
    honest = federations.algorithm("fed_avg")
    rates = federations.hparams("fed_avg")
    options = {"num_rounds": 4, "plan": Plan(fcojax.local_steps(2), client_chunk_size=chunk)}
    spoiled, history = fcojax.run(
        poisoned([sizes[bad]]), rates, federations.start(), ragged(), KEY, **options
    )
    rest = fcojax.from_clients([c for m, c in enumerate(federations.clients()) if m != bad])
    clean, _ = fcojax.run(honest, rates, federations.start(), rest, KEY, **options)
    chex.assert_trees_all_close(spoiled, clean, rtol=1e-12)
    assert history["dropped"].tolist() == [1] * 4
    assert history["participants"].tolist() == [5] * 4
    assert np.allclose(history["loss"], 1.0)


def test_a_round_without_a_finite_upload_changes_nothing():
    chosen, rates, data = poisoned(federations.RAGGED), federations.hparams("fed_avg"), ragged()
    with pytest.warns(UserWarning, match="round 1") as caught:
        model, history = fcojax.run(
            chosen, rates, federations.start(), data, KEY, num_rounds=3, plan=fcojax.local_steps(1)
        )
        jax.block_until_ready(history)
        assert not caught  # the next call warns, and names the line of this one
        start_state(chosen, rates, federations.start(), data, KEY, fcojax.local_steps(1))
    assert [warning.filename for warning in caught] == [__file__]
    chex.assert_trees_all_equal(model, federations.start())
    assert history["dropped"].tolist() == [5, 5, 5]
    plan = Plan(fcojax.local_steps(1), fcojax.everyone())
    state = start_state(chosen, rates, federations.start(), data, KEY, plan)
    state, _ = federations.block(chosen, plan, 1, rates, data, state)
    assert state.clients.tolist() == [0.0] * 5  # a dropped client keeps its state


@pytest.mark.slow
def test_client_metrics_are_averaged_over_the_rounds_with_a_counted_client():
    chosen, data = counting(), from_equal_clients()
    plan = Plan(fcojax.local_steps(1), fcojax.coin_flips(0.05))
    state = start_state(chosen, Scale(), jnp.zeros(()), data, KEY, plan)
    _, metrics = federations.block(chosen, plan, 20, Scale(), data, state)
    assert 0 < metrics["participants"] < 20
    assert metrics["size"] == pytest.approx(4.0)  # every client has four examples
    empty = state._replace(key=jax.random.key(1))
    _, nobody = federations.block(chosen, plan, 1, Scale(), data, empty)
    assert nobody["participants"] == 0 and np.isnan(nobody["size"])


def from_equal_clients():
    return fcojax.from_clients([{"x": np.ones(4)}] * 5)


@pytest.mark.slow
def test_an_empty_cohort_changes_nothing():
    chosen, rates = federations.algorithm("fed_dual_avg"), federations.hparams("fed_dual_avg")
    history = federations.models(
        chosen,
        rates,
        ragged(),
        KEY,
        num_rounds=40,
        work=fcojax.local_steps(1),
        cohort=fcojax.coin_flips(0.05),
    )
    _, counts = fcojax.run(
        chosen,
        rates,
        federations.start(),
        ragged(),
        KEY,
        num_rounds=40,
        plan=fcojax.Plan(fcojax.local_steps(1), fcojax.coin_flips(0.05)),
    )
    empty = np.flatnonzero(np.asarray(counts["participants"])[1:] == 0) + 1
    assert 20 < len(empty) < 40
    assert np.array_equal(history[empty], history[empty - 1])


@pytest.mark.slow
def test_a_schedule_has_a_value_for_each_round():
    chosen, data = federations.algorithm("fed_mid"), ragged()
    rates = np.array([0.05, 0.04, 0.02, 0.01])
    scheduled = federations.hparams("fed_mid")._replace(client_lr=fcojax.schedule(rates))
    models = federations.models(chosen, scheduled, data, KEY, num_rounds=4, **SAMPLED)
    plan = Plan(SAMPLED["work"], SAMPLED["cohort"])
    state = start_state(chosen, scheduled, federations.start(), data, KEY, plan)
    for index, rate in enumerate(rates):
        now = federations.hparams("fed_mid", client_lr=rate)
        state, _ = federations.block(chosen, plan, 1, now, data, state)
        model = federations.as_vector(chosen.model(now, state.server))
        np.testing.assert_allclose(models[index], model, rtol=1e-13)


@pytest.mark.slow
def test_a_run_can_be_mapped_and_differentiated():
    """vmap over rates equals separate runs; derivatives in a rate equal difference quotients."""
    chosen = federations.algorithm("fed_dual_avg")

    def final(rate):
        rates = federations.hparams("fed_dual_avg")._replace(client_lr=rate)
        model, _ = fcojax.run(chosen, rates, federations.start(), ragged(), KEY, PLAN, num_rounds=3)
        return tree.vdot(model, model)

    rates = jnp.array([0.01, 0.03])
    np.testing.assert_allclose(jax.vmap(final)(rates), [final(rate) for rate in rates], rtol=1e-12)
    step = 1e-6
    slope = (final(0.02 + step) - final(0.02 - step)) / (2 * step)
    assert float(jax.grad(final)(0.02)) == pytest.approx(float(slope), rel=1e-6)


def test_nothing_leaves_the_device_inside_a_run():
    chosen = federations.algorithm("fed_mid")
    rates, start = as_arrays(federations.hparams("fed_mid")), federations.start()
    state = fcojax.start(chosen, rates, start, ragged(), KEY, PLAN)
    with jax.transfer_guard_device_to_host("disallow"):
        fcojax.advance(chosen, rates, state, ragged(), PLAN, num_rounds=4, eval_every=2)


def test_bytes_are_read_off_the_messages():
    params = federations.start()  # 4 + 1 numbers of 8 bytes
    work = fcojax.local_steps(1, 2)
    sent = {
        name: federations.bytes_each(
            federations.algorithm(name), federations.hparams(name), params, ragged(), work
        )
        for name in ("fed_avg", "fed_mid", "fed_dual_avg")
    }
    # FedMiD sends the elapsed time up; FedDualAvg sends it both ways.
    assert sent == {"fed_avg": (40, 40), "fed_mid": (40, 48), "fed_dual_avg": (48, 48)}
