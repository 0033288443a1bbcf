"""Compressed broadcasts: EF21-BC in numpy, exact solutions, bytes, and runs that are the same.

The heterogeneous lasso is that of ``test_heterogeneous_lasso``: eight clients in 20 dimensions.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms, privacy, uploads
from fcojax.problems import factored_loss
from fcojax.transforms import euclidean, l1
from tests.laws.test_heterogeneous_lasso import HALF_LOST, K, corrected, distance, task
from tests.support import federations

KEY = jax.random.key(3)
TOP = uploads.top_k(2)
WORK = fcojax.local_steps(2, 2)
LOSSY = fcojax.dropout(fcojax.uniform_cohort(cohort_size=3), 0.3)
BOTH = {"uplink": uploads.ef21(TOP), "downlink": uploads.ef21(TOP)}
plain_l1 = l1()


@functools.cache
def data():
    return fcojax.from_clients(federations.clients(), weights=(1.0, 2.0, 0.5, 3.0, 1.5))


@functools.cache
def built(name):
    penalty = () if name == "fed_gd" else (federations.kernel_l1(),)
    return getattr(algorithms, name)(federations.loss, *penalty)


def advanced(plan, num_rounds=6, data=data, name="fed_avg"):
    chosen = federations.algorithm(name) if "avg" in name else built(name)
    hparams = chosen.hparams_type(client_lr=0.02)
    state = fcojax.start(chosen, hparams, federations.start(), data(), KEY, plan)
    return fcojax.advance(chosen, hparams, state, data(), plan, num_rounds=num_rounds)


def vector(state):
    return federations.as_vector(state.server)


def prox_gradient(share=1.0):
    factory = algorithms.fed_mid_osp
    rates = factory.Hparams(client_lr=share / task().smoothness, penalty_scale=task().scale)
    return factory(factored_loss, euclidean(plain_l1)), rates


def ended(algorithm, rates, num_steps, num_rounds=3000, cohort=None, **links):
    plan = fcojax.Plan(fcojax.local_steps(num_steps), cohort or fcojax.everyone(), **links)
    model, _ = fcojax.run(
        algorithm,
        rates,
        jnp.zeros(20),
        task().data,
        KEY,
        plan,
        num_rounds=num_rounds,
        eval_every=num_rounds,
    )
    return model


# What it computes.


def largest(x, k):
    return np.where(np.abs(x) >= np.sort(np.abs(x))[-k], x, 0)


def gradients(x):
    """The clients' gradients, as the engine has them."""
    chosen, rates = algorithms.fed_avg(factored_loss), algorithms.fed_avg.Hparams(client_lr=1.0)
    shares = np.asarray(task().data.weights) / np.sum(task().data.weights)
    found = []
    for client in range(shares.size):
        only = np.zeros((1, shares.size), bool)
        only[0, client] = True
        plan = fcojax.Plan(fcojax.local_steps(1), fcojax.from_trace(only))
        after, _ = fcojax.run(chosen, rates, x, task().data, KEY, plan, num_rounds=1)
        found.append(np.asarray(x - after))
    return np.array(found), shares


@pytest.mark.slow
def test_it_is_ef21_bc_with_a_prox():
    """g_i += C(df_i(x) - g_i); b = C(mean g_i - g); g += b; x+ = prox(x - s g)."""
    algorithm, rates = prox_gradient()
    step, x = float(rates.client_lr), np.zeros(20)
    kept, g = np.zeros((8, 20)), np.zeros(20)
    for _ in range(5):
        slopes, shares = gradients(jnp.asarray(x))
        kept += np.array([largest(c, 2) for c in slopes - kept])
        g += largest(shares @ kept - g, 2)
        x = x - step * g
        x = np.sign(x) * np.maximum(np.abs(x) - step * task().scale, 0)
    assert np.count_nonzero(x) > 2
    found = ended(algorithm, rates, 1, num_rounds=5, **BOTH)
    np.testing.assert_allclose(found, x, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fed_avg", "fed_dual_avg", "composite_fl"])
def test_all_entries_are_no_downlink_bit_for_bit(name):
    """Also with feedback; a lossless EF21 is what it is given, to rounding."""
    plan = fcojax.Plan(WORK, LOSSY)
    expected, _ = advanced(plan, name=name)
    whole = [uploads.compressed(uploads.top_k(1.0)), uploads.ef14(uploads.top_k(1.0))]
    for downlink in whole:
        found, _ = advanced(plan._replace(downlink=downlink), name=name)
        jax.tree.map(np.testing.assert_array_equal, found.server, expected.server)
    if name != "composite_fl":
        found, _ = advanced(plan._replace(downlink=uploads.ef21(uploads.identity())), name=name)
        for leaf, wanted in zip(
            jax.tree.leaves(found.server), jax.tree.leaves(expected.server), strict=True
        ):
            np.testing.assert_allclose(leaf, wanted, rtol=1e-11, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("cohort", [fcojax.everyone(), HALF_LOST], ids=["everyone", "half, lost"])
def test_both_ways_compressed_and_exact(cohort):
    """From 2 of 20 entries up and 2 down; without feedback on the way down it is stuck."""
    algorithm, rates = prox_gradient(0.5)
    assert distance(ended(algorithm, rates, 1, cohort=cohort, **BOTH)) < 1e-10
    composite = algorithms.composite_fl(factored_loss, plain_l1)
    numbers = corrected() | {"penalty_scale": task().scale}
    numbers["client_lr"] = numbers["client_lr"] / 2
    rates = composite.hparams_type(
        **{k: v for k, v in numbers.items() if k in composite.hparams_type._fields}
    )
    feedback = uploads.ef14(TOP)
    twice = functools.partial(ended, composite, rates, K, cohort=cohort, uplink=feedback)
    assert distance(twice(downlink=feedback)) < 1e-10
    assert distance(twice(downlink=uploads.compressed(TOP))) > 1e-3


def test_bytes_are_those_of_a_broadcast_to_all_clients():
    """The encoded mean, the public sum of step sizes, and the fraction of the cohort."""
    cohort = fcojax.uniform_cohort(cohort_size=2)
    _, plain = advanced(fcojax.Plan(WORK, cohort), 1, name="fed_dual_avg")
    plan = fcojax.Plan(WORK, cohort, downlink=uploads.compressed(TOP))
    _, history = advanced(plan, 1, name="fed_dual_avg")
    each = uploads.facts(TOP, jnp.zeros(5)).num_bytes + 8 + 8
    assert int(history["bytes_down"][0]) == 5 * each == 5 * 33
    assert history["bytes_up"][0] == plain["bytes_up"][0]


@pytest.mark.slow
def test_rounds_without_a_step_broadcast_nothing():
    """Where nobody counts, what server and clients keep is unchanged."""
    silent = np.ones((4, 5), bool)
    silent[2] = False
    plan = fcojax.Plan(WORK, fcojax.from_trace(silent), **BOTH)
    states = [advanced(plan, num_rounds)[0] for num_rounds in (2, 3, 4)]
    kept = [(state.server, state.memory) for state in states]
    jax.tree.map(np.testing.assert_array_equal, kept[0], kept[1])
    before, after = (np.concatenate([*map(np.ravel, both.encoder)]) for _, both in kept[1:])
    assert np.any(before != after)


@pytest.mark.slow
def test_noise_is_broadcast_where_nobody_takes_part():
    """The server steps then too, by what is decoded; what is left out waits for its turn.

    It is kept times the fraction that the algorithm is told, which is that of an average round.
    """
    noisy = privacy.gaussian(1.0, noise=0.5)
    silent = fcojax.Plan(WORK, fcojax.coin_flips(0.01), noisy)
    expected, history = advanced(silent)
    assert history["participants"].tolist() == [0] * 6
    assert np.linalg.norm(vector(expected) - federations.as_vector(federations.start())) > 1
    found, _ = advanced(silent._replace(downlink=uploads.ef14(TOP)))
    bias, kernel = found.memory.encoder
    missing = federations.as_vector({"bias": bias, "kernel": kernel}) / 0.01
    assert np.count_nonzero(missing) == 3
    np.testing.assert_allclose(vector(found) + missing, vector(expected), rtol=1e-12)

    some = fcojax.Plan(WORK, fcojax.coin_flips(0.2), noisy)
    plain, history = advanced(some)
    assert 0 < np.count_nonzero(history["participants"]) < 6
    for link in (uploads.compressed(uploads.identity()), uploads.ef14(uploads.identity())):
        found, _ = advanced(some._replace(downlink=link))
        jax.tree.map(np.testing.assert_array_equal, found.server, plain.server)


# The same numbers.


@pytest.mark.slow
def test_chunks_devices_parts_sweeps_and_streams_are_the_run(tmp_path):
    plan, chosen = fcojax.Plan(WORK, LOSSY, **BOTH), federations.algorithm("fed_avg")
    expected, history = advanced(plan)
    spread = fcojax.devices.shard_clients(data(), fcojax.devices.client_mesh(2))
    rates = federations.hparams("fed_avg", client_lr=0.02)
    half, _ = advanced(plan, 3)
    resumed, _ = fcojax.advance(chosen, rates, half, data(), plan, num_rounds=3)
    fcojax.save_clients(data(), tmp_path / "population")
    stream = fcojax.Stream(fcojax.open_clients(tmp_path / "population"), plan, eval_every=2)
    begun = stream.start(chosen, rates, federations.start(), KEY)
    streamed, _ = stream.advance(chosen, rates, begun, num_rounds=6)
    others = [
        advanced(plan._replace(client_chunk_size=1))[0],
        advanced(plan, data=lambda: spread)[0],
        resumed,
        streamed,
    ]
    for found in others:
        np.testing.assert_allclose(vector(found), vector(expected), rtol=1e-11)
        for leaf, wanted in zip(
            *map(jax.tree.leaves, (found.memory, expected.memory)), strict=True
        ):
            np.testing.assert_allclose(leaf, wanted, rtol=1e-9, atol=1e-13)
    grid = fcojax.grid.product(type(rates), client_lr=[0.01, 0.02])
    models, swept = fcojax.sweep(
        chosen, grid, federations.start(), data(), KEY[None], plan, num_rounds=6
    )
    found = jnp.append(models["kernel"][1, 0], models["bias"][1, 0])
    np.testing.assert_allclose(found, vector(expected), rtol=1e-11)
    np.testing.assert_array_equal(swept["bytes_down"][1, 0], history["bytes_down"])


# Bad input.


@pytest.mark.parametrize(
    ("name", "downlink", "sentence"),
    [
        ("composite_fl", uploads.ef21(TOP), "and the downlink returns an estimate.* uploads.ef14"),
        ("mime", uploads.ef14(TOP), "the downlink adds what it left out .* another thing"),
        (
            "fed_gd",
            uploads.compressed(TOP),
            r"plan\.downlink is set, but .* as they were sent; pass downlink=None",
        ),
        ("fed_avg", uploads.modular_sum(0.1, 8), "the downlink is an uplink that looks at the"),
        ("fed_avg", uploads.marina(uploads.rand_k(2)), "tosses a coin .* and there is one mean"),
        ("fed_avg", uploads.compressed(uploads.top_k(6)), "k is 6, but the upload has 5 numbers"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(name, downlink, sentence):
    with pytest.raises(ValueError, match=sentence):
        advanced(fcojax.Plan(fcojax.local_steps(1), downlink=downlink), name=name)
