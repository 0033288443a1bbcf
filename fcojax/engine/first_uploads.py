"""What transforms and the aggregator keep at first, and whether they fit the algorithm."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Algorithm, ClientResult
from fcojax.engine.client_loop import local_handle, through_chain
from fcojax.engine.plan import Plan
from fcojax.engine.state import Memory
from fcojax.engine.tally import Contribution, term_of
from fcojax.problems.clients import ClientData
from fcojax.types import PyTree
from fcojax.uploads import transform
from fcojax.uploads.aggregator import MEAN
from fcojax.uploads.broadcast import first_estimate
from fcojax.uploads.forms import split, zeros
from fcojax.uploads.transform import At
from fcojax.xla.jaxprs import depend_on_first


class FirstUploads(NamedTuple):
    """Initial values: one client's transforms, the server's memory, and an empty collection."""

    residuals: tuple = ()
    memory: Memory = Memory()
    collected: PyTree = ()


def one_update(
    algorithm: Algorithm,
    plan: Plan,
    hparams: PyTree,
    server: PyTree,
    client: PyTree,
    data: Any,
    index: Any = None,
) -> ClientResult:
    """Return the result of a client, by default the first, in the first round.

    Callers use only its shapes and what it depends on.
    """
    key, zero = jax.random.key(0), jnp.zeros((), jnp.int32)
    index = zero if index is None else index
    local = local_handle(data.local(), plan.work, key, zero, index, index)
    message = algorithm.broadcast(hparams, server)
    return algorithm.client_update(hparams, message, client, local, key)


def first_uploads(
    algorithm: Algorithm, plan: Plan, hparams: PyTree, states: tuple, data: ClientData
) -> FirstUploads:
    """Return initial values; raise ``ValueError`` if a transform does not fit the algorithm.

    ``states`` are the first ones of the server and of a client.
    """
    server, client = states
    message = algorithm.broadcast(hparams, server) if plan.broadcast else ()
    estimate = first_estimate(plan.broadcast, message)
    # The plain mean keeps nothing, so no client needs to be traced.
    if not plan.uploads.transforms and plan.aggregator == MEAN:
        return FirstUploads(memory=Memory(broadcast=estimate))
    update = functools.partial(one_update, algorithm, plan)
    result = jax.eval_shape(update, hparams, server, client, data)
    if plan.uploads.noisy:
        _require_equal_public_parts(algorithm, plan, hparams, states, data)
    residuals, memory, one = _kept_for(plan, hparams, result)
    estimating = plan.uploads.estimates_all if plan.aggregator == MEAN else None
    # SCAFFOLD adds `fraction` times the mean to its control variate. An estimate over all clients
    # includes the absent ones, and the product would count them wrongly. FedAvg ignores `fraction`,
    # so it passes.
    if estimating and reads_fraction(algorithm, hparams, server, result.upload):
        raise ValueError(
            f"the algorithm's server step depends on fraction, but {estimating.name} estimates the "
            "mean over all clients; pass a transform that leaves the mean of this round's uploads, "
            "such as uploads.ef14(...)."
        )
    term = jax.eval_shape(functools.partial(term_of, plan, hparams, memory), one)
    collected = plan.aggregator.collect.start(term, plan.cohort.size(data.num_clients))
    return FirstUploads(residuals, memory._replace(broadcast=estimate), collected)


def _kept_for(plan: Plan, hparams: PyTree, result: ClientResult) -> tuple:
    """Return one client's first states, the server's memory, and the shapes of a contribution."""
    # They start from zeros, because nothing has been sent yet.
    payload = zeros(split(result.upload)[0])
    residuals, servers = transform.first_states(plan.uploads, payload)
    key, index = jax.random.key(0), jnp.zeros((), jnp.int32)
    by_rule = plan.aggregator != MEAN
    at = At(hparams, index, index, key, key, by_rule=by_rule, inclusion=lambda: jnp.ones(()))

    def contribution(upload) -> Contribution:
        return through_chain(plan, at, upload, residuals, servers)[0]

    # A k beyond the number of entries is refused here.
    one = jax.eval_shape(contribution, result.upload)
    _require_known_size(plan, at, payload, residuals)
    return residuals, Memory(servers, plan.aggregator.init(zeros(one.payload))), one


def reads_fraction(algorithm: Algorithm, hparams: PyTree, server: PyTree, upload: PyTree) -> bool:
    """Return whether the server's step depends on ``fraction``."""

    def step(fraction, hparams, server, upload):
        return algorithm.server_update(hparams, server, upload, fraction, jax.random.key(0))

    # Read from the equations of the traced step, so an unused argument does not count.
    fraction = jax.ShapeDtypeStruct((), jnp.result_type(float))
    return any(depend_on_first(step, fraction, hparams, server, upload))


def _require_equal_public_parts(algorithm, plan, hparams, states, data) -> None:
    """Raise ``ValueError`` if public parts could tell clients apart.

    They are sent without noise. A step count that differs between clients reveals who took part,
    whether or not it depends on the data.
    """
    server, client = states
    work = plan.work
    if work.counts is not None and len(set(work.counts)) == 1:
        # Equal counts, given one by one, do not distinguish clients.
        plan = plan._replace(work=work._replace(counts=None, fewest=None))

    def public(seen, hparams, server):
        client, data, index = seen
        result = one_update(algorithm, plan, hparams, server, client, data, index)
        return split(result.upload)[1]

    # Everything that can differ between two clients, including the index: a plan may give each
    # client its own number of steps.
    seen = client, data, jnp.zeros((), jnp.int32)
    if any(depend_on_first(public, seen, hparams, server)):
        raise ValueError(
            "the plan adds noise, but Public parts of this algorithm's upload depend on the "
            "client or its data and get no noise; pass equal work to all clients, as "
            "local_steps(10) does, or an algorithm without such parts."
        )


def _require_known_size(plan: Plan, at: At, payload: list, residuals: tuple) -> None:
    """Raise ``ValueError`` if the bytes of an upload depend on its values."""

    def num_bytes(given, hparams, round_key):
        here = at._replace(hparams=hparams, round_key=round_key)
        sent, _ = transform.send(plan.uploads, here, *given)
        return jnp.asarray(0 if sent.num_bytes is None else sent.num_bytes)

    # Bytes are computed once in a round, on zeros, and multiplied by the participants.
    if any(depend_on_first(num_bytes, (payload, residuals), at.hparams, at.round_key)):
        raise ValueError(
            "num_bytes of a transform depends on the payload, and bytes are counted once a round "
            "for all clients; let it depend on shapes, hparams and the round's key alone."
        )
