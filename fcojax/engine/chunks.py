"""The clients of a cohort at work: chunk after chunk, into one sum.

Memory is one chunk of clients and not one cohort. A client is *heard* if its upload arrives and is
finite; only then does it count in the sums and keep its new state.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Cohort
from fcojax.branches import largest_of_all
from fcojax.engine import ragged
from fcojax.engine.guard import guarded
from fcojax.engine.luck import CLIENT, ENCODE, local_handle, purpose_key
from fcojax.engine.plan import Plan
from fcojax.engine.uplink import split
from fcojax.pieces import piece
from fcojax.problems.clients import ClientData
from fcojax.problems.fields import shown
from fcojax.types import Array, Key, PyTree


class Round(NamedTuple):
    """What stands still while the clients of one round work.

    Attributes:
      algorithm: what runs.
      plan: how, with every size chosen.
      hparams: the hyperparameters of this round.
      data: the clients of this device.
      key: the run's.
      index: which round, from zero.
      bound: the norm that the plan's guard lets uploads have, if it has one.
    """

    algorithm: Algorithm
    plan: Plan
    hparams: PyTree
    data: ClientData
    key: Key
    index: Array
    bound: Any = ()


class Places(NamedTuple):
    """The cohort's places on this device.

    Attributes:
      rows: of each member in this device's lists.
      weights: of each in the mean, 0 where a place is empty.
      arrives: whose uploads reach the server, or ``None`` if all do.
      first_client: the client in this device's first row.
      can_be_empty: whether skipping empty chunks is worth a branch.
    """

    rows: Array
    weights: Array
    arrives: Array | None
    first_client: Array | int
    can_be_empty: bool


class Rows(NamedTuple):
    """What belongs to the clients, one row each: the algorithm's state and the uplink's."""

    states: PyTree
    residuals: PyTree


class Tally(NamedTuple):
    """Sums over the clients seen so far."""

    weighted: tuple[PyTree, dict]  # uploads and metrics, each times its client's weight
    weight: Array
    participants: Array
    dropped: Array
    lost: Array
    outliers: Array


OneClient = Callable[..., tuple[ClientResult, Array]]  # (row, rows before, max_size)


def places_of(this: Round, cohort: Cohort) -> Places:
    """The places of the cohort that this device works for, with the weights p_m."""
    data, first_client = this.data, 0
    members, weights, arrives = cohort.members, cohort.weights, cohort.arrives
    can_be_empty = this.plan.cohort.can_be_absent
    if members is None:
        members = jnp.arange(data.num_clients, dtype=jnp.int32)
    if data.num_shards > 1:
        first_client = jax.lax.axis_index("clients") * data.clients_per_shard
        can_be_empty = True
        if cohort.members is None:
            members = first_client + jnp.arange(data.clients_per_shard, dtype=jnp.int32)
            weights = weights.at[members].get(mode="fill", fill_value=0)
            if arrives is not None:
                arrives = arrives.at[members].get(mode="fill", fill_value=False)
        mine = (members >= first_client) & (members < first_client + data.clients_per_shard)
        # Own members first: the chunks after them are empty and are skipped.
        order = jnp.argsort(~mine)
        members, weights = members[order], jnp.where(mine, weights, 0)[order]
        arrives = None if arrives is None else arrives[order]
    if data.held is None:
        rows = members - first_client
    else:
        rows = jnp.searchsorted(data.held.members, members).astype(members.dtype)
    rows = jnp.clip(rows, 0, data.clients_per_shard - 1)
    each = jax.vmap(lambda row: piece(data.weights, row, 1)[0])(rows)
    weights = jnp.where(weights > 0, weights * each, 0)
    return Places(rows, weights, arrives, first_client, can_be_empty)


def work_of(
    this: Round, one_client: OneClient, shapes: ClientResult, places: Places, rows: Rows
) -> tuple[Tally, Rows]:
    """Lets the clients in these places work; their sums, and all rows with the new ones put back.

    The weights are shares of the cohort's: they add up to at most one, so that no sum of finite
    uploads overflows. ``shapes`` are those of one client's result.
    """
    num_places = places.rows.shape[0]
    num_chunks = -(-num_places // (this.plan.client_chunk_size or num_places))
    per_chunk = -(-num_places // num_chunks)
    places = _padded(this, places, num_chunks * per_chunk - num_places)
    if ragged.sizes_matter(this.plan.work, this.data) and 1 < per_chunk < num_places:
        order = ragged.alike(ragged.needs(this.data, places.rows, places.weights))
        places = places._replace(
            rows=places.rows[order],
            weights=places.weights[order],
            arrives=None if places.arrives is None else places.arrives[order],
        )

    def one_chunk(carry, chunk):
        tally, all_rows = carry
        members, weights, arrives = chunk
        before = jax.tree.map(lambda leaf: leaf[members], all_rows)
        result, finite = _results(this, one_client, places.can_be_empty, (members, weights), before)
        sound = finite, arrives, _admitted(this, result)
        tally, heard = _add(tally, result, sound, weights)
        # Rows beyond the end are not written: whoever was not heard keeps its state.
        target = jnp.where(heard, members, this.data.clients_per_shard)
        after = jax.tree.map(
            lambda leaf, new: leaf.at[target].set(new, mode="drop"), all_rows, result.state
        )
        return (tally, after), None

    start = (_empty_tally(shapes, places.weights.dtype), rows)
    chunks = jax.tree.map(
        lambda column: column.reshape(num_chunks, per_chunk),
        (places.rows, places.weights, places.arrives),
    )
    if num_chunks == 1:
        return one_chunk(start, jax.tree.map(lambda leaf: leaf[0], chunks))[0]
    return jax.lax.scan(one_chunk, start, chunks)[0]


def _padded(this: Round, places: Places, padding: int) -> Places:
    """Empty places at the end, so that all chunks are equally long."""
    arrives = None if places.arrives is None else jnp.pad(places.arrives, (0, padding))
    return places._replace(
        rows=jnp.pad(places.rows, (0, padding)),
        weights=jnp.pad(places.weights, (0, padding)),
        arrives=arrives,
        can_be_empty=places.can_be_empty or padding > 0,
    )


def client_of(this: Round, message: PyTree, first_client: Array | int) -> OneClient:
    """``(row, rows before, max_size) -> (result, finite)``: one client's work and its upload."""
    algorithm, plan, data = this.algorithm, this.plan, this.data
    client_key = purpose_key(this.key, CLIENT, this.index)
    encode_key = purpose_key(this.key, ENCODE, this.index)

    def client_and_uplink(hparams, message, before: Rows, local, key, encode_key):
        result = algorithm.client_update(hparams, message, before.states, local, key)
        if not isinstance(result, ClientResult):
            raise ValueError(
                f"client_update returned {shown(result)}; return a ClientResult(state, upload, "
                "metrics)."
            )
        refuse_other_form("client_update", before.states, result.state)
        if plan.uplink is None:
            return result._replace(state=Rows(result.state, before.residuals))
        payload, public, join = split(result.upload)
        encoded, residual = plan.uplink.encode(hparams, payload, before.residuals, encode_key)
        upload = join(plan.uplink.decode(encoded), public)
        return result._replace(state=Rows(result.state, residual), upload=upload)

    work = guarded(client_and_uplink, lambda result: (result.upload, result.state))

    @functools.partial(jax.jit, static_argnames="max_size")  # traced once, wherever it is used
    def one_client(row, before: Rows, max_size=data.max_size) -> tuple[ClientResult, Array]:
        client = first_client + row if data.held is None else data.held.members[row]
        local = local_handle(data, plan.work, this.key, this.index, client, row, max_size)
        keys = jax.random.fold_in(client_key, client), jax.random.fold_in(encode_key, client)
        return work(this.hparams, message, before, local, *keys)

    return one_client


def refuse_other_form(whose: str, before: PyTree, after: PyTree) -> None:
    """Raises unless the state that a function returned has the form of the one it was given."""
    wanted, found = (
        jax.tree.map(lambda leaf: f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}", state)
        for state in (before, after)
    )
    if wanted != found:
        raise ValueError(
            f"{whose} returned a state of another form, {shown(found)}, than it was given, "
            f"{shown(wanted)}; return one of the same structure, shapes and dtypes."
        )


def _results(this: Round, one_client, can_be_empty: bool, members, before: Rows):
    """The results of one chunk, padded to the least bound that holds it; zeros for nobody."""
    rows, weights = members
    bounds = ragged.bounds_for(this.plan.work, this.data)

    def padded_results(max_size, rows, before):
        work = functools.partial(one_client, max_size=max_size)
        if rows.shape[0] > 1:
            return jax.vmap(work)(rows, before)
        result = work(rows[0], jax.tree.map(lambda leaf: leaf[0], before))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], result)

    def results(rows, before):
        if len(bounds) == 1:
            return padded_results(this.data.max_size, rows, before)
        which = ragged.branch(bounds, ragged.needs(this.data, rows, weights))
        branches = [functools.partial(padded_results, bound) for bound in bounds]
        return jax.lax.switch(which, branches, rows, before)

    if not can_be_empty:
        return results(rows, before)
    results = jax.jit(results)
    shapes = jax.eval_shape(results, rows, before)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    needed = largest_of_all(jnp.any(weights > 0))
    return jax.lax.cond(needed, results, lambda rows, before: nothing, rows, before)


def _empty_tally(result: ClientResult, dtype) -> Tally:
    weighted = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, tree.mean_dtype(leaf.dtype)),
        (result.upload, result.metrics),
    )
    none = jnp.zeros((), jnp.int32)
    return Tally(weighted, jnp.zeros((), dtype), none, none, none, none)


def _admitted(this: Round, result: ClientResult) -> Array | None:
    """Whose uploads the plan's guard lets in; ``None`` for all."""
    if this.plan.guard is None:
        return None
    return jax.vmap(this.plan.guard.admits, in_axes=(0, None))(result.upload, this.bound)


def _add(tally: Tally, result: ClientResult, judged: tuple, weights: Array) -> tuple[Tally, Array]:
    """The tally with one more chunk in it, and who of the chunk was heard.

    ``judged`` says whose results are finite, whose arrive and whose the guard admits; ``None`` for
    the last two stands for all.
    """
    finite, arrives, admitted = judged
    present = weights > 0
    sound = present & finite
    arrived = sound if arrives is None else sound & arrives
    heard = arrived if admitted is None else arrived & admitted
    weights = jnp.where(heard, weights, 0)

    def accumulate(total, terms):
        columns = (-1, *(1,) * (terms.ndim - 1))
        # Masked before it is multiplied: zero times NaN is NaN.
        counted = jnp.where(heard.reshape(columns), terms.astype(total.dtype), 0)
        return total + jnp.sum(weights.astype(total.dtype).reshape(columns) * counted, axis=0)

    def count(who):
        return jnp.sum(who, dtype=jnp.int32)

    return Tally(
        jax.tree.map(accumulate, tally.weighted, (result.upload, result.metrics)),
        tally.weight + jnp.sum(weights),
        tally.participants + count(present),
        tally.dropped + count(present & ~finite),
        tally.lost + count(sound & ~arrived),
        tally.outliers + count(arrived & ~heard),
    ), heard
