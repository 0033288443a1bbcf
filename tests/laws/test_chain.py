"""Laws of what happens to an upload: transforms crossed with ways to run and with methods.

The oracle is a round as a loop: one client after another, one transform after another, without jit,
vmap or masks. Every pair of a transform and a way to run, and of a transform and a method, has a
case; a third of them run by default.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms, attacks, clock, privacy, robust, tree, uploads
from fcojax.engine.client_loop import local_handle
from fcojax.engine.forms import split
from fcojax.engine.randomness import (
    AGGREGATE,
    CLIENT,
    ENCODE,
    SERVER,
    SHARED,
    draw_cohort,
    folded_by,
    purpose_key,
)
from fcojax.engine.transform import At, Received, RoundWeights
from fcojax.transforms import euclidean, l1
from fcojax.uploads import Facts, Opened, Sent, UploadTransform, chain
from tests.support import federations

ROUNDS, CLIENTS, DIM = 4, 5, 4
WEIGHTS = np.array([1.0, 2.0, 0.5, 3.0, 1.5])
KEY = jax.random.key(8)
TOP, RAND = uploads.top_k(2), uploads.rand_k(2)
SECONDS = np.array([[1.0, 5.0, 2.0, 9.0, 3.0], [1.0, 2.0, 5.0, 3.0, 9.0]])
COINS = (0.9, 0.6, 0.6, 0.8, 0.7)
LOSS, L1 = federations.loss, l1()
MEAN = fcojax.Aggregator()
# Their server adds `fraction` times the mean to a sum over all clients.
READING_FRACTION = ("scaffold", "prox_skip", "fed_dyn", "composite_fl")
SEEING = attacks.little_is_enough(2.0)


class Row(NamedTuple):
    """One transform, and what it runs with."""

    uploads: UploadTransform
    aggregator: fcojax.Aggregator = MEAN
    equal: bool = False  # whether clients have equal weights


@functools.cache
def transforms():
    noise = privacy.gaussian(0.3, noise=0.5)
    return {
        "compressed": Row(uploads.compressed(uploads.qsgd(7))),
        "ef14": Row(uploads.ef14(TOP)),
        "ef21": Row(uploads.ef21(TOP)),
        "momentum": Row(uploads.momentum(0.8)),
        "momentum, ef21": Row(chain(uploads.momentum(0.8), uploads.ef21(TOP))),
        "econtrol": Row(uploads.econtrol(TOP, 0.2)),
        "diana": Row(uploads.diana(RAND)),
        "marina": Row(uploads.marina(RAND, 0.4)),
        "modular_sum": Row(uploads.modular_sum(1e-3, 22), equal=True),
        "gaussian": Row(noise),
        "bands": Row(privacy.gaussian(0.3, noise=0.5, bands=(1.0, 0.5, 0.25))),
        "adaptive": Row(privacy.gaussian(privacy.adaptive_clip(start=0.3, noise=2.0), 0.5)),
        "norm_bound": Row(fcojax.norm_bound(0.4)),
        "norm_quantile": Row(fcojax.norm_quantile(0.6, start=0.4)),
        "dropout": Row(fcojax.dropout(0.4)),
        "deadline": Row(clock.deadline(SECONDS, 4.0)),
        "known": Row(uploads.inverse_probability("known")),
        "estimated": Row(uploads.inverse_probability("estimated")),
        "attacked": Row(
            attacks.attacked((1,), attacks.normal_noise(3.0)), robust.averaged(robust.median())
        ),
        "seeing all": Row(
            attacks.attacked((1, 4), SEEING),
            attacks.seeing_all(SEEING, robust.averaged(robust.trimmed_mean(0.3))),
        ),
        "compressed, noise, bound, lost": Row(
            chain(uploads.compressed(uploads.qsgd(7)), noise, fcojax.norm_bound(0.9))
        ),
        "ef21, trimmed mean": Row(
            chain(attacks.attacked((1,), attacks.scaled(-2.0)), uploads.ef21(TOP)),
            robust.averaged(robust.trimmed_mean(0.25)),
        ),
        "compressed, 1/q, lost": Row(
            chain(
                uploads.compressed(uploads.qsgd(7)),
                uploads.inverse_probability("known"),
                fcojax.dropout(0.3),
            )
        ),
        "ef14, late, lost": Row(
            chain(uploads.ef14(TOP), clock.deadline(SECONDS[0], 4.0), fcojax.dropout(0.3))
        ),
    }


@functools.cache
def methods():
    def rates(factory, **numbers):
        own = {"client_lr": 0.02, "penalty_scale": 0.02} | numbers
        fields = factory.Hparams._fields
        return factory.Hparams(**{name: own[name] for name in own if name in fields})

    return {
        "fed_avg": (algorithms.fed_avg(LOSS), rates(algorithms.fed_avg)),
        "fed_dual_avg": (
            algorithms.fed_dual_avg(LOSS, euclidean(L1)),
            rates(algorithms.fed_dual_avg),
        ),
        "scaffold": (
            algorithms.scaffold(LOSS, L1, prox="feedback"),
            rates(algorithms.scaffold),
        ),
        "prox_skip": (
            algorithms.prox_skip(LOSS, L1),
            rates(algorithms.prox_skip, communication_probability=0.5),
        ),
        "fed_dyn": (algorithms.fed_dyn(LOSS, L1), rates(algorithms.fed_dyn, prox_step=0.3)),
        "composite_fl": (algorithms.composite_fl(LOSS, L1), rates(algorithms.composite_fl)),
    }


@functools.cache
def population(equal):
    return fcojax.from_clients(federations.clients(), weights=None if equal else WEIGHTS)


def point():
    return {"kernel": jnp.full(DIM, 0.1), "bias": jnp.zeros(())}


def planned(row, cohort, **sizes):
    work = fcojax.local_steps(2, 2)
    return fcojax.Plan(work, cohort, row.uploads, row.aggregator, **sizes)


def slow_run(algorithm, hparams, plan, data, num_rounds=ROUNDS):
    """Return the model and the counts of each round, by a loop."""
    ts, weights = plan.uploads.transforms, np.asarray(data.weights)
    by_rule = plan.aggregator != MEAN
    server, first = algorithm.init(hparams, point())
    update = jax.jit(algorithm.client_update)
    states, kept, memory, rule_memory, history = [first] * data.num_clients, None, None, None, []
    for r in range(num_rounds):
        draw = draw_cohort(plan, data, KEY, r)
        members = np.asarray(draw.indices)[np.asarray(draw.present)].tolist()
        message, shared = algorithm.broadcast(hparams, server), purpose_key(KEY, SHARED, r)
        counts = dict.fromkeys(("lost", "late", "left_out"), 0)
        terms, after = [], {}
        for m in members:
            index, client = jnp.int32(r), jnp.int32(m)
            local = local_handle(data, plan.work, KEY, index, client, client)
            result = update(
                hparams,
                message,
                states[m],
                local,
                jax.random.fold_in(purpose_key(KEY, CLIENT, r), m),
            )
            payload, public, form = split(result.upload)
            if kept is None:
                zeros = [jnp.zeros_like(leaf) for leaf in payload]
                kept = [[one.init(zeros)[0] for one in ts]] * data.num_clients
                memory = [one.init(zeros)[1] for one in ts]
            own = jax.random.fold_in(purpose_key(KEY, ENCODE, r), m)
            wire, new, out = payload, [], None
            for place, (one, state) in enumerate(zip(ts, kept[m], strict=True)):
                key = own if one.decode else jax.random.fold_in(own, len(ts) - place)
                at = At(hparams, index, client, key, shared, by_rule=by_rule)
                sent = one.send(at, wire, state)
                wire, new = sent.wire, [*new, sent.client_state]
                if sent.weight is not None and not bool(sent.weight):
                    out = one.facts.leaves_out  # the last one counts
            at = At(
                hparams,
                index,
                client,
                round_key=shared,
                by_rule=by_rule,
                inclusion=functools.partial(inclusion, plan, m),
            )
            for one, state in zip(ts, kept[m], strict=True):
                wire = one.decode(at, wire, state) if one.decode else wire
            factor = 1.0
            for one, state, own_memory in reversed(list(zip(ts, kept[m], memory, strict=True))):
                if one.open:
                    found = one.open(at, wire, state, own_memory)
                    wire = found.payload
                    if found.weight is not None and one.facts.leaves_out:
                        out = out or (None if bool(found.weight) else one.facts.leaves_out)
                    elif found.weight is not None:
                        factor = factor * float(found.weight)
            if rule_memory is None:
                rule_memory = plan.aggregator.init([jnp.zeros_like(leaf) for leaf in wire])
            term = plan.aggregator.term(hparams, wire, rule_memory)
            if out is not None:
                counts[out] += 1
                continue
            terms.append((m, weights[m] * factor, term, public))
            after[m] = result.state, new
        cohort, everyone = weights[members].sum(), weights.sum()
        share = sum(w for _, w, _, _ in terms) / cohort if members else 0.0
        arrived = len(members) - counts["lost"] - counts["late"]
        given = RoundWeights(
            *map(jnp.asarray, (share, cohort, everyone, len(terms), arrived)),
            jnp.asarray(plan.cohort.mean_size(data.num_clients) / data.num_clients * everyone),
            jnp.asarray(weights.max()),
        )
        noise_key = purpose_key(folded_by(KEY, hparams), AGGREGATE, r)
        places = np.asarray(draw.indices).tolist()
        shapes = jax.eval_shape(lambda given: given, term)
        collected = plan.aggregator.collect.start(shapes, len(places))
        publics = jax.tree.map(jnp.zeros_like, public)
        for m, w, one, its_public in terms:
            place, own_share = jnp.array([places.index(m)]), jnp.array([w / cohort])
            one = jax.tree.map(lambda leaf: leaf[None], one)
            collected = plan.aggregator.collect.add(collected, one, own_share, place)
            publics = tree.add_scaled(publics, w / cohort, its_public)
        publics = tree.scale(1 / share if share > 0 else 1.0, publics)
        mean = collected
        if not any(one.facts.needs_sum for one in ts):
            key = purpose_key(KEY, AGGREGATE, r)
            mean, rule_memory = plan.aggregator.finish(hparams, collected, given, rule_memory, key)
        found = Received(mean, publics, given.fraction, given.count > 0)
        if not terms and any(one.facts.noisy for one in ts):
            found = found._replace(public=public)
        for place, one in reversed(list(enumerate(ts))):
            if one.receive:
                key = noise_key if one.facts.noisy else jax.random.fold_in(noise_key, place)
                at = At(hparams, jnp.int32(r), round_key=shared, private_key=key, by_rule=by_rule)
                found, memory[place] = one.receive(at, found, given, memory[place])
        if bool(found.step):
            upload = form.join(found.mean, found.public)
            server = algorithm.server_update(
                hparams, server, upload, found.fraction, purpose_key(KEY, SERVER, r)
            )
        kept = list(kept)
        for m, (state, new) in after.items():
            states[m], kept[m] = state, new
        history.append({"participants": len(members)} | counts)
    return algorithm.model(hparams, server), history


def inclusion(plan, m):
    """The probability that client m is counted, from the numbers above."""
    share = COINS[m] if isinstance(plan.cohort, type(coins())) else 3 / CLIENTS
    for one in plan.uploads.transforms:
        if one.name.startswith("dropout"):
            share = share * (1 - float(one.name[8:-1]))
        if one.name.startswith("deadline"):
            share = share * float((SECONDS[0] <= 4.0)[m])
    return jnp.asarray(share)


@functools.cache
def coins():
    return fcojax.coin_flips(COINS)


def one_way(algorithm, hparams, plan, data):
    return fcojax.run(algorithm, hparams, point(), data, KEY, plan, num_rounds=ROUNDS)


def in_chunks(algorithm, hparams, plan, data):
    return one_way(algorithm, hparams, plan._replace(client_chunk_size=2), data)


def in_a_sweep(algorithm, hparams, plan, data):
    grid = jax.tree.map(lambda x: jnp.stack([2 * jnp.asarray(x), jnp.asarray(x)]), hparams)
    model, history = fcojax.sweep(
        algorithm, grid, point(), data, KEY[None], plan, num_rounds=ROUNDS
    )
    return jax.tree.map(lambda leaf: leaf[1, 0], (model, history))


def from_disk(algorithm, hparams, plan, data):
    stream = fcojax.Stream(jax.tree.map(np.asarray, data), plan, eval_every=1)
    state = stream.start(algorithm, hparams, point(), KEY)
    state, history = stream.advance(algorithm, hparams, state, num_rounds=ROUNDS)
    return fcojax.read_model(algorithm, hparams, state), history


def resumed(algorithm, hparams, plan, data):
    state = fcojax.start(algorithm, hparams, point(), data, KEY, plan)
    histories = []
    for num_rounds in (1, ROUNDS - 1):
        state, history = fcojax.advance(
            algorithm, hparams, state, data, plan, num_rounds=num_rounds
        )
        histories.append(history)
    history = jax.tree.map(lambda *parts: jnp.concatenate(parts), *histories)
    return fcojax.read_model(algorithm, hparams, state), history


WAYS = {
    "at once": one_way,
    "chunks": in_chunks,
    "sweep": in_a_sweep,
    "disk": from_disk,
    "resumed": resumed,
}


def rows():
    """Each transform with each way, and with each method; a third of them by default."""
    names = list(methods())
    for i, transform in enumerate(transforms()):
        for j in range(len(names)):
            way = list(WAYS)[(i + j) % len(WAYS)]
            marks = [] if (2 * i + j) % 4 == 0 else [pytest.mark.slow]
            yield pytest.param(transform, way, names[j], marks=marks)


@pytest.mark.parametrize(("transform", "way", "method"), list(rows()))
def test_a_run_is_the_loop_over_its_clients(transform, way, method):
    row, (algorithm, hparams) = transforms()[transform], methods()[method]
    data = population(row.equal)
    noisy = row.uploads.noisy
    cohort = coins() if len(transform) % 2 and not noisy else fcojax.uniform_cohort(cohort_size=3)
    plan = planned(row, cohort)
    if method in READING_FRACTION and row.uploads.estimates_all and row.aggregator == MEAN:
        with pytest.raises(ValueError, match=row.uploads.estimates_all.name.split("(")[0]):
            fcojax.start(algorithm, hparams, point(), data, KEY, plan)
        return
    expected, counts = slow_run(algorithm, hparams, plan, data)
    model, history = WAYS[way](algorithm, hparams, plan, data)
    for name in ("participants", "lost", "late", "left_out"):
        if name in history:
            assert history[name].tolist() == [each[name] for each in counts], name
    for leaf, other in zip(jax.tree.leaves(model), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(leaf, other, rtol=1e-9, atol=1e-11)


@functools.cache
def trained(given, cohort=None, aggregator=MEAN, method="fed_avg", equal=False):
    algorithm, hparams = methods()[method]
    plan = planned(Row(given, aggregator), cohort or fcojax.uniform_cohort(cohort_size=3))
    return fcojax.run(algorithm, hparams, point(), population(equal), KEY, plan, num_rounds=ROUNDS)


def assert_same(found, expected, tolerance=0.0):
    for leaf, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(leaf, other, rtol=tolerance, atol=tolerance)


ABC = uploads.compressed(uploads.qsgd(7)), fcojax.norm_bound(0.5), fcojax.dropout(0.3)


@pytest.mark.parametrize(
    "given", [chain(ABC[0], chain(*ABC[1:])), chain(chain(*ABC[:2]), ABC[2]), chain(chain(*ABC))]
)
def test_chains_are_associative(given):
    assert given == chain(*ABC)


def test_an_empty_chain_and_a_chain_of_one_are_what_is_in_them():
    assert chain() == fcojax.Plan(fcojax.local_steps(1)).uploads
    assert_same(trained(chain(chain(), ABC[0])), trained(ABC[0]))


whole = uploads.identity()
LOSSLESS = {
    "dropout": (fcojax.dropout(0.0), 0.0),
    "deadline": (clock.deadline(SECONDS, 10.0), 0.0),
    "norm_bound": (fcojax.norm_bound(1e9), 0.0),
    "clip": (privacy.gaussian(1e9), 1e-12),
    "compressed": (uploads.compressed(whole), 0.0),
    "ef14": (uploads.ef14(whole), 0.0),
    "attack": (attacks.attacked((), attacks.scaled(-9.0)), 0.0),
    "grid": (uploads.modular_sum(1e-5, 24), 1e-4),
}


@pytest.mark.parametrize("name", LOSSLESS)
def test_what_loses_nothing_leaves_the_mean(name):
    given, tolerance = LOSSLESS[name]
    equal = name == "grid"  # whose sums have no weights
    assert_same(trained(given, equal=equal)[0], trained(chain(), equal=equal)[0], tolerance)


@pytest.mark.parametrize(
    "given",
    [
        uploads.ef21(whole),
        uploads.econtrol(whole, 0.1),
        uploads.diana(whole),
        uploads.marina(whole, 0.5),
    ],
)
def test_estimates_without_error_leave_the_mean_of_everyone(given):
    # The estimate of a client that takes part is its upload.
    everyone = fcojax.everyone()
    assert_same(trained(given, everyone)[0], trained(chain(), everyone)[0], 1e-12)


def test_1_over_q_of_everyone_is_the_mean():
    everyone = fcojax.everyone()
    for kind in ("known", "estimated"):
        found = trained(uploads.inverse_probability(kind), everyone, method="fed_dual_avg")
        assert_same(found[0], trained(chain(), everyone, method="fed_dual_avg")[0], 1e-12)


@pytest.mark.parametrize("name", transforms())
def test_what_is_opened_is_within_the_stated_bound(name):
    found = [one for one in transforms()[name].uploads.transforms if one.bound is not None]
    rng = np.random.default_rng(3)
    at = At(None, jnp.int32(0), jnp.int32(0), KEY, KEY)
    for one in found:
        for shape in ((1,), (7,), (3, 5)):
            for size in (1e-3, 1.0, 1e6):
                payload = [jnp.asarray(size * rng.standard_normal(shape)) for _ in range(4)]
                payload[1] = jnp.zeros(shape)  # one leaf holds almost all, or nothing
                payload[2] = 1e3 * payload[2]
                client, server = one.init([jnp.zeros(shape)] * 4)
                wire = one.send(at, payload, client).wire
                decoded = one.decode(at, wire, client) if one.decode else wire
                opened = one.open(at, decoded, client, server) if one.open else Opened(decoded)
                kept = opened.weight is None or bool(opened.weight)
                limit = float(one.bound(None, tree.norm(payload)))
                assert not kept or float(tree.norm(opened.payload)) <= limit * (1 + 1e-9)
    assert found or name not in ("gaussian", "bands", "adaptive", "norm_bound", "modular_gaussian")


@pytest.mark.parametrize("clip_by_leaf", [False, True])
def test_a_clip_binds_all_leaves_together(clip_by_leaf):
    one = privacy.gaussian(2.0, noise=1.0, per_leaf=clip_by_leaf)
    payload = [jnp.full(3, 50.0)] * 4
    opened = one.open(At(None, jnp.int32(0)), payload, (), one.init(payload)[1])
    assert float(tree.norm(opened.payload)) == pytest.approx(2.0, rel=1e-12)


def losing(*clients):
    """A transform that loses the uploads of some clients."""

    def send(at, payload, state):
        return Sent(payload, state, ~jnp.any(jnp.array(clients, jnp.int32) == at.client))

    return UploadTransform("losing", send=send, facts=Facts(leaves_out="lost"))


@pytest.mark.parametrize("name", ["ef14", "ef21", "econtrol", "diana", "marina", "estimated"])
def test_a_lost_upload_is_one_that_was_never_sent(name):
    one, method = transforms()[name].uploads, "fed_avg"
    algorithm, hparams = methods()[method]
    data, states = population(False), []
    others = fcojax.from_trace([[0, 1, 4]])
    for given, cohort in ((chain(one, losing(2, 3)), fcojax.everyone()), (one, others)):
        plan = planned(Row(given), cohort)
        state = fcojax.start(algorithm, hparams, point(), data, KEY, plan)
        state, history = fcojax.advance(algorithm, hparams, state, data, plan, num_rounds=3)
        states.append((state.server, state.residuals[0], state.memory.transforms[0]))
        assert history["lost"].tolist() == [2 * (cohort is not others)] * 3
    assert_same(*states, tolerance=1e-13)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("dropout", {40}),  # five numbers of eight bytes
        ("compressed", {3 + 8}),  # 15 levels are four bits, and a norm
        ("ef14", {2 * 8 + 1}),  # two of five numbers, with three bits each for their places
        ("ef21", {2 * 8 + 1}),
        ("marina", {2 * 8, 40}),  # two numbers, or by the coin all
        ("modular_sum", {3 + 11}),  # 22 bits, of one number and of four
    ],
)
def test_bytes_are_those_of_the_encoded_numbers(name, sizes):
    row = transforms()[name]
    _, history = trained(row.uploads, equal=row.equal)
    assert set((history["bytes_up"] / 3).tolist()) <= sizes


def quiet(w, rows):
    """A loss whose gradient is zero, so that a server moves by noise alone."""
    return 0.0 * rows["y"] + 0.0 * sum(jnp.sum(leaf) for leaf in jax.tree.leaves(w))


def test_noise_differs_between_points_rounds_leaves_and_seeds():
    fed_avg = algorithms.fed_avg(quiet)
    params = {"a": jnp.zeros(3), "b": jnp.zeros(3)}
    plan = fcojax.Plan(fcojax.local_steps(1), uploads=privacy.gaussian(1.0, noise=1.0))
    grid = fed_avg.hparams_type(client_lr=jnp.array([0.1, 0.2]), server_lr=jnp.ones(2))
    keys = jax.random.split(KEY, 2)
    _, history = fcojax.sweep(
        fed_avg,
        grid,
        params,
        population(False),
        keys,
        plan,
        num_rounds=3,
        observe=lambda hparams, model, context: model,
    )
    models = np.stack([history["a"], history["b"]])  # [leaf, point, seed, round, 3]
    drawn = np.diff(models, axis=3, prepend=0).reshape(-1, 3)
    apart = np.abs(drawn[:, None] - drawn[None]).min(axis=2)
    assert (apart[~np.eye(len(drawn), dtype=bool)] > 1e-9).all()


def test_a_noisy_sum_is_divided_by_the_expected_weight_and_steps_without_clients():
    # Two of five clients on average; the mean over those present would be 1 in every round.
    fed_avg = algorithms.fed_avg(lambda w, rows: -w + 0.0 * rows["y"])
    plan = fcojax.Plan(
        fcojax.local_steps(1), fcojax.coin_flips(0.4), privacy.gaussian(10.0, noise=1e-12)
    )
    data = population(True)
    _, history = fcojax.run(
        fed_avg,
        fed_avg.hparams_type(client_lr=1.0),
        jnp.array(0.0),
        data,
        KEY,
        plan,
        num_rounds=12,
        observe=lambda hparams, model, context: {"model": model},
    )
    steps = np.diff(np.asarray(history["model"]), prepend=0)
    np.testing.assert_allclose(steps, np.asarray(history["participants"]) / 2.0, atol=1e-10)


def test_public_parts_get_the_weights_of_the_others():
    # The dual average of a constant gradient and its elapsed time keep their ratio.
    method = algorithms.fed_dual_avg(lambda w, rows: -w + 0.0 * rows["y"], euclidean(L1))
    plan = fcojax.Plan(fcojax.local_steps(1), coins(), uploads=uploads.inverse_probability("known"))
    state = fcojax.start(
        method, method.hparams_type(client_lr=1.0), jnp.array(0.0), population(False), KEY, plan
    )
    for _ in range(4):
        state, _ = fcojax.advance(
            method,
            method.hparams_type(client_lr=1.0),
            state,
            population(False),
            plan,
            num_rounds=1,
        )
        elapsed = jax.tree.leaves(state.server)
        assert float(elapsed[0]) == pytest.approx(float(elapsed[1]), rel=1e-12)


def test_a_transform_draws_from_a_key_that_no_client_has():
    def send(at, payload, state):
        return Sent([jax.random.uniform(at.key, leaf.shape) for leaf in payload])

    def client_update(hparams, message, client, local, key):
        result = base.client_update(hparams, message, client, local, key)
        drawn = jax.tree.map(lambda leaf: jax.random.uniform(key, leaf.shape), result.upload)
        return result._replace(upload=drawn)

    base, hparams = methods()["fed_avg"]
    drawing = base._replace(client_update=client_update)
    found = [
        fcojax.run(
            drawing,
            hparams,
            point(),
            population(True),
            KEY,
            planned(Row(given), fcojax.everyone()),
            num_rounds=1,
        )[0]["bias"]
        for given in (chain(), UploadTransform("drawing", send=send))
    ]
    assert abs(float(found[0] - found[1])) > 1e-6


def test_a_state_that_is_not_finite_is_not_kept_beside_a_finite_upload():
    def client_update(hparams, message, client, local, key):
        result = base.client_update(hparams, message, client, local, key)
        bad = jnp.where(local.client == 1, jnp.inf, 0.0)
        return result._replace(state=tree.scale(1.0 + bad, result.state))

    base, hparams = methods()["scaffold"]
    algorithm, data = base._replace(client_update=client_update), population(False)
    plan = planned(Row(transforms()["ef14"].uploads), fcojax.everyone())
    state = fcojax.start(algorithm, hparams, point(), data, KEY, plan)
    state, history = fcojax.advance(algorithm, hparams, state, data, plan, num_rounds=2)
    assert history["dropped"].tolist() == [1, 1]
    for leaf in jax.tree.leaves((state.clients, state.residuals)):
        assert not np.asarray(leaf)[1].any() and np.isfinite(leaf).all()
