"""A client's half and a server's half of a round, for clients that answer over a network.

The pieces are those of a round of ``run``; here uploads arrive as messages. A server calls
``begin``, then in each round ``ask``, ``decode`` for each answer, and ``step``; a client calls
``answer``. ``forms`` gives the shapes of all that travels.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult
from fcojax.algorithms.local import Local
from fcojax.engine.aggregation import (
    TotalWeights,
    add_clients,
    contribution_of,
    decoded_upload,
    empty_tally,
    finish_round,
)
from fcojax.engine.aggregator import Codec, split
from fcojax.engine.client_loop import Rows, through_codec
from fcojax.engine.first_uploads import first_uploads
from fcojax.engine.plan import Plan
from fcojax.engine.randomness import (
    AGGREGATE,
    BATCHES,
    CLIENT,
    ENCODE,
    SERVER,
    SHARED,
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
    key, index = jax.eval_shape(lambda: (jax.random.key(0), jnp.int32(0)))
    where = examples, Keys(*(key,) * 4), index
    update = functools.partial(_updated, algorithm, plan)
    result = jax.eval_shape(update, hparams, message, state, *where)
    rows = jax.eval_shape(lambda state: first_rows(plan, result, state), state)
    sent, _, _ = answer.eval_shape(algorithm, plan, hparams, message, rows, *where)
    given = sent, result.upload, rows.residuals, key, index, index
    return Forms(message, result, rows, sent, _decode.eval_shape(plan, hparams, *given))


def first_rows(plan: Plan, result: ClientResult, state: PyTree) -> Rows:
    """Return what a client keeps before its first round, given the shapes of its result."""
    payload = _zeros(split(result.upload)[0])
    return Rows(state, () if plan.codec is None else plan.codec.init(payload))


def begin(
    algorithm: Algorithm, plan: Plan, hparams: PyTree, params: Params, data: ClientData
) -> tuple[PyTree, PyTree]:
    """Return the server's first state and the aggregator's memory; refuse what does not fit.

    Of the examples in ``data`` only shapes are read.
    """
    states = as_first_states(algorithm.init(hparams, params))
    return states[0], first_uploads(algorithm, plan, hparams, states, data).memory


@jit_per(num_static=1)
@in_full_precision
def ask(algorithm, hparams, server, key, index, members) -> tuple[PyTree, Keys]:
    """Return the message of a round, and the data of the keys of its clients."""

    def keys_of(client):
        purposes = [purpose_key(key, purpose, index) for purpose in (CLIENT, BATCHES, ENCODE)]
        own = [jax.random.fold_in(purpose, client) for purpose in purposes]
        keys = Keys._make([*own, purpose_key(key, SHARED, index)])
        return jax.tree.map(jax.random.key_data, keys)

    return algorithm.broadcast(hparams, server), jax.vmap(keys_of)(members)


@jit_per(num_static=2)
@in_full_precision
def answer(
    algorithm, plan, hparams, message, before: Rows, examples, keys: Keys, client
) -> tuple[EncodedUpload, Rows, Array]:
    """Return a client's upload, what it keeps if that counts, and whether both are finite."""
    result = _updated(algorithm, plan, hparams, message, before.states, examples, keys, client)
    own, public, _ = split(result.upload)
    upload, residual = result.upload, before.residuals
    if plan.codec is not None:
        given = residual, keys.encode, keys.shared
        leaves, _, is_own = _encoded(plan.codec, hparams, own, *given)
        own = [leaf for leaf, kept in zip(leaves, is_own, strict=True) if kept]
        upload, residual = through_codec(plan.codec, hparams, upload, *given)
    after = Rows(result.state, residual)
    return EncodedUpload(own, public, result.metrics), after, tree.all_finite((upload, after))


def decode(plan, hparams, sent: EncodedUpload, form: Forms, key: Key, index, client) -> PyTree:
    """Return the upload that a client has encoded, with the key of the run."""
    like = _zeros((form.result.upload, form.rows.residuals))
    return _decode(plan, hparams, sent, *like, key, index, client)


@jit_per(num_static=1)
@in_full_precision
def _decode(plan, hparams, sent, like, residual, key, index, client) -> PyTree:
    """Return a client's decoded upload; the server computes the parts that were not sent."""
    payload, _, join = split(like)
    if plan.codec is None:
        return join(sent.own, sent.public)
    own = jax.random.fold_in(purpose_key(key, ENCODE, index), client)
    keys = own, purpose_key(key, SHARED, index)
    leaves, structure, is_own = _encoded(plan.codec, hparams, payload, residual, *keys)
    given = iter(sent.own)
    leaves = [next(given) if kept else leaf for leaf, kept in zip(leaves, is_own, strict=True)]
    encoded = jax.tree.unflatten(structure, leaves)
    return decoded_upload(plan.codec, encoded, payload, sent.public, join)


@jit_per(num_static=2)
@in_full_precision
def step(
    algorithm: Algorithm,
    plan: Plan,
    schedule: PyTree,
    hparams: PyTree,
    states: tuple[PyTree, PyTree],
    key: Key,
    index: Array,
    results: ClientResult,
    weights: tuple[Array, Array, Array],
    arrives: Array,
    finite: Array,
    idle: tuple[PyTree, PyTree],
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
      results: decoded uploads and metrics of the cohort's members; states are not read.
      weights: p_m of each member, 0 if it was not asked; p_m of all clients; expected share of the
        clients that a cohort has.
      arrives: whether each upload arrived.
      finite: whether each upload is finite.
      idle: a client's state and examples of zeros; no value is read.
    """
    (server, memory), aggregator = states, plan.aggregator
    own, of_all, expected = weights
    everyone = jnp.sum(of_all)
    # Noise has the scale of the largest weight of all clients and is divided by the expected
    # weight, so that neither tells which clients are away.
    totals = TotalWeights(jnp.sum(own), everyone, expected * everyone, jnp.max(of_all))
    clients = jax.vmap(functools.partial(contribution_of, aggregator, hparams, memory))(results)
    shapes, one = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (results, clients)
    )
    # Shares, as in `one_round`: the sum does not overflow if the mean is finite.
    shares = own / jnp.where(totals.cohort > 0, totals.cohort, 1)
    places = jnp.arange(shares.size, dtype=jnp.int32)
    tally = empty_tally(aggregator, one, shares.size, shares.dtype)
    tally, counted = add_clients(aggregator, tally, clients, finite, arrives, shares, places)
    public, noise_key = None, key
    if aggregator.noisy:  # zeros would tell that nobody took part
        noise_key, keys = folded_by(key, schedule), Keys(*[jax.random.key(0)] * 4)
        message = algorithm.broadcast(hparams, server)
        result = _updated(algorithm, plan, hparams, message, *idle, keys, jnp.int32(0))
        public = split(result.upload)[1]
    noise_key = purpose_key(noise_key, AGGREGATE, index)
    found = finish_round(aggregator, hparams, tally, totals, shapes, memory, noise_key, public)
    server_key = purpose_key(key, SERVER, index)
    server, refused = server_step(algorithm, hparams, server, found, server_key)
    measures = found.metrics | found.counts | {"refused": refused}
    return server, found.memory, counted, measures


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


def _encoded(codec: Codec, hparams, *given) -> tuple[list, Any, list[bool]]:
    """Return an encoded payload's arrays and structure, and which depend on the payload."""

    def encode(kept, hparams, keys):
        return codec.encode(hparams, *kept, *keys)[0]

    parts = given[:2], hparams, given[2:]
    leaves, structure = jax.tree.flatten(encode(*parts))
    return leaves, structure, depend_on_first(encode, *parts)


def _zeros(shapes: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
