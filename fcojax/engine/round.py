"""One round: draw the cohort, broadcast, run the clients, take one mean, update the server.

The mean of the uploads is the only thing that crosses clients. With a few scalars it is the only
thing that crosses devices.
"""

from typing import Any

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import uncounted
from fcojax.engine.client_loop import client_function, run_clients
from fcojax.engine.members import DOWN, SHARED, Slots, purpose_key, slots_of
from fcojax.engine.tally import RoundContext, Rows, server_half
from fcojax.problems.clients import Clients
from fcojax.types import Array, PyTree, Scalar
from fcojax.uploads.contract import At, Form, RoundWeights, merged, split
from fcojax.xla.rules import rules

# Names of the engine's own counts, which metrics and measures may not use.
COUNTS = ("participants", "dropped", "lost", "late", "refused", "left_out")
TRAFFIC = ("bytes_down", "bytes_up")


def one_round(
    context: RoundContext, server: PyTree, rows: Rows
) -> tuple[PyTree, Rows, PyTree, dict[str, Array]]:
    """Compute one round.

    This runs on one device, or inside ``shard_map`` on each device of the ``clients`` axis, with
    that device's part of the data and of the rows. A client whose upload or new state is not finite
    is dropped. A server step is skipped if its result is not finite or no client counts.

    Returns:
      The new states of the server and of the clients, what the server keeps, and the round's
      metrics and counts.
    """
    algorithm, plan, hparams, data = context.algorithm, context.plan, context.hparams, context.data
    # Every device draws the whole cohort from the key, so no list of members crosses devices.
    cohort, drawn = context.drawn
    estimate = context.memory.broadcast
    message = estimate.message if plan.broadcast else algorithm.broadcast(hparams, server)
    slots = slots_of(plan, data, cohort)
    totals = _total_weights(context, slots)
    # Shares add up to at most one, so that no sum of finite uploads overflows. In float32 the sum
    # of 10,000 uploads of 1e35 with weights of one would, though their mean is finite.
    shares = slots.weights / jnp.where(totals.cohort_weight > 0, totals.cohort_weight, 1)
    slots = slots._replace(weights=shares)

    one_client = client_function(context, message, slots.client_of)
    first = slots.row_indices[0], jax.tree.map(lambda leaf: leaf[0], (rows, drawn))
    # Only shapes are read, so this client is not computed.
    one, _, _ = one_client.eval_shape(*first, max_size=data.max_size)
    tally, rows = run_clients(context, one_client, one, slots, rows)
    # Only this and the weights in `_total_weights` cross devices. With a sum it is one mean upload:
    # W1 on eight devices all-reduces 4 kB a round. A test reads the compiled program to keep it so.
    tally = _over_devices(data, tally)

    # If no client counts, use client 0's public parts: with noise they are the same for all data,
    # as `first_uploads` has checked, while zeros would reveal that nobody took part.
    public = one_client(*first, max_size=data.max_size)[0].public if plan.uploads.noisy else None
    after, memory, taken, metrics, counts = server_half(context, server, tally, totals, one, public)

    if plan.broadcast is not None:
        down = purpose_key(context.key, DOWN, context.index)
        next_message = algorithm.broadcast(hparams, after)
        following = plan.broadcast.following(hparams, estimate, next_message, down)
        taken = taken & tree.all_finite(following)
        memory = memory._replace(broadcast=tree.where(taken, following, estimate))
    sizes = sizes_of(context, message, one.form)
    counts |= _traffic(context, (server, after), sizes, tally.participants)
    return after, rows, memory, merged(metrics, counts, "client_update of the algorithm")


def stacked(metrics: dict[str, Array]) -> dict[tuple[str, ...], Array]:
    """Stack the scalars of one type where a round should write them in one kernel."""
    groups: dict[Any, dict[str, Array]] = {}
    for name, value in metrics.items():
        scalar = rules().few_kernels and not jnp.ndim(value)
        # Traffic has no derivative: its bits are written beside the counts.
        value = value.view(f"i{value.dtype.itemsize}") if scalar and name in TRAFFIC else value
        alike = jnp.result_type(value) if scalar else name
        groups.setdefault(alike, {})[name] = value
    rows = {tuple(group): [*group.values()] for group in groups.values()}
    # One value alone keeps its shape, and its program does not change.
    return {names: jnp.stack(row) if row[1:] else row[0] for names, row in rows.items()}


def unstacked(metrics: dict[tuple[str, ...], Array]) -> dict[str, Array]:
    """Return the metrics by name, from those of several rounds that were stacked in each."""
    found: dict[str, Array] = {}
    for names, value in metrics.items():
        found |= {names[0]: value} if len(names) == 1 else dict(zip(names, value.T, strict=True))
    return found | {name: found[name].view(jnp.result_type(float)) for name in TRAFFIC}


def reduced_over_rounds(metrics: dict[str, Array], names: tuple[str, ...]) -> dict[str, Array]:
    """Sum counts over rounds, and average metrics over the rounds in which any client counts.

    ``names`` are those under which transforms leave clients out.
    """
    summed = dict.fromkeys((*COUNTS, *TRAFFIC, *names))
    counts = {name: metrics.pop(name) for name in summed if name in metrics}
    excluded = sum(counts[name] for name in dict.fromkeys(("dropped", "lost", *names)))
    # Metrics of a round in which no client counts are the zeros of an empty sum, which would pull
    # the mean down. `jnp.mean` over no round at all gives NaN, as documented.
    any_counted = counts["participants"] > excluded
    means = {name: jnp.mean(values, axis=0, where=any_counted) for name, values in metrics.items()}
    return means | {name: jnp.sum(values, axis=0) for name, values in counts.items()}


def _total_weights(context: RoundContext, slots: Slots) -> RoundWeights:
    """Return the weights of a round before any client is counted, over all devices."""
    data = context.data
    # A block of a population on disk holds some clients; `fraction` is a share of all clients.
    weights = data.weights if data.held is None else data.held.weights
    cohort, everyone = _over_devices(data, (jnp.sum(slots.weights), jnp.sum(weights)))
    largest = jnp.max(weights, initial=0)
    largest = jax.lax.pmax(largest, "clients") if data.num_shards > 1 else largest
    # Noisy sums are divided by this, not by the weight of the actual cohort: one client then moves
    # the numerator alone, by a bounded amount.
    expected = context.plan.cohort.mean_size(data.num_clients) / data.num_clients
    none: Any = 0
    return RoundWeights(none, cohort, everyone, none, expected * everyone, largest)


def _over_devices(data: Clients, sums: PyTree) -> PyTree:
    """Sum over the clients of all devices."""
    return jax.lax.psum(sums, "clients") if data.num_shards > 1 else sums


def _traffic(
    context: RoundContext, servers: tuple, sizes: tuple, participants: Array
) -> dict[str, Array]:
    """Return the bytes down and up of a round, all clients together, counted after encoding."""
    # FedPD exchanges nothing in most rounds: the coin that decides is in its state.
    times = context.algorithm.sent(context.hparams, *servers)
    # Absent clients receive a correction too, as they hold the estimate.
    to_all = context.plan.broadcast is not None
    receivers = jnp.asarray(context.data.num_clients) if to_all else participants
    # int32 would overflow: a model of 22 MB for 100 clients is 2.2e9 bytes.
    number = jnp.result_type(float)
    down, up = (
        count.astype(number) * jnp.asarray(often, number) * jnp.asarray(size, number)
        for count, often, size in zip((receivers, participants), times, sizes, strict=True)
    )
    return dict(zip(TRAFFIC, (down, up), strict=True))


def sizes_of(context: RoundContext, message: PyTree, form: Form) -> tuple[Scalar, Scalar]:
    """Return the bytes of a message to one client, and of an upload."""
    estimate, chain = context.memory.broadcast, context.plan.uploads
    down = tree.num_bytes(estimate.sent if context.plan.broadcast else uncounted(message))
    payload, public, _ = split(form.shapes())
    if not chain.transforms:
        return down, tree.num_bytes((payload, public))
    # XLA removes this, except for draws from the round's key, such as MARINA's coin, on which the
    # size may depend.
    shared = purpose_key(context.key, SHARED, context.index)
    at = At(context.hparams, context.index, jnp.zeros_like(context.index), context.key, shared)
    up = chain.num_bytes(at, tree.zeros_like(payload))
    return down, up + tree.num_bytes(public)
