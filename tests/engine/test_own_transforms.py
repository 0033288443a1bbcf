"""User-defined transforms: feedback, bytes, clipping with noise, and what is refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import privacy, robust, tree, uploads
from fcojax.algorithms import local_sgd
from fcojax.engine.randomness import ENCODE, purpose_key
from fcojax.extend import Noise
from fcojax.uploads import Facts, Opened, Sent, UploadTransform, chain
from tests.support import federations

KEY = jax.random.key(2)
RATES = federations.hparams("fed_avg")


@functools.cache
def data():
    return fcojax.from_clients(federations.clients())


def run(name, hparams, transform=None, cohort=None, num_rounds=6, **options):
    work, cohort = fcojax.local_steps(2, 2), cohort or fcojax.everyone()
    plan = fcojax.Plan(work, cohort, transform or chain(), **options)
    chosen = federations.algorithm(name)
    state = fcojax.start(chosen, hparams, federations.start(), data(), KEY, plan)
    state, history = fcojax.advance(chosen, hparams, state, data(), plan, num_rounds=num_rounds)
    return federations.as_vector(fcojax.read_model(chosen, hparams, state)), state, history


def zeros(payload):
    return tree.zeros_like(payload)


lossless = UploadTransform("lossless", decode=lambda at, wire, client_state: wire)


def largest_with_feedback(at, payload, residual):
    """Send the largest entry of each leaf and its index; the rest is sent later."""
    wanted = tree.add(payload, residual)
    flat = [leaf.reshape(-1) for leaf in wanted]
    places = [jnp.argmax(jnp.abs(leaf)).astype(jnp.int32) for leaf in flat]
    sent = [leaf[place] for leaf, place in zip(flat, places, strict=True)]
    kept = [
        leaf.at[place].set(0).reshape(whole.shape)
        for leaf, place, whole in zip(flat, places, wanted, strict=True)
    ]
    return Sent((sent, places), kept)


def scattered(shapes, at, wire, residual):
    return [
        jnp.zeros(shape).reshape(-1).at[place].set(value).reshape(shape)
        for shape, value, place in zip(shapes, *wire, strict=True)
    ]


@functools.cache
def largest():
    shapes = ((), (federations.DIM,))  # bias and kernel, in the order of the tree
    return UploadTransform(
        "largest",
        init=lambda payload: (zeros(payload), ()),
        send=largest_with_feedback,
        decode=functools.partial(scattered, shapes),
        facts=Facts(feeds_back=True),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", federations.NAMES)
def test_a_transform_that_does_nothing_changes_nothing(name):
    hparams = federations.hparams(name)
    plain, _, counted = run(name, hparams)
    through, _, found = run(name, hparams, lossless)
    np.testing.assert_array_equal(through, plain)
    np.testing.assert_array_equal(found["bytes_up"], counted["bytes_up"])


def test_what_feedback_keeps_is_what_was_not_sent():
    """Uploads plus residuals sum to the original uploads, also with losses."""
    step = algorithm_of_constant_uploads()
    plan = fcojax.Plan(fcojax.local_steps(1), uploads=chain(largest(), fcojax.dropout(0.3)))
    hparams, start = RATES._replace(client_lr=1.0), tree.zeros_like(federations.start())
    state = fcojax.start(step, hparams, start, data(), KEY, plan)
    state, history = fcojax.advance(step, hparams, state, data(), plan, num_rounds=40)
    counted = history["participants"] - history["lost"]
    assert 0 < int(np.sum(history["lost"])) < 100
    residual = np.concatenate([np.asarray(leaf).reshape(5, -1) for leaf in state.residuals[0]], 1)
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


def clip(at, payload, client_state, server_state):
    return Opened(tree.scale(jnp.minimum(1, at.hparams.clip / tree.norm(payload)), payload))


def sum_with_noise(expected, at, found, weights, server_state):
    """Sum over a fixed number of clients and add Gaussian noise; the server always steps."""
    count, deviation = weights.cohort_weight / expected, at.hparams.noise / expected
    keys = jax.random.split(at.private_key, len(found.mean))
    noisy = [
        leaf * count + deviation * jax.random.normal(k, leaf.shape, leaf.dtype)
        for leaf, k in zip(found.mean, keys, strict=True)
    ]
    return found._replace(mean=noisy, step=jnp.array(True)), server_state


@functools.cache
def private(expected, noisy=True):
    return UploadTransform(
        "private",
        open=clip,
        receive=functools.partial(sum_with_noise, expected),
        bound=lambda hparams, norm: jnp.minimum(hparams.clip, norm),
        facts=Facts(noisy=noisy, needs_sum=True),
    )


@pytest.mark.slow
def test_clipped_sums_have_a_fixed_denominator():
    """One round in numpy: every displacement clipped to the norm, and the sum divided by three."""
    hparams, tight = Private(client_lr=0.05, clip=0.1), federations.as_vector
    once = functools.partial(run, "fed_avg", cohort=fcojax.coin_flips(0.6), num_rounds=1)
    found, _, history = once(hparams, private(3.0))
    count = int(history["participants"][0])
    assert 0 < count != 3
    first = tight(federations.start())
    assert np.linalg.norm(found - first) <= 0.1 * count / 3 + 1e-12
    _, wide, _ = once(hparams._replace(clip=1e9), private(3.0))
    plain, _, _ = once(RATES)
    np.testing.assert_allclose(tight(wide.server) - first, (plain - first) * count / 3, rtol=1e-12)


@pytest.mark.slow
def test_numbers_of_a_transform_sweep_like_any_other():
    grid = fcojax.grid.product(Private, client_lr=[0.05], clip=[0.1, 1.0, 10.0])
    plan = fcojax.Plan(fcojax.local_steps(2, 2), uploads=private(5.0))
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
        alone, _, _ = run("fed_avg", Private(client_lr=0.05, clip=norm), private(5.0))
        np.testing.assert_allclose(models["kernel"][index, 0], alone[:-1], rtol=1e-12)


def test_public_parts_pass_untouched():
    """Local SGD's step count is correct with a transform that deletes all it sends."""
    silence = lossless._replace(decode=lambda at, wire, client_state: zeros(wire))
    chosen = local_sgd(federations.loss)
    plan = fcojax.Plan(fcojax.local_steps(3), uploads=silence)
    state = fcojax.start(chosen, local_sgd.Hparams(), federations.start(), data(), KEY, plan)
    state, _ = fcojax.advance(chosen, local_sgd.Hparams(), state, data(), plan, num_rounds=4)
    assert int(state.server.step) == 12
    np.testing.assert_array_equal(
        federations.as_vector(state.server.params), federations.as_vector(federations.start())
    )


def spoilt(probability):
    """Return which uploads are not finite in which round, and a transform that does it."""

    def spoil(at, payload, client_state):
        bad = jax.random.bernoulli(at.key, probability)
        return Sent([jnp.where(bad, jnp.nan, leaf) for leaf in payload])

    def bad(index, client):
        encode_key = jax.random.fold_in(purpose_key(KEY, ENCODE, index), client)
        return jax.random.bernoulli(encode_key, probability)

    rounds, clients = jnp.arange(12), jnp.arange(len(federations.RAGGED))
    table = jax.vmap(jax.vmap(bad, (None, 0)), (0, None))(rounds, clients)
    return np.asarray(table), lossless._replace(send=spoil)


@pytest.mark.slow
@pytest.mark.parametrize("probability", [0.3, 0.8])
def test_clients_that_send_nan_are_as_if_they_had_not_been_there(probability):
    """One, half or all uploads in random rounds: model, states and counts."""
    table, spoiling = spoilt(probability)
    assert {1, 3} <= set(table.sum(axis=1)) or {3, 5} <= set(table.sum(axis=1))
    chosen = fcojax.algorithms.scaffold(federations.loss, federations.kernel_l1())
    hparams = chosen.hparams_type(client_lr=0.05, penalty_scale=0.1)

    def run(cohort, transform):
        plan = fcojax.Plan(fcojax.local_steps(2, 2), cohort, transform)
        state = fcojax.start(chosen, hparams, federations.start(), data(), KEY, plan)
        return fcojax.advance(chosen, hparams, state, data(), plan, num_rounds=12)

    found, history = run(fcojax.everyone(), spoiling)
    np.testing.assert_array_equal(history["dropped"], table.sum(axis=1))
    absent, _ = run(fcojax.from_trace(~table), chain())
    for leaf, wanted in zip(
        jax.tree.leaves(found._replace(key=())),
        jax.tree.leaves(absent._replace(key=())),
        strict=True,
    ):
        np.testing.assert_allclose(leaf, wanted, rtol=1e-11, atol=1e-13)


def sums(found):
    return [jnp.sum(leaf) for leaf in found.mean]


def returning(change):
    """Return a transform whose ``receive`` changes what the server keeps."""
    return lossless._replace(
        init=lambda payload: ((), jnp.zeros(())),
        receive=lambda at, found, weights, state: (found, change(state)),
    )


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lossless._replace(decode=lambda at, wire, state: [x[None] for x in wire]), "decode"),
        (
            lossless._replace(decode=lambda at, wire, state: jax.tree.map(jnp.int32, wire)),
            "decode",
        ),
        (lossless._replace(decode=lambda at, wire, state: wire[:-1]), "decode"),
        (lossless._replace(send=lambda at, payload, state: Sent(payload, jnp.zeros(2))), "send"),
        (
            lossless._replace(
                send=lambda at, payload, state: Sent(payload, num_bytes=jnp.sum(payload[1] != 0))
            ),
            "num_bytes",
        ),
        (
            lossless._replace(send=lambda at, payload, state: Sent(payload, weight=jnp.ones(()))),
            "leaves_out",
        ),
        (
            UploadTransform("sum", receive=lambda at, f, w, s: (f._replace(mean=sums(f)), s)),
            "chain",
        ),
        (
            UploadTransform("row", send=lambda at, payload, s: Sent([x[None] for x in payload])),
            "chain",
        ),
        (
            UploadTransform("one more", open=lambda at, payload, *s: Opened([*payload, 1.0])),
            "chain",
        ),
        (returning(lambda state: state[None]), "receive"),
        (returning(lambda state: None), "receive"),
    ],
)
def test_what_a_transform_returns_has_the_form_of_what_it_was_given(wrong, sentence):
    """A payload of another shape would broadcast in the mean."""
    with pytest.raises(ValueError, match=sentence):
        run("fed_avg", RATES, wrong)


@pytest.mark.parametrize(
    ("finish", "noun"),
    [
        (lambda h, total, weights, memory, key: ([jnp.sum(x) for x in total], memory), "mean"),
        (lambda h, total, weights, memory, key: (total, jnp.zeros(3)), "memory"),
    ],
)
def test_a_mean_or_a_memory_of_another_form_is_refused(finish, noun):
    with pytest.raises(ValueError, match=f"finish .* {noun}"):
        run("fed_avg", RATES, aggregator=fcojax.Aggregator(finish=finish))


def test_a_size_may_depend_on_the_round_s_coin():
    """MARINA's bytes depend on the payload, and so does the history."""
    _, _, history = run("fed_avg", RATES, uploads.marina(uploads.rand_k(1), 0.5), num_rounds=12)
    whole, compressed = 5 * 8 * (federations.DIM + 1), 5 * 8
    assert set(history["bytes_up"].tolist()) == {whole, compressed}


TOP, NOISE = uploads.compressed(uploads.top_k(1)), privacy.gaussian(1.0, noise=1.0)
KNOWN, GRID = uploads.inverse_probability("known"), uploads.modular_sum(0.1, 8)
MEDIAN = robust.averaged(robust.median())
LONGER = UploadTransform("longer", open=lambda at, payload, *states: Opened(tree.scale(9, payload)))
HEAVIER = UploadTransform("heavier", open=lambda at, payload, *states: Opened(payload, 9.0))


@pytest.mark.parametrize(
    ("transforms", "aggregator", "named"),
    [
        ((TOP, uploads.ef14(uploads.top_k(1))), {}, ["compressed", "ef14"]),
        ((NOISE, privacy.modular_gaussian(1.0, 1.0, 0.1, 8)), {}, ["gaussian", "modular_gaussian"]),
        ((NOISE, TOP), {}, ["gaussian", "compressed"]),  # compression grows norms
        ((uploads.ef21(uploads.top_k(1)), NOISE), {}, ["ef21", "noise"]),
        ((KNOWN, uploads.ef21(uploads.top_k(1))), {}, ["inverse_probability", "ef21"]),
        ((KNOWN, NOISE), {}, ["inverse_probability", "gaussian"]),
        ((LONGER, NOISE), {}, ["longer", "gaussian"]),
        ((NOISE, HEAVIER), {}, ["heavier", "noise"]),
        ((GRID, robust.norm_bound(1.0)), {}, ["modular_sum", "norm_bound"]),
        ((robust.norm_bound(1.0), GRID), {}, ["modular_sum", "norm_bound"]),
        ((GRID,), {"aggregator": MEDIAN}, ["modular_sum", "aggregator"]),
        ((NOISE,), {"aggregator": MEDIAN}, ["gaussian", "aggregator"]),
        ((KNOWN,), {"aggregator": MEDIAN}, ["inverse_probability", "aggregator"]),
    ],
)
def test_a_chain_that_would_run_and_be_wrong_is_refused(transforms, aggregator, named):
    with pytest.raises(ValueError) as error:
        run("fed_avg", RATES, chain(*transforms), **aggregator)
    assert all(name in str(error.value) for name in named)


def test_noise_of_one_s_own_is_accounted_if_it_is_known():
    def spent(transform):
        plan = fcojax.Plan(fcojax.local_steps(1), uploads=transform)
        return privacy.epsilon(plan, 5, 10, 1e-3)

    with pytest.raises(ValueError, match="noise"):
        spent(private(5.0))
    assert spent(private(5.0, Noise(2.0))) == spent(privacy.gaussian(1.0, noise=2.0))


@pytest.mark.parametrize("name", ["participants", "dropped", "refused"])
def test_a_count_of_the_engine_is_no_name_of_a_transform(name):
    taken = UploadTransform("mine", facts=Facts(leaves_out=name))
    with pytest.raises(ValueError, match=f"leaves_out='{name}'"):
        run("fed_avg", federations.hparams("fed_avg"), taken)
