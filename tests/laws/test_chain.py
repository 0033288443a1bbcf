"""Laws of what happens to an upload: transforms crossed with ways to run and with methods.

The oracle is a round as a loop: one client after another, one transform after another, without jit,
vmap or masks. Every pair of a transform and a way to run, of a transform and a method, and of a
method and a way has a case. By default each transform has one, alone or in a chain, that is run.
What a transform computes is in tests of its own: here its functions are called by both sides.
"""

import functools
import itertools
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms, attacks, clock, privacy, robust, tree, uploads
from fcojax.engine.members import (
    AGGREGATE,
    CLIENT,
    DOWN,
    ENCODE,
    SERVER,
    SHARED,
    draw_cohort,
    folded_by,
    local_handle,
    purpose_key,
)
from fcojax.engine.nonfinite import warn_of_nonfinite
from fcojax.transforms import euclidean, l1
from fcojax.uploads import Facts, Opened, Sent, UploadTransform, chain
from fcojax.uploads.contract import At, Estimate, Received, RoundWeights, split
from tests.support import federations
from tests.support.compressors import IDENTITY
from tests.test_asynchronous import ALGORITHMS, by_events, quadratics

ROUNDS, CLIENTS, DIM = 3, 5, 4
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
    broadcast: Any = None


@functools.cache
def transforms():
    noise = privacy.gaussian(0.3, noise=0.5)
    return {
        "compressed": Row(uploads.compressed(RAND)),
        "ef14": Row(uploads.ef14(TOP)),
        "ef21": Row(uploads.ef21(TOP)),
        "momentum, ef21": Row(chain(uploads.momentum(0.8), uploads.ef21(TOP))),
        "econtrol": Row(uploads.econtrol(TOP, 0.2)),
        "diana": Row(uploads.diana(RAND)),
        "marina": Row(uploads.marina(RAND, 0.4)),
        "modular_sum": Row(uploads.modular_sum(1e-3, 22), equal=True),
        "gaussian": Row(noise),
        "bands": Row(privacy.gaussian(0.3, noise=0.5, bands=(1.0, 0.5, 0.25))),
        "adaptive": Row(privacy.gaussian(privacy.adaptive_clip(start=0.3, noise=2.0), 0.5)),
        "norm_bound": Row(fcojax.norm_bound(0.4)),
        "dropout": Row(fcojax.dropout(0.4)),
        "deadline": Row(clock.deadline(SECONDS, 4.0)),
        "known": Row(uploads.inverse_probability("known")),
        "estimated": Row(uploads.inverse_probability("estimated")),
        "attacked": Row(attacks.attacked((1,), attacks.scaled(-3.0)), robust.median()),
        "seeing all": Row(
            attacks.attacked((1, 4), SEEING),
            attacks.seeing_all(SEEING, robust.trimmed_mean(0.3)),
        ),
        "centre": Row(chain(), robust.bucketing(2, robust.centred_clipping(0.05))),
        "compressed, noise, bound": Row(
            chain(uploads.compressed(uploads.qsgd(7)), noise, fcojax.norm_bound(0.9))
        ),
        "ef21, trimmed mean": Row(
            chain(attacks.attacked((1,), attacks.scaled(-2.0)), uploads.ef21(TOP)),
            robust.trimmed_mean(lambda h: 10 * h.client_lr),
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
        "both ways": Row(uploads.ef14(TOP), broadcast=uploads.ef21p(TOP)),
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
            rates(algorithms.prox_skip, skip_probability=0.4),
        ),
        "fed_dyn": (algorithms.fed_dyn(LOSS, L1), rates(algorithms.fed_dyn, prox_step=0.3)),
        "composite_fl": (algorithms.composite_fl(LOSS, L1), rates(algorithms.composite_fl)),
    }


@functools.cache
def population(equal):
    return fcojax.from_clients(federations.clients(), weights=None if equal else WEIGHTS)


def point():
    return {"kernel": jnp.full(DIM, 0.1), "bias": jnp.zeros(())}


def planned(row, cohort):
    work = fcojax.local_steps(2)
    return fcojax.Plan(work, cohort, row.uploads, row.aggregator, row.broadcast)


# Methods, works and cohorts are few: each is compiled once for all cases.
drawn = jax.jit(draw_cohort, static_argnums=0)
folded = jax.jit(folded_by)


@functools.partial(jax.jit, static_argnums=(0, 1))
def updated(algorithm, work, hparams, message, state, data, index, client):
    local = local_handle(data, work, KEY, index, client, client)
    key = jax.random.fold_in(purpose_key(KEY, CLIENT, index), client)
    return algorithm.client_update(hparams, message, state, local, key)


def slow_run(algorithm, hparams, plan, data, num_rounds=ROUNDS):
    """Return the model and the counts of each round, by a loop."""
    ts, weights = plan.uploads.transforms, np.asarray(data.weights)
    by_rule, finish = plan.aggregator != MEAN, plan.aggregator.finish
    finish = jax.jit(finish) if by_rule else finish  # a rule is many small operations
    server, first = algorithm.init(hparams, point())
    private = folded(KEY, hparams)
    states, kept, memory, rule_memory, history = [first] * data.num_clients, None, None, None, []
    estimate, down, before = algorithm.broadcast(hparams, server), (), server
    if plan.broadcast:
        estimate, down = plan.broadcast.first(estimate)
    for r in range(num_rounds):
        draw = drawn(fcojax.Plan(plan.work, plan.cohort), data, KEY, jnp.int32(r))
        members = np.asarray(draw.indices)[np.asarray(draw.present)].tolist()
        message, shared = algorithm.broadcast(hparams, server), purpose_key(KEY, SHARED, r)
        message = estimate if plan.broadcast else message
        counts = dict.fromkeys(("lost", "late", "left_out", "bytes_up"), 0)
        terms, after = [], {}
        for m in members:
            index, client = jnp.int32(r), jnp.int32(m)
            result = updated(algorithm, plan.work, hparams, message, states[m], data, index, client)
            payload, public, form = split(result.upload)
            if kept is None:
                zeros = [jnp.zeros_like(leaf) for leaf in payload]
                kept = [[one.init(zeros)[0] for one in ts]] * data.num_clients
                memory = [one.init(zeros)[1] for one in ts]
            own = jax.random.fold_in(purpose_key(KEY, ENCODE, r), m)
            wire, new, out, size = payload, [], None, None
            for place, (one, state) in enumerate(zip(ts, kept[m], strict=True)):
                key = own if one.decode else jax.random.fold_in(own, len(ts) - place)
                at = At(hparams, index, client, key, shared, by_rule=by_rule)
                sent = one.send(at, wire, state)
                wire, new = sent.wire, [*new, sent.client_state]
                size = size if sent.num_bytes is None else float(sent.num_bytes)
                if sent.weight is not None and not bool(sent.weight):
                    out = one.facts.leaves_out  # the last one counts
            size = tree.num_bytes(wire) if size is None else size
            counts["bytes_up"] += size + tree.num_bytes(public)
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
        given = RoundWeights(
            *map(jnp.asarray, (share, cohort, everyone, len(terms))),
            jnp.asarray(plan.cohort.mean_size(data.num_clients) / data.num_clients * everyone),
            jnp.asarray(weights.max()),
        )
        noise_key = purpose_key(private, AGGREGATE, r)
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
            mean, rule_memory = finish(hparams, collected, given, rule_memory, key)
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
        if plan.broadcast and bool(found.step):
            given = hparams, Estimate(estimate, ()), algorithm.broadcast(hparams, server)
            estimate, _ = plan.broadcast.following(*given, purpose_key(KEY, DOWN, r))
        times = algorithm.sent(hparams, before, server)
        one, receivers = (down, data.num_clients) if plan.broadcast else (message, len(members))
        counts["bytes_up"] *= float(times[1])
        counts["bytes_down"] = receivers * tree.num_bytes(one) * float(times[0])
        before = server
        history.append({"participants": len(members)} | counts)
    return algorithm.model(hparams, server), history


def inclusion(plan, m):
    """The probability that client m is counted, from the numbers above."""
    share = COINS[m]
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


def on_devices(algorithm, hparams, plan, data):
    spread = fcojax.devices.shard_clients(data, fcojax.devices.device_mesh(clients=2))
    return one_way(algorithm, hparams, plan, spread)


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
    for _ in range(ROUNDS):  # one program
        state, history = fcojax.advance(algorithm, hparams, state, data, plan, num_rounds=1)
        histories.append(history)
    history = jax.tree.map(lambda *parts: jnp.concatenate(parts), *histories)
    return fcojax.read_model(algorithm, hparams, state), history


WAYS = {
    "at once": one_way,
    "devices": on_devices,
    "chunks": in_chunks,
    "sweep": in_a_sweep,
    "disk": from_disk,
    "resumed": resumed,
}


# What runs by default: others are parts of these chains.
DEFAULT = {
    "fed_avg": ("econtrol", "estimated", "ef21, trimmed mean", "compressed, 1/q, lost"),
    "fed_dual_avg": ("momentum, ef21", "diana", "marina", "both ways"),
    "scaffold": ("adaptive", "centre"),
    "prox_skip": ("bands", "seeing all", "ef14, late, lost"),
    "fed_dyn": ("modular_sum",),
    "composite_fl": ("compressed, noise, bound",),
}


def rows():
    """Each transform with each way, and with each method."""
    names = list(methods())
    for i, transform in enumerate(transforms()):
        for j in range(len(names)):
            way = list(WAYS)[(i + j) % len(WAYS)]
            marks = [] if transform in DEFAULT[names[j]] else [pytest.mark.slow]
            yield pytest.param(transform, way, names[j], marks=marks)


@pytest.mark.parametrize(("transform", "way", "method"), list(rows()))
def test_a_run_is_the_loop_over_its_clients(transform, way, method):
    row, (algorithm, hparams) = transforms()[transform], methods()[method]
    data = population(row.equal)
    cohort = coins() if len(transform) % 2 else fcojax.from_trace([[1, 3, 4], [0, 1, 2]])
    cohort = fcojax.uniform_cohort(cohort_size=3) if row.uploads.noisy else cohort
    plan = planned(row, cohort)
    if method in READING_FRACTION and row.aggregator == MEAN and row.uploads.estimates_all:
        with pytest.raises(ValueError, match=row.uploads.estimates_all.name.split("(")[0]):
            fcojax.start(algorithm, hparams, point(), data, KEY, plan)
        return
    expected, counts = slow_run(algorithm, hparams, plan, data)
    model, history = WAYS[way](algorithm, hparams, plan, data)
    for name in counts[0]:
        if name in history:
            assert history[name].tolist() == [each[name] for each in counts], name
    chex.assert_trees_all_close(model, expected, rtol=1e-9, atol=1e-11)


ABC = uploads.compressed(uploads.qsgd(7)), fcojax.norm_bound(0.5), fcojax.dropout(0.3)


@pytest.mark.parametrize(
    "given", [chain(ABC[0], chain(*ABC[1:])), chain(chain(*ABC[:2]), ABC[2]), chain(chain(*ABC))]
)
def test_chains_are_associative(given):
    assert given == chain(*ABC) and chain() == fcojax.Plan(fcojax.local_steps(1)).uploads


whole = IDENTITY
# Rows, and the tolerance. The estimate of a client that takes part is its upload.
LOSSLESS = {
    "four in a chain": (
        Row(
            chain(
                uploads.compressed(whole),
                privacy.gaussian(np.inf),
                fcojax.norm_bound(1e9),
                fcojax.dropout(0.0),
            )
        ),
        0.0,
    ),
    "ef14": (Row(uploads.ef14(whole)), 0.0),
    "ef21, trimmed": (Row(uploads.ef21(whole), robust.trimmed_mean(0.0)), 1e-12),
    "broadcast": (Row(chain(), broadcast=uploads.ef21p(uploads.top_k(1.0))), 1e-12),
    "grid": (Row(uploads.modular_sum(1e-5, 24), equal=True), 1e-4),
}


@functools.cache
def trained(row, cohort, method):
    algorithm, hparams = methods()[method]
    return one_way(algorithm, hparams, planned(row, cohort), population(row.equal))


@pytest.mark.parametrize("name", LOSSLESS)
def test_what_loses_nothing_leaves_the_mean_of_everyone(name):
    row, tolerance = LOSSLESS[name]
    given = fcojax.everyone(), "fed_dual_avg"
    found, plain = trained(row, *given)[0], trained(Row(chain(), equal=row.equal), *given)[0]
    chex.assert_trees_all_close(found, plain, rtol=tolerance, atol=tolerance)


BOUNDED = "gaussian", "bands", "adaptive", "norm_bound", "compressed, noise, bound"


@pytest.mark.parametrize("name", BOUNDED)
def test_what_is_opened_is_within_the_stated_bound(name):
    found = [one for one in transforms()[name].uploads.transforms if one.bound is not None]
    rng = np.random.default_rng(3)
    at = At(None, jnp.int32(0), jnp.int32(0), KEY, KEY)
    for one, shape, size in itertools.product(found, ((1,), (7,), (3, 5)), (1e-3, 1.0, 1e6)):
        payload = [jnp.asarray(size * rng.standard_normal(shape)) for _ in range(4)]
        payload[1] = jnp.zeros(shape)  # one leaf holds almost all, or nothing
        payload[2] = 1e3 * payload[2]
        opened = one.open(at, payload, (), one.init(payload)[1])
        kept = opened.weight is None or bool(opened.weight)
        limit = float(one.bound(None, tree.norm(payload)))
        assert not kept or float(tree.norm(opened.payload)) <= limit * (1 + 1e-9)
    assert found


@pytest.mark.parametrize("per_leaf", [False, True])
def test_a_clip_binds_all_leaves_together(per_leaf):
    one = privacy.gaussian(2.0, noise=1.0, per_leaf=per_leaf)
    payload = [jnp.full(3, size) for size in (50.0, 90.0, 50.0, 50.0)]
    opened = one.open(At(None, jnp.int32(0)), payload, (), one.init(payload)[1])
    assert float(tree.norm(opened.payload)) == pytest.approx(2.0, rel=1e-12)
    assert (float(tree.norm(opened.payload[0])) == pytest.approx(1.0)) == per_leaf


def ending(name):
    """Transforms by which clients 2 and 3, and in every second round all, come to nothing."""

    def is_out(at):
        return (at.client == 2) | (at.client == 3) | (at.round % 2 == 1)

    def spoil(at, payload, state):
        return Sent([jnp.where(is_out(at), jnp.nan, leaf) for leaf in payload], state)

    def lose(at, payload, state):
        return Sent(payload, state, ~is_out(at))

    def leave_out(at, payload, *states):
        return Opened(payload, jnp.where(is_out(at), 0.0, 1.0))

    losing = UploadTransform("losing", send=lose, facts=Facts(leaves_out="lost"))
    if name == "dropped":  # whether it arrives or not
        return UploadTransform("spoiling", send=spoil), losing
    mine = UploadTransform("mine", open=leave_out, facts=Facts(leaves_out="mine"))
    return chain(), losing if name == "lost" else mine


def all_states(hparams, state, context):
    return {"states": (state.server, state.clients, state.residuals, state.memory.transforms)}


ALL_STATES = fcojax.StateObserver(all_states)


@pytest.mark.filterwarnings("ignore:the run became non-finite")  # of the rounds without any
@pytest.mark.parametrize(
    ("name", "out"),
    [
        pytest.param(
            name, out, marks=[*[pytest.mark.slow] * (n > 0), *[pytest.mark.gate] * (n == 3)]
        )
        for i, name in enumerate(("ef14", "ef21", "econtrol", "diana", "marina", "estimated"))
        for j, out in enumerate(("lost", "dropped", "mine"))
        for n in [(i + j) % 6]  # by default each ending, in the gate each transform
    ],
)
def test_an_upload_that_does_not_count_is_one_that_was_never_sent(name, out):
    """The model, all states, and the counts."""
    one = transforms()[name].uploads
    algorithm, hparams = methods()["scaffold" if name == "ef14" else "fed_avg"]
    data, states = population(False), []
    before, after = ending(out)
    others = fcojax.from_trace([[0, 1, 4], []])
    for given, cohort in ((chain(before, one, after), fcojax.everyone()), (one, others)):
        plan = planned(Row(given), cohort)
        _, history = fcojax.run(
            algorithm, hparams, point(), data, KEY, plan, num_rounds=3, observe=ALL_STATES
        )
        states.append(history["states"])
        if cohort is not others:
            assert history[out].tolist() == [2, 5, 2] and sum(history["dropped"]) in (0, 9)
    chex.assert_trees_all_close(*map(jax.tree.leaves, states), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("ef14", {2 * 8 + 1 + 8}),  # two of five numbers, three bits for each place, and time
        ("marina", {2 * 8 + 8, 40 + 8}),  # at places that the key tells, or by the coin all
        ("modular_sum", {3 + 11 + 8}),  # 22 bits, of one number and of four
    ],
)
def test_bytes_are_those_of_the_encoded_numbers_and_of_public_parts(name, sizes):
    _, history = trained(transforms()[name], fcojax.everyone(), "fed_dual_avg")
    assert set((history["bytes_up"] / CLIENTS).tolist()) == sizes


def quiet(w, rows):
    """A loss whose gradient is zero, so that a server moves by noise alone."""
    return 0.0 * rows["y"] + 0.0 * sum(jnp.sum(leaf) for leaf in jax.tree.leaves(w))


def test_noise_differs_between_points_rounds_leaves_and_seeds():
    # Also in rounds in which the schedules of two points agree.
    fed_avg = algorithms.fed_avg(quiet)
    params = {"a": jnp.zeros(3), "b": jnp.zeros(3)}
    plan = fcojax.Plan(fcojax.local_steps(1), uploads=privacy.gaussian(1.0, noise=1.0))
    rates = [fcojax.schedule([first, 0.3, 0.3]) for first in (0.1, 0.2)]
    grid = fcojax.grid.product(fed_avg.hparams_type, client_lr=rates)
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


@pytest.mark.parametrize("adds_up", [False, True])
def test_a_noisy_sum_is_divided_by_the_expected_weight_and_steps_without_clients(adds_up):
    # By hand; the noise is negligible. A server that keeps a sum over all clients has it too.
    targets, weights = np.array([1.0, -2.0, 9.0, 4.0]), np.array([1.0, 2.0, 3.0, 2.0])
    chosen = algorithms.fed_avg(lambda w, rows: -w * rows["a"])
    if adds_up:
        chosen = chosen._replace(
            server_update=lambda h, w, mean, fraction, key: w + fraction * mean
        )
    plan = fcojax.Plan(
        fcojax.local_steps(1), fcojax.coin_flips(0.4), privacy.gaussian(3.0, noise=1e-12)
    )
    data = fcojax.from_clients([{"a": np.array([a])} for a in targets], weights)
    _, history = fcojax.run(
        chosen,
        chosen.hparams_type(client_lr=1.0),
        jnp.array(0.0),
        data,
        KEY,
        plan,
        num_rounds=12,
        observe=lambda hparams, model, context: {"model": model},
    )
    expected, shares = [], []
    for r in range(12):
        draw = draw_cohort(plan, data, KEY, r)
        there = np.asarray(draw.indices)[np.asarray(draw.present)]
        total = (weights * np.clip(targets, -3, 3))[there].sum()
        expected.append(total / weights.sum() / (1.0 if adds_up else 0.4))
        clipped = (weights * (np.abs(targets) > 3))[there].sum()
        shares.append(clipped / weights[there].sum() if there.size else np.nan)
    assert np.isnan(shares).any()
    steps = np.diff(np.asarray(history["model"]), prepend=0)
    np.testing.assert_allclose(steps, expected, atol=1e-10)
    np.testing.assert_allclose(history["clipped"], shares, rtol=1e-12)


def test_public_parts_get_the_weights_of_the_others():
    # The dual average of a constant gradient and its elapsed time keep their ratio.
    method = algorithms.fed_dual_avg(lambda w, rows: -w + 0.0 * rows["y"], euclidean(L1))
    plan = fcojax.Plan(fcojax.local_steps(1), coins(), uploads=uploads.inverse_probability("known"))
    hparams, data = method.hparams_type(client_lr=1.0), population(False)
    state = fcojax.start(method, hparams, jnp.array(0.0), data, KEY, plan)
    for _ in range(4):
        state, _ = fcojax.advance(method, hparams, state, data, plan, num_rounds=1)
        elapsed = jax.tree.leaves(state.server)
        assert float(elapsed[0]) == pytest.approx(float(elapsed[1]), rel=1e-12)


def test_a_transform_draws_from_a_key_that_no_client_has():
    def send(at, payload, state):
        return Sent([jax.random.uniform(at.key, leaf.shape) for leaf in payload])

    def client_update(hparams, message, client, local, key):
        result = base.client_update(hparams, message, client, local, key)
        drawn = jax.tree.map(lambda leaf: jax.random.uniform(key, leaf.shape), result.upload)
        return result._replace(upload=drawn)

    # One that encodes draws from the key itself, others from one that is folded by their place.
    coding = UploadTransform("coding", send=send, decode=lambda at, wire, state: wire)
    base, hparams = methods()["fed_avg"]
    drawing = base._replace(client_update=client_update)
    plans = [planned(Row(given), fcojax.everyone()) for given in (chain(), coding)]
    found = [
        fcojax.run(drawing, hparams, point(), population(True), KEY, plan, num_rounds=1)[0]["bias"]
        for plan in plans
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


def test_without_attackers_a_norm_is_adapted_as_without_the_attack():
    """The share within the norm and the flag of an attack are both parts of an opened upload."""
    adaptive, attack = privacy.gaussian(privacy.adaptive_clip(start=10.0)), attacks.inner_product()
    seen = Row(chain(attacks.attacked((), attack), adaptive), attacks.seeing_all(attack))
    given, data, norms = methods()["fed_avg"], population(True), []
    for row in (Row(adaptive), seen):
        plan = planned(row, fcojax.everyone())
        state = fcojax.start(*given, point(), data, KEY, plan)
        state, _ = fcojax.advance(*given, state, data, plan, num_rounds=2)
        norms.append(float(state.memory.transforms[-1]))
    assert norms[0] == pytest.approx(norms[1], rel=1e-12) and norms[0] < 10.0


def breaking(*rounds):
    """A transform with a mean that is not finite in these rounds, so that steps are refused."""

    def receive(at, found, weights, state):
        factor = jnp.where(jnp.isin(at.round, jnp.array(rounds, jnp.int32)), jnp.inf, 1.0)
        return found._replace(mean=tree.scale(factor, found.mean)), state

    return uploads.UploadTransform("breaking", receive=receive)


@pytest.mark.parametrize("name", ["fed_avg", "scaffold"])
def test_clients_of_a_refused_step_start_again_from_the_message_that_they_are_sent(name):
    """The server's rounds are counted, not its steps: its old model is a new message."""
    algorithm, seconds = ALGORITHMS[name], np.array([1.0, 1.5, 2.5, 4.0])
    order = clock.arrivals(seconds, buffer=1, num_rounds=12)
    late, hparams = clock.asynchronous(algorithm, order, 0.0), algorithm.hparams_type(client_lr=0.1)
    plan = fcojax.Plan(fcojax.local_steps(2), order.sampler, breaking(2, 3, 7))
    with pytest.warns(UserWarning, match="non-finite"):
        w, history = fcojax.run(
            late,
            hparams,
            jnp.array(1.0),
            quadratics(),
            KEY,
            plan,
            num_rounds=12,
            eval_every=1,
        )
        warn_of_nonfinite(wait=True)
    assert np.flatnonzero(history["refused"]).tolist() == [2, 3, 7]
    expected = by_events(algorithm, hparams, quadratics(), seconds, 1, 12, refused=(2, 3, 7))
    assert float(w) == pytest.approx(float(expected), abs=1e-12)


def test_a_client_is_charged_its_own_message_of_a_broadcast_to_all():
    """Of 20 clients two take part; all receive 24 bytes at one second a byte: 24 s a round."""
    data, start = fcojax.from_rows({"a": np.arange(20.0)}, [1] * 20), jnp.zeros(8)
    fed_avg = algorithms.fed_avg(lambda w, rows: jnp.mean(w) * rows["a"])
    cohort, broadcast = fcojax.uniform_cohort(cohort_size=2), uploads.ef21p(TOP)
    plan = fcojax.Plan(fcojax.local_steps(1), cohort, broadcast=broadcast)
    given = fed_avg, fed_avg.hparams_type(), start, data, KEY, plan
    _, history = fcojax.run(*given, num_rounds=4, eval_every=2)
    each = float(history["bytes_down"][0]) / (2 * 20)
    assert each == uploads.facts(TOP, start).num_bytes
    found = clock.seconds(clock.Clock(0.0, down=24 / each), plan, data, KEY, history)
    np.testing.assert_allclose(found, [48.0, 96.0])


@pytest.mark.parametrize("name", ["scaffold", "ditto"])
def test_bytes_of_a_compressed_broadcast_are_those_of_what_is_sent_also_in_a_wrapper(name):
    chosen = getattr(algorithms, name)(LOSS)
    cohort, broadcast = fcojax.uniform_cohort(cohort_size=2), uploads.ef21p(TOP)
    plan = fcojax.Plan(fcojax.local_steps(2), cohort, broadcast=broadcast)
    hparams, data = chosen.hparams_type(client_lr=0.02), population(False)
    state = fcojax.start(chosen, hparams, point(), data, KEY, plan)
    leaves = jax.tree.leaves(chosen.broadcast(hparams, state.server))
    _, history = fcojax.advance(chosen, hparams, state, data, plan, num_rounds=2)
    encoded = uploads.facts(TOP, [leaf for leaf in leaves if leaf.size > 1]).num_bytes
    single = 8 * sum(leaf.size == 1 for leaf in leaves)
    assert history["bytes_down"].tolist() == [CLIENTS * (encoded + single)] * 2
