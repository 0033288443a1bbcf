"""Initial residuals and memory, and whether algorithm, codec and aggregator fit together."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Algorithm, ClientResult
from fcojax.engine.aggregation import Contribution, contribution_of
from fcojax.engine.aggregator import MEAN, Change, Codec, RoundWeights, split
from fcojax.engine.client_loop import local_handle, through_codec
from fcojax.engine.participation.counting import codec_of
from fcojax.engine.plan import Plan
from fcojax.problems.clients import ClientData
from fcojax.types import PyTree
from fcojax.xla.jaxprs import depend_on_first


class FirstUploads(NamedTuple):
    """Initial values: one client's residual, the server's memory, and an empty collection."""

    residual: PyTree = ()
    memory: PyTree = ()
    collected: PyTree = ()


def one_update(
    algorithm: Algorithm, plan: Plan, hparams: PyTree, server: PyTree, client: PyTree, data: Any
) -> ClientResult:
    """Return the result of the first client in the first round; callers use only its shapes."""
    return _update_of(algorithm, plan, hparams, server, client, data, jnp.zeros((), jnp.int32))


def _update_of(algorithm, plan, hparams, server, client, data, index) -> ClientResult:
    # Any key and round will do: callers read only shapes and dependences from the result.
    key, zero = jax.random.key(0), jnp.zeros((), jnp.int32)
    local = local_handle(data.local(), plan.work, key, zero, index, index)
    message = algorithm.broadcast(hparams, server)
    return algorithm.client_update(hparams, message, client, local, key)


def first_uploads(
    algorithm: Algorithm, plan: Plan, hparams: PyTree, states: tuple, data: ClientData
) -> FirstUploads:
    """Return initial values; raise ``ValueError`` if algorithm, codec and aggregator do not fit.

    Args:
      algorithm: the algorithm of the run.
      plan: how rounds are run.
      hparams: the hyperparameters of the first round.
      states: the first states of the server and of a client.
      data: the clients.
    """
    # The plain mean keeps nothing, so no client needs to be traced.
    if plan.codec is None and plan.aggregator is MEAN and plan.correct is None:
        return FirstUploads()
    server, client = states
    update = functools.partial(one_update, algorithm, plan)
    result = jax.eval_shape(update, hparams, server, client, data)
    if plan.aggregator.noisy:
        _require_equal_public_parts(algorithm, plan, hparams, states, data)
    residual, memory, one = _kept_for(plan, hparams, result)
    _require_fitting(algorithm, plan, hparams, server, result, memory, one)
    collected = plan.aggregator.collect.start(one.term, plan.cohort.size(data.num_clients))
    return FirstUploads(residual, memory, collected)


def _kept_for(
    plan: Plan, hparams: PyTree, result: ClientResult
) -> tuple[PyTree, PyTree, Contribution]:
    """Return one client's residual, the server's memory, and the shapes of a contribution."""
    # Residuals and memory start from zeros, because nothing has been sent yet.
    zeros = [jnp.zeros(leaf.shape, leaf.dtype) for leaf in split(result.upload)[0]]
    residual, key, codec = (), jax.random.key(0), codec_of(plan)
    if codec is not None:
        residual = codec.init(zeros)
        # A k beyond the number of entries is refused here.
        through = functools.partial(through_codec, codec)
        upload, _ = jax.eval_shape(through, hparams, result.upload, residual, key, key)
        result = result._replace(upload=upload)
        _require_known_size(codec, hparams, zeros, residual)
    is_change = isinstance(result.upload, Change)
    if is_change != plan.aggregator.takes_changes:
        raise ValueError(
            "codec and aggregator do not belong together: one of them is for corrections of an "
            "estimate, the other for whole uploads; pass both of "
            "uploads.ef21(...), as in Plan(work, cohort, *uploads.ef21(...)), or neither."
        )
    memory = plan.aggregator.init(Change(zeros) if is_change else zeros)
    one = jax.eval_shape(
        functools.partial(contribution_of, plan.aggregator), hparams, memory, result
    )
    return residual, memory, one


def _require_fitting(algorithm, plan, hparams, server, result, memory, one) -> None:
    """Raise ``ValueError`` if an algorithm does not allow the codec or the aggregator of a plan.

    An estimate of the mean over all clients is wrong where the server's step depends on
    ``fraction``, as a sum of uploads does.
    """
    codec = plan.codec
    if codec is not None and codec.feeds_back and algorithm.codecs != "any":
        raise ValueError(
            "the codec adds its error to later uploads, which have another meaning in this "
            "algorithm; pass a codec without feedback, such as uploads.compressed(...)."
        )
    if one.keep is not None and algorithm.needs_everyone:
        raise ValueError(
            "the aggregator can leave clients out, but this algorithm averages the states of all "
            "clients and needs each of them in every round; pass another aggregator."
        )
    found = jax.eval_shape(functools.partial(_finished, plan, hparams, memory), one.term)
    # SCAFFOLD adds `fraction` times the mean to its control variate. An estimate over all clients
    # includes the absent ones, and the product would count them wrongly. FedAvg ignores `fraction`,
    # so it passes.
    estimates = found.fraction is None or plan.correct is not None
    if estimates and reads_fraction(algorithm, hparams, server, result.upload):
        cause, advice = "aggregator returns an", "one that returns"
        if plan.correct is not None:
            cause, advice = f"plan has correct={plan.correct!r}, an", "correct=None, for"
        raise ValueError(
            f"the algorithm's server step depends on fraction, but the {cause} "
            f"estimate of the mean over all clients; pass {advice} the mean of this "
            "round's uploads, as with the codec uploads.ef14(...)."
        )


def reads_fraction(algorithm: Algorithm, hparams: PyTree, server: PyTree, upload: PyTree) -> bool:
    """Return whether the server's step depends on ``fraction``."""

    def step(fraction, hparams, server, upload):
        return algorithm.server_update(hparams, server, upload, fraction, jax.random.key(0))

    # Read from the equations of the traced step, so an unused argument does not count.
    fraction = jax.ShapeDtypeStruct((), jnp.result_type(float))
    return any(depend_on_first(step, fraction, hparams, server, upload))


def _finished(plan: Plan, hparams: PyTree, memory: PyTree, term: PyTree) -> Any:
    """Return the aggregator's result for a round in which no client counts."""
    one, zero = jnp.ones(()), jnp.zeros((), jnp.int32)
    # Any numbers will do: callers read only the form of the result.
    weights = RoundWeights(0 * one, one, one, zero, zero, one, one)
    shapes = jax.eval_shape(lambda: term)
    collected = plan.aggregator.collect.start(shapes, 1)
    return plan.aggregator.finish(hparams, collected, weights, memory, jax.random.key(0))


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
        result = _update_of(algorithm, plan, hparams, server, client, data, index)
        return split(result.upload)[1]

    # Everything that can differ between two clients, including the index: a plan may give each
    # client its own number of steps.
    seen = client, data, jnp.zeros((), jnp.int32)
    if any(depend_on_first(public, seen, hparams, server)):
        raise ValueError(
            "the aggregator adds noise, but Public parts of this algorithm's upload depend on the "
            "client or its data and get no noise; pass equal work to all clients, as "
            "local_steps(10) does, or an algorithm without such parts."
        )


def _require_known_size(codec: Codec, hparams: PyTree, payload: list, residual: PyTree) -> None:
    """Raise ``ValueError`` if the bytes of an upload depend on its values."""

    def num_bytes(given, hparams, round_key):
        encoded, _ = codec.encode(hparams, *given, jax.random.key(0), round_key)
        return jnp.asarray(codec.num_bytes(hparams, encoded))

    # Bytes are computed once in a round, on zeros, and multiplied by the participants.
    if any(depend_on_first(num_bytes, (payload, residual), hparams, jax.random.key(0))):
        raise ValueError(
            "num_bytes of the codec depends on the payload, and bytes are counted once a round for "
            "all clients; let it depend on shapes, hparams and the round's key alone."
        )
