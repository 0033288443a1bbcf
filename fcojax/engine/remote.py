"""A client's half and a server's half of a round, for clients that answer over a network.

The pieces are those of ``tally`` and ``round``. A server calls ``begin``, then in each round
``ask``, ``decode`` for each answer, and ``step``; a client calls ``answer``. ``forms`` gives the
shapes of all that travels.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult
from fcojax.algorithms.local import Local
from fcojax.engine.members import BATCHES, CLIENT, ENCODE, SHARED, folded_by, purpose_key
from fcojax.engine.plan import Plan
from fcojax.engine.round import reduced_over_rounds
from fcojax.engine.state import Memory
from fcojax.engine.tally import (
    RoundContext,
    Rows,
    Upload,
    add_clients,
    empty_tally,
    first_uploads,
    one_update,
    server_half,
)
from fcojax.engine.validation import as_first_states, require_run
from fcojax.memo import jit_per
from fcojax.problems.client_data import ClientData
from fcojax.types import Array, Key, Params, PyTree
from fcojax.uploads import transform
from fcojax.uploads.chain import chain
from fcojax.uploads.contract import MEAN, At, Form, RoundWeights, merged, require_same_form, split
from fcojax.uploads.transform import Facts, UploadTransform
from fcojax.xla.jaxprs import depend_on_first
from fcojax.xla.rules import in_full_precision

_NETWORK = UploadTransform("the network", facts=Facts(leaves_out="lost"))


class Keys(NamedTuple):
    """The keys of one client in one round, their data or their shapes.

    A client learns neither the run's own key nor those of others; ``shared`` is one of the round.
    """

    client: Any
    batches: Any
    encode: Any
    shared: Any


class Forms(NamedTuple):
    """The shapes of the arrays that a client receives, keeps and sends.

    ``decoded`` has the shapes of its decoded payload and public parts, and ``form`` is the form of
    its upload.
    """

    message: PyTree
    rows: Rows
    sent: Upload
    decoded: tuple[list, list]
    form: Form


def forms(
    algorithm: Algorithm, plan: Plan, hparams: PyTree, params: Params, examples: PyTree
) -> Forms:
    """Return the shapes for a client with these examples, or examples of these shapes."""
    server, state = jax.eval_shape(algorithm.init, hparams, params)
    message = jax.eval_shape(algorithm.broadcast, hparams, server)
    key, index = jax.eval_shape(lambda: (jax.random.key(0), jnp.int32(0)))
    where = examples, Keys(*(key,) * 4), index
    update = functools.partial(_updated, algorithm, plan)
    payload, public, form = split(jax.eval_shape(update, hparams, message, state, *where).upload)
    rows = jax.eval_shape(lambda state: first_rows(plan, payload, state), state)
    sent, _, _ = answer.eval_shape(algorithm, plan, hparams, message, rows, *where, index)
    return Forms(message, rows, sent, (payload, public), form)


def first_rows(plan: Plan, payload: list, state: PyTree) -> Rows:
    """Return what a client keeps before its first round, given the shapes of its payload."""
    return Rows(state, plan.uploads.first_states(tree.zeros_like(payload))[0])


def begin(
    algorithm: Algorithm, plan: Plan, hparams: PyTree, params: Params, data: ClientData
) -> tuple[PyTree, Memory]:
    """Return the server's first state and what it keeps beside; refuse what does not fit.

    Of the examples in ``data`` only shapes are read.
    """
    if plan.broadcast is not None:
        raise ValueError(
            "messages to real clients are sent whole; pass a plan with broadcast=None."
        )
    require_run(algorithm, plan, hparams, data)
    states = as_first_states(algorithm.init(hparams, params))
    residuals, memory = first_uploads(algorithm, plan, hparams, states, data)
    if plan.uploads.transforms:
        update = functools.partial(one_update, algorithm, plan)
        payload = tree.zeros_like(split(jax.eval_shape(update, hparams, *states, data).upload)[0])
        _require_blind(plan, hparams, payload, residuals, memory)
    return states[0], memory


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
    algorithm, plan, hparams, message, before: Rows, examples, keys: Keys, client, index
) -> tuple[Upload, Rows, Array]:
    """Return a client's upload, what it keeps if that counts, and whether both are finite."""
    result = _updated(algorithm, plan, hparams, message, before.states, examples, keys, client)
    require_same_form("client_update", before.states, result.state)
    at = _at(plan, hparams, index, client, keys.encode, keys.shared)
    (payload, public, _), there = split(result.upload), at._replace(key=None)
    sent, kept = transform.send(plan.uploads, at, payload, before.residuals)
    metrics = merged(result.metrics, sent.metrics, "client_update of the algorithm")
    decoded = transform.decode(plan.uploads, there, sent.wire, payload, before.residuals)
    is_own = _which_are_own(plan, at, payload, before.residuals)
    own = [x for x, mine in zip(jax.tree.leaves(sent.wire), is_own, strict=True) if mine]
    after = Rows(result.state, sent.client_state)
    return Upload(own, public, metrics, kept), after, tree.all_finite((decoded, public, after))


def decode(plan, hparams, sent: Upload, form: Forms, key: Key, index, client) -> tuple:
    """Return the payload and the public parts that a client has sent, with the key of the run."""
    like = tree.zeros_like((form.decoded[0], form.rows.residuals))
    return _decode(plan, hparams, sent, *like, key, index, client)


@jit_per(num_static=1)
@in_full_precision
def _decode(plan, hparams, sent, payload, residuals, key, index, client) -> tuple[list, list]:
    """Return a client's decoded upload; the server computes the parts that were not sent."""
    own = jax.random.fold_in(purpose_key(key, ENCODE, index), client)
    at = _at(plan, hparams, index, client, own, purpose_key(key, SHARED, index))
    known, _ = transform.send(plan.uploads, at, payload, residuals)
    leaves, structure = jax.tree.flatten(known.wire)
    given, is_own = iter(sent.own), _which_are_own(plan, at, payload, residuals)
    leaves = [next(given) if mine else leaf for leaf, mine in zip(leaves, is_own, strict=True)]
    wire = jax.tree.unflatten(structure, leaves)
    there = at._replace(key=None)
    return transform.decode(plan.uploads, there, wire, payload, residuals), sent.public


@jit_per(num_static=2)
@in_full_precision
def step(
    algorithm, plan, schedule, hparams, states, key, index, members, form, given, weights, idle
) -> tuple[PyTree, Memory, Array, dict[str, Array]]:
    """Return the server's state and memory, which members count, and metrics and counts.

    If the server's step is refused, its memory stays too, and no member counts. Noise is keyed by
    ``schedule``, the hyperparameters of the run with their schedules. ``given`` are the members'
    decoded uploads, of the form ``form``, whether each arrived, and whether each is finite.
    ``weights`` are p_m of each member, 0 if it was not asked, p_m of all clients, and the expected
    share of the clients that a cohort has. ``idle`` are a client's state, what its transforms keep,
    and examples, all of zeros; no value is read.
    """
    given, arrives, finite = given
    server, memory = states
    noise_key = folded_by(key, schedule) if plan.uploads.noisy else key
    context = RoundContext(algorithm, plan, hparams, None, key, index, noise_key, memory)
    own, of_all, expected = weights
    everyone = jnp.sum(of_all)
    # Noise has the scale of the largest weight of all clients and is divided by the expected
    # weight, so that neither tells which clients are away.
    none: Any = 0
    weighed = expected * everyone, jnp.max(of_all)
    totals = RoundWeights(none, jnp.sum(own), everyone, none, *weighed)
    shared = purpose_key(key, SHARED, index)

    def contribution(client, sent: Upload) -> Upload:
        at = _at(plan, hparams, index, client, None, shared)._replace(inclusion=_no_inclusion)
        there = sent.own, idle[1], memory.transforms, sent.kept, sent.metrics
        found, kept = transform.opened(plan.uploads, at, *there)
        return Upload(found.payload, sent.public, found.metrics, kept, found.weight, form)

    clients = jax.vmap(contribution)(members, given)
    # Opening an upload can overflow too; one that is lost is not read.
    finite = finite & (jax.vmap(tree.all_finite)(clients.own) | ~arrives)
    # An upload that the network lost is lost, as one is that the plan loses.
    lost = clients.kept.get("lost", True) & arrives
    clients = clients._replace(kept=clients.kept | {"lost": lost})
    counting = context._replace(plan=plan._replace(uploads=chain(plan.uploads, _NETWORK)))
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), clients)
    # Shares, as in `one_round`: the sum does not overflow if the mean is finite.
    shares = own / jnp.where(totals.cohort_weight > 0, totals.cohort_weight, 1)
    places = jnp.arange(shares.size, dtype=jnp.int32)
    tally = empty_tally(counting, one, shares.size, shares.dtype)
    tally, counted = add_clients(counting, tally, clients, finite, shares, places)
    public = None
    if plan.uploads.noisy:  # zeros would tell that nobody took part
        message = algorithm.broadcast(hparams, server)
        empty = idle[0], idle[2], Keys(*[jax.random.key(0)] * 4), jnp.int32(0)
        public = split(_updated(algorithm, plan, hparams, message, *empty).upload)[1]
    given = context, server, tally, totals, one, public
    after, after_memory, _, metrics, counts = server_half(*given)
    # A refused step leaves nothing behind: kept sums would be refused again, in every round, and
    # sites go on from the states that belong to what the server has.
    stays = counts["refused"] > 0
    kept = tree.where(stays, memory, after_memory)
    # As in the history of one round: without a counted client a metric is NaN, not zero.
    measures = {name: value[None] for name, value in (metrics | counts).items()}
    measures = reduced_over_rounds(measures, plan.uploads.names)
    return after, kept, counted & ~stays, measures


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


def _at(plan: Plan, hparams, index, client, key, round_key) -> At:
    return At(hparams, index, client, key, round_key, by_rule=plan.aggregator != MEAN)


def _which_are_own(plan: Plan, at: At, *given) -> list[bool]:
    """Return which arrays of what is sent depend on the upload."""

    def encode(given, *place):
        return transform.send(plan.uploads, _at(plan, *place), *given)[0].wire

    return depend_on_first(encode, given, at.hparams, at.round, at.client, at.key, at.round_key)


def _no_inclusion() -> Array:
    raise ValueError(
        "weights 1/q are for simulations, where all clients' probabilities are known; pass a plan "
        "without inverse_probability."
    )


def _require_blind(plan: Plan, hparams, payload: list, residuals: tuple, memory: Memory) -> None:
    """Raise ``ValueError`` if the server would need what transforms keep at the clients."""
    key, index = jax.random.key(0), jnp.int32(0)
    at = _at(plan, hparams, index, index, key, key)
    there = at._replace(key=None, inclusion=_no_inclusion)

    def read(residuals, payload):
        wire = transform.send(plan.uploads, at, payload, tree.zeros_like(residuals))[0].wire
        decoded = transform.decode(plan.uploads, there, wire, payload, residuals)
        given = decoded, residuals, memory.transforms, {}, {}
        return transform.opened(plan.uploads, there, *given)

    if any(depend_on_first(read, residuals, payload)):
        raise ValueError(
            "a transform of the plan reads on the server what a client keeps, and over a network "
            "the server has no copy of it; pass the plain mean with error feedback."
        )
