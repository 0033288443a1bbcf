"""One round: draw the cohort, broadcast, let the clients work, take one mean, step the server.

The weighted mean of the uploads is the only thing that crosses clients, and with a few scalars the
only thing that crosses devices.
"""

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import ClientResult
from fcojax.engine.chunks import (
    Round,
    Rows,
    Tally,
    client_of,
    places_of,
    refuse_other_form,
    work_of,
)
from fcojax.engine.guard import guarded
from fcojax.engine.luck import FINISH, SERVER, draw_cohort, purpose_key
from fcojax.engine.uplink import Heard, plain_mean, split
from fcojax.problems.clients import ClientData
from fcojax.types import Array, PyTree

# What the engine itself counts; no algorithm and no observer may use these names.
COUNTS = ("participants", "dropped", "lost", "refused", "outliers")
TRAFFIC = ("bytes_down", "bytes_up")


def one_round(this: Round, server: PyTree, rows: Rows) -> tuple[PyTree, Rows, dict[str, Array]]:
    """One round from the given states to the next ones, with its metrics and counts.

    Runs on one device, or inside ``shard_map`` on each device of the ``clients`` axis with that
    device's part of the data and of the rows. A client whose upload or new state is not finite is
    dropped; a server step that is not finite, or for which nobody was heard, is not taken.
    """
    data, uplink = this.data, this.plan.uplink
    cohort = draw_cohort(this.plan, data, this.key, this.index)
    message = this.algorithm.broadcast(this.hparams, server)
    places = places_of(this, cohort)
    one_client = client_of(this, message, places.first_client)
    shapes, _ = jax.eval_shape(one_client, places.rows[0], jax.tree.map(lambda leaf: leaf[0], rows))
    everyone = data.weights if data.held is None else data.held.weights
    weights = jnp.sum(places.weights), jnp.sum(everyone)
    cohort_weight, population_weight = _over_devices(data, weights)
    shares = places.weights / jnp.where(cohort_weight > 0, cohort_weight, 1)
    tally, rows = work_of(this, one_client, shapes, places._replace(weights=shares), rows)
    tally = _over_devices(data, tally)
    count = tally.participants - tally.dropped - tally.lost - tally.outliers
    heard = Heard(tally.weight, cohort_weight, population_weight, count)
    mean_upload, metrics = _means(this, tally, heard, shapes)
    fraction = tally.weight * (cohort_weight / population_weight)
    step = guarded(this.algorithm.server_update, lambda server: server)
    server_key = purpose_key(this.key, SERVER, this.index)
    moved, finite = step(
        this.hparams, server, mean_upload, cohort._replace(fraction=fraction), server_key
    )
    refuse_other_form("server_update", server, moved)
    tried = (count > 0) | (uplink is not None and uplink.steps_when_empty)
    after = tree.where(tried & finite, moved, server)
    refused = jnp.where(tried & ~finite, 1, 0).astype(jnp.int32)
    counts = (tally.participants, tally.dropped, tally.lost, refused, tally.outliers)
    traffic = _traffic(this, (server, after), (message, shapes), tally.participants)
    ours: dict[str, Array] = dict(zip((*COUNTS, *TRAFFIC), (*counts, *traffic), strict=True))
    if this.plan.guard is None:
        del ours["outliers"]
    return after, rows, merged(metrics, ours, "client_update of the algorithm")


def merged(theirs: dict[str, Array], ours: dict[str, Array], whose: str) -> dict[str, Array]:
    """Both dictionaries in one; a name that both use is refused."""
    taken = sorted(set(theirs) & set(ours))
    if taken:
        raise ValueError(
            f"{whose} returns a measure called {taken[0]}, which the engine counts itself; "
            "choose another name."
        )
    return theirs | ours


def summed_up(metrics: dict[str, Array]) -> dict[str, Array]:
    """Counts added up over the rounds; metrics averaged over those in which anybody was heard."""
    counts = {name: metrics.pop(name) for name in (*COUNTS, *TRAFFIC) if name in metrics}
    unheard = counts["dropped"] + counts["lost"]
    heard = counts["participants"] > unheard + counts.get("outliers", 0)
    means = {name: jnp.mean(values, axis=0, where=heard) for name, values in metrics.items()}
    return means | {name: jnp.sum(values, axis=0) for name, values in counts.items()}


def _over_devices(data: ClientData, sums: PyTree) -> PyTree:
    """Sums over the clients of all devices, from those of this one."""
    return jax.lax.psum(sums, "clients") if data.num_shards > 1 else sums


def _means(
    this: Round, tally: Tally, heard: Heard, shapes: ClientResult
) -> tuple[PyTree, dict[str, Array]]:
    """The mean upload, as the uplink finishes it, and the mean of the clients' metrics."""
    total, metrics = tally.weighted
    key = purpose_key(this.key, FINISH, this.index)
    if this.plan.uplink is None:
        mean = plain_mean(this.hparams, total, heard, key)
    else:
        payload, public, join = split(total)
        finished = this.plan.uplink.finish(this.hparams, payload, heard, key)
        mean = join(finished, plain_mean(this.hparams, public, heard, key))
    metrics = plain_mean(this.hparams, metrics, heard, key)
    return tree.cast_means(mean, shapes.upload), tree.cast_means(metrics, shapes.metrics)


def _traffic(this: Round, servers, payloads, participants: Array) -> tuple[Array, Array]:
    """Bytes down and up of one round, all clients together, counted after encoding."""
    message, shapes = payloads
    times = this.algorithm.sent(this.hparams, *servers)
    each = tree.num_bytes(message), _upload_bytes(this, shapes)
    number = jnp.result_type(float)
    down, up = (
        participants.astype(number) * jnp.asarray(often, number) * float(size)
        for often, size in zip(times, each, strict=True)
    )
    return down, up


def _upload_bytes(this: Round, shapes: ClientResult) -> int:
    if this.plan.uplink is None:
        return tree.num_bytes(shapes.upload)
    payload, public, _ = split(shapes.upload)
    encoded, _ = jax.eval_shape(
        this.plan.uplink.encode, this.hparams, payload, shapes.state.residuals, this.key
    )
    return tree.num_bytes(encoded) + tree.num_bytes(public)
