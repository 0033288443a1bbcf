"""User-defined codecs and aggregators: feedback, bytes, clipping with noise, and refusals."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import privacy, tree, uploads
from fcojax.algorithms import local_sgd
from fcojax.engine.aggregator import Aggregate, Noise, Term
from fcojax.engine.randomness import ENCODE, purpose_key
from tests.support import federations

KEY = jax.random.key(2)
RATES = federations.hparams("fed_avg")


@functools.cache
def data():
    return fcojax.from_clients(federations.clients())


def run(name, hparams, codec=None, aggregator=None, cohort=None, num_rounds=6):
    plan = fcojax.Plan(fcojax.local_steps(2, 2), cohort or fcojax.everyone(), codec)
    if aggregator is not None:
        plan = plan._replace(aggregator=aggregator)
    chosen = federations.algorithm(name)
    state = fcojax.start(chosen, hparams, federations.start(), data(), KEY, plan)
    state, history = fcojax.advance(chosen, hparams, state, data(), plan, num_rounds=num_rounds)
    return federations.as_vector(fcojax.read_model(chosen, hparams, state)), state, history


def zeros(payload):
    return tree.zeros_like(payload)


lossless = fcojax.Codec(
    init=lambda payload: (),
    encode=lambda hparams, payload, residual, key, round_key: (payload, residual),
    decode=lambda encoded: encoded,
)


def largest_with_feedback(hparams, payload, residual, key, round_key):
    """Send the largest entry of each leaf and its index; the rest is sent later."""
    wanted = tree.add(payload, residual)
    flat = [leaf.reshape(-1) for leaf in wanted]
    places = [jnp.argmax(jnp.abs(leaf)).astype(jnp.int32) for leaf in flat]
    sent = [leaf[place] for leaf, place in zip(flat, places, strict=True)]
    kept = [
        leaf.at[place].set(0).reshape(whole.shape)
        for leaf, place, whole in zip(flat, places, wanted, strict=True)
    ]
    return (sent, places), kept


def scattered(shapes, encoded):
    return [
        jnp.zeros(shape).reshape(-1).at[place].set(value).reshape(shape)
        for shape, value, place in zip(shapes, *encoded, strict=True)
    ]


@functools.cache
def largest():
    shapes = ((), (federations.DIM,))  # bias and kernel, in the order of the tree
    return fcojax.Codec(zeros, largest_with_feedback, functools.partial(scattered, shapes))


@pytest.mark.slow
@pytest.mark.parametrize("name", federations.NAMES)
def test_a_codec_that_does_nothing_changes_nothing(name):
    hparams = federations.hparams(name)
    plain, _, counted = run(name, hparams)
    through, _, found = run(name, hparams, lossless)
    np.testing.assert_array_equal(through, plain)
    np.testing.assert_array_equal(found["bytes_up"], counted["bytes_up"])


def test_what_feedback_keeps_is_what_was_not_sent():
    """Uploads plus residuals sum to the original uploads, also with losses."""
    lossy = fcojax.dropout(fcojax.everyone(), 0.3)
    step = algorithm_of_constant_uploads()
    plan = fcojax.Plan(fcojax.local_steps(1), lossy, largest())
    hparams, start = RATES._replace(client_lr=1.0), tree.zeros_like(federations.start())
    state = fcojax.start(step, hparams, start, data(), KEY, plan)
    state, history = fcojax.advance(step, hparams, state, data(), plan, num_rounds=40)
    counted = history["participants"] - history["lost"]
    assert 0 < int(np.sum(history["lost"])) < 100
    residual = np.concatenate([np.asarray(leaf).reshape(5, -1) for leaf in state.residuals], 1)
    wanted = np.asarray(state.clients)[:, None] * DIRECTION
    sent = wanted - residual
    # The server divides by the number counted; multiplied by it, the sum is all that was sent.
    assert float(np.sum(counted)) == np.asarray(state.clients).sum()
    np.testing.assert_allclose(state.server["sum"], sent.sum(axis=0), atol=1e-12)


DIRECTION = np.array([0.5, 1.0, -2.0, 3.0, 0.25])


def algorithm_of_constant_uploads():
    """Clients count how often their upload counted, and always upload the same value."""

    def client_update(hparams, message, client, local, key):
        upload = {"bias": jnp.asarray(DIRECTION[0]), "kernel": jnp.asarray(DIRECTION[1:])}
        return fcojax.algorithms.ClientResult(client + 1, upload, {})

    def server_update(hparams, server, mean, fraction, key):
        total = jnp.append(mean["bias"], mean["kernel"]) * fraction * 5
        return {"model": server["model"], "sum": server["sum"] + total}

    return fcojax.algorithms.Algorithm(
        init=lambda hparams, params: (
            {"model": params, "sum": jnp.zeros(federations.DIM + 1)},
            jnp.zeros(()),
        ),
        broadcast=lambda hparams, server: server["model"],
        client_update=client_update,
        server_update=server_update,
        model=lambda hparams, server: server["model"],
    )


def test_bytes_are_counted_after_encoding():
    _, _, plain = run("fed_avg", RATES, num_rounds=1)
    _, _, compressed = run("fed_avg", RATES, largest(), num_rounds=1)
    assert plain["bytes_up"][0] == 5 * 8 * (federations.DIM + 1)
    assert compressed["bytes_up"][0] == 5 * 2 * (8 + 4)  # two leaves: a number and its index
    assert compressed["bytes_down"][0] == plain["bytes_down"][0]


Private = fcojax.extended(fcojax.algorithms.fed_avg.Hparams, "Private", clip=1.0, noise=0.0)


def clip(hparams, payload, memory):
    return Term(tree.scale(jnp.minimum(1, hparams.clip / tree.norm(payload)), payload))


def sum_with_noise(expected, hparams, total, weights, memory, key):
    """Sum over a fixed number of clients and add Gaussian noise; the server always steps."""
    count = weights.cohort_weight / expected
    keys = jax.random.split(key, len(total))
    noisy = [
        leaf * count + hparams.noise / expected * jax.random.normal(k, leaf.shape, leaf.dtype)
        for leaf, k in zip(total, keys, strict=True)
    ]
    return Aggregate(noisy, weights.fraction, memory, step=jnp.array(True))


@functools.cache
def private(expected, noisy=True):
    finish = functools.partial(sum_with_noise, expected)
    return fcojax.Aggregator(term=clip, finish=finish, noisy=noisy)


@pytest.mark.slow
def test_clipped_sums_have_a_fixed_denominator():
    """One round in numpy: every displacement clipped to the norm, and the sum divided by three."""
    hparams, tight = Private(client_lr=0.05, clip=0.1), federations.as_vector
    once = functools.partial(run, "fed_avg", cohort=fcojax.coin_flips(0.6), num_rounds=1)
    found, _, history = once(hparams, aggregator=private(3.0))
    count = int(history["participants"][0])
    assert 0 < count != 3
    first = tight(federations.start())
    assert np.linalg.norm(found - first) <= 0.1 * count / 3 + 1e-12
    _, wide, _ = once(hparams._replace(clip=1e9), aggregator=private(3.0))
    plain, _, _ = once(RATES)
    np.testing.assert_allclose(tight(wide.server) - first, (plain - first) * count / 3, rtol=1e-12)


@pytest.mark.slow
def test_noise_is_added_also_when_nobody_is_there():
    hparams, nobody = Private(client_lr=0.05, noise=0.1), fcojax.coin_flips(1e-9)
    found, _, history = run("fed_avg", hparams, None, private(3.0), nobody, 1)
    assert history["participants"][0] == 0
    assert not np.allclose(found, federations.as_vector(federations.start()))


@pytest.mark.slow
def test_noise_has_its_scale_whoever_takes_part():
    """Uploads clipped to zero leave noise with the same variance for any number of clients."""
    chosen, keys = federations.algorithm("fed_avg"), jax.random.split(KEY, 300)
    grid = fcojax.grid.product(Private, client_lr=[0.05], clip=[1e-12], noise=[0.3])
    plan = fcojax.Plan(fcojax.local_steps(2, 2), fcojax.coin_flips(0.6), aggregator=private(3.0))
    start = federations.start()
    models, history = fcojax.sweep(chosen, grid, start, data(), keys, plan, num_rounds=1)
    steps = jax.tree.map(lambda after, before: after[0] - before[None], models, start)
    squares = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(steps)]) ** 2 / 0.1**2
    assert np.unique(history["participants"]).size > 3
    assert abs(squares.mean() - 1) < 5 * np.sqrt(2 / squares.size)


@pytest.mark.slow
def test_numbers_of_an_aggregator_sweep_like_any_other():
    grid = fcojax.grid.product(Private, client_lr=[0.05], clip=[0.1, 1.0, 10.0])
    plan = fcojax.Plan(fcojax.local_steps(2, 2), aggregator=private(5.0))
    models, _ = fcojax.sweep(
        federations.algorithm("fed_avg"),
        grid,
        federations.start(),
        data(),
        KEY[None],
        plan,
        num_rounds=6,
    )
    for index, norm in enumerate((0.1, 1.0, 10.0)):
        alone, _, _ = run("fed_avg", Private(client_lr=0.05, clip=norm), None, private(5.0))
        np.testing.assert_allclose(models["kernel"][index, 0], alone[:-1], rtol=1e-12)


def test_public_parts_pass_untouched():
    """Local SGD's step count is correct with a codec that deletes all it encodes."""
    silence = lossless._replace(decode=zeros)
    chosen = local_sgd(federations.loss)
    plan = fcojax.Plan(fcojax.local_steps(3), codec=silence)
    state = fcojax.start(chosen, local_sgd.Hparams(), federations.start(), data(), KEY, plan)
    state, _ = fcojax.advance(chosen, local_sgd.Hparams(), state, data(), plan, num_rounds=4)
    assert int(state.server.step) == 12
    np.testing.assert_array_equal(
        federations.as_vector(state.server.params), federations.as_vector(federations.start())
    )


@pytest.mark.slow
def test_the_same_codec_on_a_mesh():
    plain, _, _ = run("fed_avg", RATES, largest(), None, fcojax.uniform_cohort(cohort_size=3))
    plan = fcojax.Plan(fcojax.local_steps(2, 2), fcojax.uniform_cohort(cohort_size=3), largest())
    spread = fcojax.devices.shard_clients(data(), fcojax.devices.client_mesh(2))
    model, _ = fcojax.run(
        federations.algorithm("fed_avg"),
        RATES,
        federations.start(),
        spread,
        KEY,
        plan,
        num_rounds=6,
    )
    np.testing.assert_allclose(federations.as_vector(model), plain, rtol=1e-12)


def spoilt(probability):
    """Return which uploads are not finite in which round, and a codec that makes them so."""

    def spoil(hparams, payload, residual, key, round_key):
        bad = jax.random.bernoulli(key, probability)
        return [jnp.where(bad, jnp.nan, leaf) for leaf in payload], residual

    def bad(index, client):
        encode_key = jax.random.fold_in(purpose_key(KEY, ENCODE, index), client)
        return jax.random.bernoulli(encode_key, probability)

    rounds, clients = jnp.arange(12), jnp.arange(len(federations.RAGGED))
    table = jax.vmap(jax.vmap(bad, (None, 0)), (0, None))(rounds, clients)
    return np.asarray(table), lossless._replace(encode=spoil)


@pytest.mark.slow
@pytest.mark.parametrize("probability", [0.3, 0.8])
def test_clients_that_send_nan_are_as_if_they_had_not_been_there(probability):
    """One, half or all uploads in random rounds: model, states and counts."""
    table, codec = spoilt(probability)
    assert {1, 3} <= set(table.sum(axis=1)) or {3, 5} <= set(table.sum(axis=1))
    chosen = fcojax.algorithms.scaffold(federations.loss, federations.kernel_l1())
    hparams = chosen.hparams_type(client_lr=0.05, penalty_scale=0.1)

    def run(cohort, codec):
        plan = fcojax.Plan(fcojax.local_steps(2, 2), cohort, codec)
        state = fcojax.start(chosen, hparams, federations.start(), data(), KEY, plan)
        return fcojax.advance(chosen, hparams, state, data(), plan, num_rounds=12)

    found, history = run(fcojax.everyone(), codec)
    np.testing.assert_array_equal(history["dropped"], table.sum(axis=1))
    absent, _ = run(fcojax.from_trace(~table), None)
    for leaf, wanted in zip(
        jax.tree.leaves(found._replace(key=())),
        jax.tree.leaves(absent._replace(key=())),
        strict=True,
    ):
        np.testing.assert_allclose(leaf, wanted, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ("replaced", "sentence"),
    [
        ({"decode": lambda encoded: [leaf[None] for leaf in encoded]}, "decode .* payload"),
        ({"decode": lambda encoded: [leaf.astype(jnp.float32) for leaf in encoded]}, "decode"),
        ({"decode": lambda encoded: encoded[:-1]}, "decode"),
        (
            {"encode": lambda hparams, payload, kept, *keys: (payload, jnp.zeros(2))},
            r"encode .* residual .*float64\[2\]",
        ),
        (
            {"num_bytes": lambda hparams, encoded: jnp.sum(encoded[1] != 0)},
            "num_bytes .* depends on the payload",
        ),
    ],
)
def test_what_a_codec_returns_has_the_form_of_what_it_was_given(replaced, sentence):
    """A payload of another shape would broadcast in the mean."""
    with pytest.raises(ValueError, match=sentence):
        run("fed_avg", RATES, lossless._replace(**replaced))


def test_a_mean_of_another_form_is_refused():
    def finish(hparams, total, weights, memory, key):
        return Aggregate([jnp.sum(leaf) for leaf in total], weights.fraction, memory, True)

    with pytest.raises(ValueError, match="finish .* mean"):
        run("fed_avg", RATES, None, fcojax.Aggregator(finish=finish))


def test_a_size_may_depend_on_the_round_s_coin():
    """MARINA's bytes depend on the payload, and so does the history."""
    _, _, history = run("fed_avg", RATES, *uploads.marina(uploads.rand_k(1), 0.5), num_rounds=12)
    whole, compressed = 5 * 8 * (federations.DIM + 1), 5 * 8
    assert set(history["bytes_up"].tolist()) == {whole, compressed}


def test_half_of_a_pair_is_refused():
    codec, aggregator = uploads.ef21(uploads.top_k(1))
    with pytest.raises(ValueError, match="do not belong together"):
        run("fed_avg", RATES, codec)
    for other in (None, uploads.compressed(uploads.top_k(1))):
        with pytest.raises(ValueError, match="do not belong together"):
            run("fed_avg", RATES, other, aggregator)


def test_noise_of_one_s_own_is_accounted_if_it_is_known():
    def spent(aggregator):
        plan = fcojax.Plan(fcojax.local_steps(1), aggregator=aggregator)
        return privacy.epsilon(plan, 5, 10, 1e-3)

    with pytest.raises(ValueError, match="noise"):
        spent(private(5.0))
    assert spent(private(5.0, Noise(2.0))) == spent(privacy.gaussian(1.0, noise=2.0))
