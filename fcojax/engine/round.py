"""One round: draw the cohort, broadcast, run the clients, take one mean, update the server.

The weighted mean of the uploads is the only thing that crosses clients. With a few scalars it is
the only thing that crosses devices.
"""

import functools

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import ClientResult
from fcojax.engine.client_loop import (
    RoundContext,
    Rows,
    client_function,
    received,
    require_same_form,
    run_clients,
    slots_of,
)
from fcojax.engine.randomness import DOWN, FINISH, SERVER, SHARED, draw_cohort, purpose_key
from fcojax.engine.tally import Tally, merged
from fcojax.engine.uploads import downlink
from fcojax.engine.uploads.nonfinite import guarded
from fcojax.engine.uploads.uplink import RoundWeights, plain_mean, split
from fcojax.problems.clients import ClientData
from fcojax.types import Array, PyTree, Scalar

# Names of the engine's own counts, which metrics and measures may not use.
COUNTS = ("participants", "dropped", "lost", "refused", "outliers")
TRAFFIC = ("bytes_down", "bytes_up")


def one_round(
    context: RoundContext, server: PyTree, rows: Rows
) -> tuple[PyTree, Rows, PyTree, dict[str, Array]]:
    """Compute one round.

    Runs on one device, or inside ``shard_map`` on each device of the ``clients`` axis with that
    device's part of the data and of the rows. A client whose upload or new state is not finite is
    dropped. A server step is skipped if its result is not finite or no client counts.

    Args:
      context: what is constant in this round.
      server: the server's state.
      rows: the clients' states.

    Returns:
      The new states of the server and of the clients, the uplink's new memory, and the round's
      metrics and counts.
    """
    data = context.data
    cohort = draw_cohort(context.plan, data, context.key, context.index)
    if context.members is not None:
        cohort = cohort._replace(members=context.members)
    message = context.algorithm.broadcast(context.hparams, server)
    slots = slots_of(context, cohort)
    one_client = client_function(context, message, slots.first_client)
    shapes, _ = jax.eval_shape(one_client, slots.rows[0], jax.tree.map(lambda leaf: leaf[0], rows))
    population = data.weights if data.held is None else data.held.weights
    weights = jnp.sum(slots.weights), jnp.sum(population)
    cohort_weight, population_weight = _over_devices(data, weights)
    largest = jnp.max(population, initial=0)
    largest = jax.lax.pmax(largest, "clients") if data.num_shards > 1 else largest
    expected = context.plan.cohort.mean_size(data.num_clients) / data.num_clients
    shares = slots.weights / jnp.where(cohort_weight > 0, cohort_weight, 1)
    slots, uplink = slots._replace(weights=shares), context.uplink

    def one_pass(memory):
        now = _with_uplink_memory(context, memory)
        tally, after = run_clients(now, one_client, shapes, slots, rows)
        return _over_devices(data, tally), after

    def to_next_pass(_, memory):
        return uplink.between(context.hparams, one_pass(memory)[0].collected[0], memory)

    memory = context.uplink_memory
    if uplink.num_passes > 1:
        memory = jax.lax.fori_loop(0, uplink.num_passes - 1, to_next_pass, memory)
    tally, rows = one_pass(memory)
    context = _with_uplink_memory(context, memory)
    totals = cohort_weight, population_weight, expected * population_weight, largest
    public = None
    if context.uplink.steps_when_empty:
        # With noise, public parts do not depend on the data; an empty round takes client 0's.
        result, _ = one_client(slots.rows[0], jax.tree.map(lambda leaf: leaf[0], rows))
        _, public, _ = received(context, result)
    after, memory, metrics, counts = server_step(context, server, tally, totals, shapes, public)
    traffic = _traffic(context, (server, after), (message, shapes), tally.participants)
    ours = counts | dict(zip(TRAFFIC, traffic, strict=True))
    return after, rows, memory, merged(metrics, ours, "client_update of the algorithm")


def server_step(
    context: RoundContext,
    server: PyTree,
    tally: Tally,
    totals: tuple[Array, Array, Array, Array],
    shapes: ClientResult,
    public: list | None = None,
) -> tuple[PyTree, PyTree, dict[str, Array], dict[str, Array]]:
    """Compute the server's part of a round, from the sums over its clients.

    Args:
      context: what is constant in this round.
      server: the server's state.
      tally: the sums; each client's weight in them is its share of the cohort's.
      totals: the weights of the cohort, of the population, of a cohort on average, and of the
        heaviest client.
      shapes: shapes of one client's result.
      public: the public parts in a round in which no client counts; zeros by default.

    Returns:
      The new state of the server, the uplink's new memory, the mean metrics and the counts.
    """
    count = tally.participants - tally.dropped - tally.lost - tally.outliers
    cohort_weight, population_weight, expected_weight, largest = totals
    round_weights = RoundWeights(
        tally.weight, cohort_weight, population_weight, count, expected_weight, largest
    )
    fraction = context.uplink.fraction(round_weights)
    mean_upload, metrics, memory = _means(context, tally, round_weights, shapes, fraction, public)
    step = guarded(context.algorithm.server_update, lambda server: server)
    server_key = purpose_key(context.key, SERVER, context.index)
    stepped, finite = step(context.hparams, server, mean_upload, fraction, server_key)
    require_same_form("server_update", server, stepped)
    attempted = (count > 0) | context.uplink.steps_when_empty
    after = tree.where(attempted & finite, stepped, server)
    if context.plan.downlink is not None:  # where there is no step, nothing is broadcast
        kept = context.memory._replace(uplink=memory.uplink)
        memory = tree.where(attempted & finite, memory, kept)
    refused = jnp.where(attempted & ~finite, 1, 0).astype(jnp.int32)
    numbers = (tally.participants, tally.dropped, tally.lost, refused, tally.outliers)
    counts: dict[str, Array] = dict(zip(COUNTS, numbers, strict=True))
    if context.plan.outliers is None:
        del counts["outliers"]
    return after, memory, metrics, counts


def reduced_over_rounds(metrics: dict[str, Array]) -> dict[str, Array]:
    """Sum counts over rounds, and average metrics over the rounds in which any client counts."""
    counts = {name: metrics.pop(name) for name in (*COUNTS, *TRAFFIC) if name in metrics}
    excluded = counts["dropped"] + counts["lost"]
    any_counted = counts["participants"] > excluded + counts.get("outliers", 0)
    means = {name: jnp.mean(values, axis=0, where=any_counted) for name, values in metrics.items()}
    return means | {name: jnp.sum(values, axis=0) for name, values in counts.items()}


def _with_uplink_memory(context: RoundContext, memory: PyTree) -> RoundContext:
    if context.plan.downlink is None:
        return context._replace(memory=memory)
    return context._replace(memory=context.memory._replace(uplink=memory))


def _over_devices(data: ClientData, sums: PyTree) -> PyTree:
    """Sum over the clients of all devices."""
    return jax.lax.psum(sums, "clients") if data.num_shards > 1 else sums


def _means(
    context: RoundContext,
    tally: Tally,
    weights: RoundWeights,
    shapes: ClientResult,
    fraction: Array,
    alone: list | None,
) -> tuple[PyTree, dict[str, Array], PyTree]:
    """Return the mean upload, the mean metrics and the new memory.

    The mean is the one after ``finish``, ``recall`` and the downlink.
    """
    hparams, uplink, (total, public, metrics) = context.hparams, context.uplink, tally.collected
    payload, _, join = split(shapes.upload)
    _, _, measured = jax.eval_shape(functools.partial(received, context), shapes)
    key = purpose_key(context.key, FINISH, context.index)
    finished = uplink.finish(hparams, total, weights, key)
    mean, memory = uplink.recall(hparams, finished, context.uplink_memory, fraction)
    sums = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, tree.mean_dtype(leaf.dtype)), payload)
    require_same_form("finish and recall of the uplink", sums, mean, "payload")
    require_same_form("recall of the uplink", context.uplink_memory, memory, "memory")
    if context.plan.downlink is not None:
        key_down = purpose_key(context.key, DOWN, context.index)
        memory = context.memory._replace(uplink=memory)
        mean, memory = downlink.through(
            context.plan.downlink,
            hparams,
            tree.cast_means(mean, payload),
            memory,
            key_down,
            fraction,
        )
    public = plain_mean(hparams, public, weights, key)
    if alone is not None:
        public = jax.tree.map(
            lambda a, b: jnp.where(weights.count > 0, a, b.astype(a.dtype)), public, alone
        )
    mean = join(mean, public)
    metrics = plain_mean(hparams, metrics, weights, key)
    metrics = tree.cast_means(metrics, measured)
    return tree.cast_means(mean, shapes.upload), metrics, memory


def _traffic(context: RoundContext, servers, payloads, participants) -> tuple[Array, Array]:
    """Return bytes down and up of one round, all clients together, counted after encoding."""
    message, shapes = payloads
    times = context.algorithm.sent(context.hparams, *servers)
    each = tree.num_bytes(message), context.uplink.num_passes * _upload_bytes(context, shapes)
    receivers = participants
    if context.plan.downlink is not None:  # absent clients receive it too, to take the same steps
        payload, public, _ = split(shapes.upload)
        size = downlink.num_bytes(
            context.plan.downlink, context.hparams, payload, public, context.key
        )
        each, receivers = (size, each[1]), jnp.asarray(context.data.num_clients)
    number = jnp.result_type(float)
    down, up = (
        count.astype(number) * jnp.asarray(often, number) * jnp.asarray(size, number)
        for count, often, size in zip((receivers, participants), times, each, strict=True)
    )
    return down, up


def _upload_bytes(context: RoundContext, shapes: ClientResult) -> Scalar:
    if context.plan.uplink is None:
        return tree.num_bytes(shapes.upload)
    payload, public, _ = split(shapes.upload)
    shared_key = purpose_key(context.key, SHARED, context.index)
    known = context.plan.uplink.of_round(context.hparams, shared_key)
    encoded, _ = jax.eval_shape(
        context.plan.uplink.encode, known, payload, shapes.state.residuals, context.key
    )
    sent = context.plan.uplink.num_bytes(known, encoded)
    return sent + tree.num_bytes(public)
