"""A client's half and a server's half of a round, for clients that answer over a network.

The pieces are those of a round of ``run``; here uploads arrive as messages. A server calls
``begin``, then in each round ``ask``, ``decode`` for each answer, and ``step``; a client calls
``answer``. ``forms`` gives the shapes of all that travels.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult
from fcojax.algorithms.local import Local
from fcojax.engine.aggregation import (
    RoundResult,
    TotalWeights,
    add_clients,
    contribution_of,
    decoded_upload,
    empty_tally,
    finish_round,
)
from fcojax.engine.aggregator import Allowance, split
from fcojax.engine.client_loop import Rows, through_codec
from fcojax.engine.first_uploads import kept_for, require_fitting
from fcojax.engine.limits import allowance_of
from fcojax.engine.participation.base import Draw
from fcojax.engine.plan import Plan
from fcojax.engine.randomness import (
    AGGREGATE,
    BATCHES,
    CLIENT,
    ENCODE,
    SERVER,
    SHARED,
    draw_cohort,
    folded_by,
    purpose_key,
)
from fcojax.engine.round import server_step
from fcojax.engine.validation import as_first_states
from fcojax.memo import jit_per
from fcojax.problems.clients import ClientData
from fcojax.types import Array, Key, Params, PyTree
from fcojax.xla.jaxprs import depend_on_first
from fcojax.xla.rules import in_full_precision


class Keys(NamedTuple):
    """The keys of one client in one round.

    A client learns neither the run's own key nor the keys of other clients.
    """

    client: Any  # keys, their data, or their shapes
    batches: Any
    encode: Any
    shared: Any  # the same for all clients, such as for a coin of the round


class EncodedUpload(NamedTuple):
    """The answer of a client in a round: the encoded upload and its metrics.

    Attributes:
      own: the arrays of the encoded payload that depend on the payload; the server knows the other
        arrays, such as keys.
      public: the public parts of the upload.
      metrics: scalars.
    """

    own: list
    public: list
    metrics: dict[str, Array]


class Forms(NamedTuple):
    """The shapes of the arrays that a client receives, computes, keeps and sends.

    ``decoded`` has the shapes of its decoded upload.
    """

    message: PyTree
    result: ClientResult
    rows: Rows
    sent: EncodedUpload
    decoded: PyTree


def forms(
    algorithm: Algorithm, plan: Plan, hparams: PyTree, params: Params, examples: PyTree
) -> Forms:
    """Return the shapes for a client with these examples, or examples of these shapes."""
    server, state = jax.eval_shape(algorithm.init, hparams, params)
    message = jax.eval_shape(algorithm.broadcast, hparams, server)
    key = jax.eval_shape(lambda: jax.random.key(0))
    where = examples, Keys(*(key,) * 4), jax.ShapeDtypeStruct((), jnp.int32)
    update = functools.partial(_updated, algorithm, plan)
    result = jax.eval_shape(update, hparams, message, state, *where)
    payload = split(result.upload)[0]
    rows = Rows(state, () if plan.codec is None else jax.eval_shape(plan.codec.init, payload))
    sent, _, _ = jax.eval_shape(
        functools.partial(answer_traced, algorithm, plan), hparams, message, rows, *where
    )
    decoded = functools.partial(_decoded, plan, hparams)
    upload = jax.eval_shape(decoded, sent, result.upload, rows.residuals, key, key)
    return Forms(message, result, rows, sent, upload)


def first_rows(plan: Plan, form: Forms, state: PyTree) -> Rows:
    """Return what a client keeps before its first round."""
    if plan.codec is None:
        return Rows(state, ())
    return Rows(state, plan.codec.init(_zeros(split(form.result.upload)[0])))


def begin(
    algorithm: Algorithm, plan: Plan, hparams: PyTree, params: Params, form: Forms
) -> tuple[PyTree, PyTree]:
    """Return the server's first state and the aggregator's memory; refuse what does not fit."""
    if plan.correct is not None:
        raise ValueError("real sites take part by themselves; pass a plan with correct=None.")
    if plan.work.by_round is not None:
        raise ValueError("real sites do not know the round; pass local steps without by_round.")
    server, _ = as_first_states(algorithm.init(hparams, params))
    _, memory, one = kept_for(plan, hparams, form.result)
    require_fitting(algorithm, plan, hparams, server, form.result, memory, one)
    return server, memory


def rounds_within(plan: Plan, hparams: PyTree, num_clients: int) -> Allowance | None:
    """Return how many rounds a privacy budget allows, ``None`` without one."""
    allowance = allowance_of(plan)
    return None if allowance is None else allowance(plan.cohort, [[hparams]], num_clients)


def public_parts_differ(
    algorithm: Algorithm, plan: Plan, hparams: PyTree, params: Params, form: Forms, examples: PyTree
) -> bool:
    """Return whether public parts of an upload depend on a client's state or examples."""

    def public(seen, hparams, server):
        return split(_idle(algorithm, plan, hparams, server, *seen).upload)[1]

    server, _ = as_first_states(algorithm.init(hparams, params))
    return any(depend_on_first(public, _zeros((form.rows.states, examples)), hparams, server))


def draw(plan: Plan, data: ClientData, key: Key, index: int) -> Draw:
    """Return the cohort of a round."""
    return draw_cohort(plan, data, key, jnp.int32(index))


@jit_per(num_static=1)
@in_full_precision
def ask(algorithm, hparams, server, key, index, members) -> tuple[PyTree, Keys]:
    """Return the message of a round, and the data of the keys of its clients."""

    def own(purpose, client):
        return jax.random.key_data(jax.random.fold_in(purpose_key(key, purpose, index), client))

    client, batches, encode = (
        jax.vmap(functools.partial(own, purpose))(members) for purpose in (CLIENT, BATCHES, ENCODE)
    )
    shared = jax.random.key_data(purpose_key(key, SHARED, index))
    shared = jnp.broadcast_to(shared, (members.shape[0], *shared.shape))
    return algorithm.broadcast(hparams, server), Keys(client, batches, encode, shared)


def answer_traced(
    algorithm: Algorithm, plan: Plan, hparams, message, before: Rows, examples, keys: Keys, client
) -> tuple[EncodedUpload, Rows, Array]:
    """Return a client's upload, what it keeps if that counts, and whether both are finite."""
    result = _updated(algorithm, plan, hparams, message, before.states, examples, keys, client)
    payload, public, _ = split(result.upload)
    if plan.codec is None:
        own, upload, residual = payload, result.upload, before.residuals
    else:
        given = payload, before.residuals, keys.encode, keys.shared
        encoded, _ = plan.codec.encode(hparams, *given)
        is_own = _own_leaves(plan, hparams, *given)
        leaves = zip(jax.tree.leaves(encoded), is_own, strict=True)
        own = [leaf for leaf, kept in leaves if kept]
        upload, residual = through_codec(
            plan.codec, hparams, result.upload, before.residuals, keys.encode, keys.shared
        )
    after = Rows(result.state, residual)
    return EncodedUpload(own, public, result.metrics), after, tree.all_finite((upload, after))


answer = jit_per(num_static=2)(in_full_precision(answer_traced))


@jit_per(num_static=1)
@in_full_precision
def _decode(plan, hparams, sent, like, residual, key, index, client) -> PyTree:
    own = jax.random.fold_in(purpose_key(key, ENCODE, index), client)
    return _decoded(plan, hparams, sent, like, residual, own, purpose_key(key, SHARED, index))


def decode(plan, hparams, sent: EncodedUpload, form: Forms, key: Key, index, client) -> PyTree:
    """Return the upload that a client has encoded, with the key of the run."""
    like, residual = jax.tree.map(
        lambda leaf: np.zeros(leaf.shape, leaf.dtype), (form.result.upload, form.rows.residuals)
    )
    return _decode(plan, hparams, sent, like, residual, key, index, client)


class Arrivals(NamedTuple):
    """What reached the server in a round, each with a leading axis of the cohort's members.

    Attributes:
      results: decoded uploads and metrics; states are not read.
      weights: p_m of each member, 0 if it was not asked.
      of_all: p_m of all clients.
      expected: expected share of the clients that a cohort has.
      arrives: whether each upload arrived.
      finite: whether each is finite.
    """

    results: ClientResult
    weights: Any
    of_all: Any
    expected: Any
    arrives: Any
    finite: Any


@jit_per(num_static=2)
@in_full_precision
def _step(algorithm, plan, hparams, states, keys, index, arrived: Arrivals, form):
    server, memory = states
    key, noise_key = keys
    everyone = jnp.sum(arrived.of_all)
    # Noise has the scale of the largest weight of all clients and is divided by the expected
    # weight, so that neither tells which clients are away.
    totals = TotalWeights(
        jnp.sum(arrived.weights), everyone, arrived.expected * everyone, jnp.max(arrived.of_all)
    )
    own = purpose_key(noise_key, AGGREGATE, index)
    found, counted = _aggregate(plan, hparams, arrived, totals, memory, own)
    if plan.aggregator.noisy:  # zeros would tell that nobody took part
        payload, public, join = split(found.upload)
        idle = split(_idle(algorithm, plan, hparams, server, *form).upload)[1]
        nobody = ~jnp.any(counted)
        public = jax.tree.map(lambda a, b: jnp.where(nobody, b.astype(a.dtype), a), public, idle)
        found = found._replace(upload=join(payload, public))
    server_key = purpose_key(key, SERVER, index)
    server, refused = server_step(algorithm, hparams, server, found, server_key)
    measures = found.metrics | found.counts | {"refused": refused}
    return server, found.memory, counted, measures


def step(
    algorithm: Algorithm,
    plan: Plan,
    schedule: PyTree,
    hparams: PyTree,
    states: tuple[PyTree, PyTree],
    key: Key,
    index: int,
    arrived: Arrivals,
    form: Forms,
    examples: PyTree,
) -> tuple[PyTree, PyTree, Array, dict[str, Array]]:
    """Return the server's state and memory, which members count, and metrics and counts.

    Args:
      algorithm: the algorithm of the run.
      plan: how rounds are run.
      schedule: the hyperparameters of the run, with their schedules; noise is keyed by them.
      hparams: the hyperparameters of this round.
      states: the server's state and the aggregator's memory.
      key: PRNG key of the run.
      index: index of the round.
      arrived: what reached the server.
      form: the shapes for a client.
      examples: a client's examples, or their shapes; no value is read.
    """
    noise_key = folded_by(key, schedule) if plan.aggregator.noisy else key
    idle = _zeros((form.rows.states, examples))
    keys = key, noise_key
    return _step(algorithm, plan, hparams, states, keys, jnp.int32(index), arrived, idle)


def _aggregate(
    plan: Plan, hparams, arrived: Arrivals, totals: TotalWeights, memory: PyTree, key: Key
) -> tuple[RoundResult, Array]:
    """Return the result of a round, and which members count."""
    aggregator, weights = plan.aggregator, arrived.weights
    shapes = _first_shapes(arrived.results)
    clients = jax.vmap(lambda one: contribution_of(aggregator, hparams, memory, one))(
        arrived.results
    )
    # Shares, as in `one_round`: the sum does not overflow if the mean is finite.
    shares = weights / jnp.where(totals.cohort > 0, totals.cohort, 1)
    places = jnp.arange(weights.shape[0], dtype=jnp.int32)
    tally = empty_tally(aggregator, _first_shapes(clients), weights.shape[0], shares.dtype)
    which = arrived.finite, arrived.arrives
    tally, counted = add_clients(aggregator, tally, clients, *which, shares, places)
    return finish_round(aggregator, hparams, tally, totals, shapes, memory, key), counted


def _updated(
    algorithm: Algorithm, plan: Plan, hparams, message, state, examples, keys: Keys, client
) -> ClientResult:
    """Call the algorithm with a handle on the examples of this client alone."""
    size = jax.tree.leaves(examples)[0].shape[0]
    local = Local(
        rows=examples,
        client=client,
        offset=jnp.zeros((), jnp.int32),
        num_examples=jnp.asarray(size, jnp.int32),
        key=keys.batches,
        work=plan.work,
        min_size=size,
        max_size=size,
    )
    return algorithm.client_update(hparams, message, state, local, keys.client)


def _idle(algorithm: Algorithm, plan: Plan, hparams, server, state, examples) -> ClientResult:
    """Return a client's result, of which only parts that its examples do not change are used."""
    message, keys = algorithm.broadcast(hparams, server), Keys(*[jax.random.key(0)] * 4)
    return _updated(algorithm, plan, hparams, message, state, examples, keys, jnp.int32(0))


def _own_leaves(plan: Plan, hparams, payload, residual, key, shared) -> list[bool]:
    """Return for each array of an encoded payload whether it depends on the payload."""
    codec = plan.codec
    assert codec is not None

    def encode(given, hparams, key, shared):
        return jax.tree.leaves(codec.encode(hparams, *given, key, shared)[0])

    return depend_on_first(encode, (payload, residual), hparams, key, shared)


def _decoded(plan: Plan, hparams, sent: EncodedUpload, like, residual, key, shared) -> PyTree:
    """Return a client's decoded upload; the server computes the parts that were not sent."""
    payload, _, join = split(like)
    if plan.codec is None:
        return join(sent.own, sent.public)
    given = payload, residual, key, shared
    encoded, _ = plan.codec.encode(hparams, *given)
    leaves, structure = jax.tree.flatten(encoded)
    is_own, own = _own_leaves(plan, hparams, *given), iter(sent.own)
    leaves = [next(own) if kept else leaf for leaf, kept in zip(leaves, is_own, strict=True)]
    encoded = jax.tree.unflatten(structure, leaves)
    return decoded_upload(plan.codec, encoded, payload, sent.public, join)


def _first_shapes(stacked: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), stacked)


def _zeros(shapes: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
