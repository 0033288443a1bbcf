import functools
import math
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.algorithms import ClientResult
from fcojax.engine.hparams import as_arrays
from fcojax.engine.placement.mesh import device_mesh, shard_clients
from fcojax.engine.plan import Plan, Program
from fcojax.engine.run import advance_compiled
from fcojax.engine.stepper import start as start_state
from tests.support import federations

pytestmark = pytest.mark.gate

KEY = jax.random.key(3)
PLAN = Plan(fcojax.local_epochs(1, 3), fcojax.uniform_cohort(cohort_size=3))


@functools.cache
def ragged(dtype=np.float64):
    return fcojax.from_clients(jax.tree.map(lambda x: x.astype(dtype), federations.clients()))


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


def test_a_run_compiles_one_program(caplog):
    """Small programs for the population, the rates and the start point would take 20 ms each."""
    # No other test has these sizes: programs for them would be cached.
    rng = np.random.default_rng(0)
    rows = {"x": rng.standard_normal((37, 11)), "y": rng.standard_normal(37)}
    algorithm = fcojax.algorithms.fed_avg(lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2)
    key, params = jax.random.key(0), jax.device_put(np.zeros(11))
    plan = fcojax.Plan(fcojax.local_steps(2, 3), fcojax.uniform_cohort(cohort_size=4))
    with jax.log_compiles(), caplog.at_level("WARNING"):
        data = fcojax.from_rows(rows, [7, 7, 7, 7, 9], weights="examples")
        hparams = algorithm.hparams_type(client_lr=0.1, server_lr=np.float32(0.5))
        data = fcojax.devices.spread(algorithm, hparams, params, data, plan)
        fcojax.run(algorithm, hparams, params, data, key, plan, num_rounds=1)
    found = [line for line in caplog.messages if line.startswith("Finished XLA compilation")]
    assert len(found) == 1 and "run_compiled" in found[0]
