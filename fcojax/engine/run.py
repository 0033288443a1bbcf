"""Rounds, scanned: the only loop over rounds there is.

A run is cut into blocks of ``eval_every`` rounds. Inside a block nothing leaves the device; at its
end the model is looked at once.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.local import Work
from fcojax.engine.check import check_run
from fcojax.engine.cohort import Sampler, everyone
from fcojax.engine.round import Plan, chunk_size, one_round
from fcojax.problems.clients import ClientData
from fcojax.types import Array, Key, Params, PyTree

Observe = Callable[[PyTree, Params, PyTree], dict[str, Array]]


class State(NamedTuple):
    """All that a run needs to go on.

    Attributes:
      server: the algorithm's server state.
      clients: one row of the algorithm's client state per client.
      round: how many rounds are behind it.
    """

    server: PyTree
    clients: PyTree
    round: Array


def start(algorithm: Algorithm, hparams: PyTree, params: Params, data: ClientData) -> State:
    """The state before the first round."""
    server, client = algorithm.init(hparams, params)
    num_rows = data.clients_per_shard * data.num_shards
    clients = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (num_rows, *jnp.shape(leaf))), client
    )
    return State(server, clients, jnp.zeros((), jnp.int32))


def block(
    algorithm: Algorithm,
    plan: Plan,
    num_rounds: int,
    hparams: PyTree,
    data: ClientData,
    state: State,
    key: Key,
) -> tuple[State, dict[str, Array]]:
    """``num_rounds`` rounds from ``state``, with the metrics of its clients over the block.

    Client metrics are averaged over the rounds in which a client was heard, NaN if there were none;
    ``participants``, ``dropped`` and, where a cohort loses uploads, ``lost`` are added up.
    """

    def rounds(hparams, data, state, key):
        def body(state, _):
            server, clients, metrics = one_round(
                algorithm,
                plan,
                at_round(hparams, state.round),
                data,
                state.server,
                state.clients,
                key,
                state.round,
            )
            return State(server, clients, state.round + 1), metrics

        state, metrics = jax.lax.scan(body, state, length=num_rounds)
        names = [name for name in ("participants", "dropped", "lost") if name in metrics]
        counts = {name: metrics.pop(name) for name in names}
        heard = counts["participants"] > counts["dropped"] + counts.get("lost", 0)
        means = {name: jnp.mean(values, axis=0, where=heard) for name, values in metrics.items()}
        return state, means | {name: jnp.sum(values) for name, values in counts.items()}

    if data.mesh is None:
        return rounds(hparams, data, state, key)
    everywhere = jax.sharding.PartitionSpec()
    states = (everywhere, data.shard_spec, everywhere)  # of server, clients, round
    return jax.shard_map(
        lambda hparams, data, state, key: rounds(hparams, data, State(*state), key),
        mesh=data.mesh,
        in_specs=(everywhere, data.shard_spec, states, everywhere),
        out_specs=(State(*states), everywhere),  # pyright: ignore[reportArgumentType]
        # Every device computes the same server state from the same mean; that is not inferred
        # through a scan whose carry starts out replicated.
        check_vma=False,
    )(hparams, data, tuple(state), key)


def at_round(hparams: PyTree, index: Array | int) -> PyTree:
    """The hyperparameters of one round: a field with a leading axis is a schedule over rounds."""
    return jax.tree.map(lambda leaf: leaf[index] if jnp.ndim(leaf) else leaf, hparams)


def as_arrays(hparams: PyTree) -> PyTree:
    """Hyperparameters as arrays of the default float type, so that no number is a new trace."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), hparams)


def with_chunk_size(
    plan: Plan,
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params,
    data: ClientData,
    num_points: int = 1,
) -> Plan:
    """The plan with a chunk size that suits the backend, unless it names one.

    ``num_points`` runs share a step's examples but each has states of its own.
    """
    if plan.client_chunk_size is not None:
        return plan
    message = jax.eval_shape(
        lambda hparams, params: algorithm.broadcast(hparams, algorithm.init(hparams, params)[0]),
        at_round(hparams, 0),
        params,
    )
    num_places = plan.cohort.size(data.num_clients)
    size = chunk_size(plan.work, data, tree.num_bytes(message), num_places, num_points)
    return plan._replace(client_chunk_size=size)


def run(
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params,
    data: ClientData,
    key: Key,
    *,
    num_rounds: int,
    work: Work,
    cohort: Sampler | None = None,
    observe: Observe | None = None,
    context: PyTree = None,
    eval_every: int = 1,
    client_chunk_size: int | None = None,
) -> tuple[Params, dict[str, Array]]:
    """Runs ``num_rounds`` rounds in one compiled program; pure, so it can be mapped and nested.

    Args:
      algorithm: what to run; build it once, a rebuilt algorithm is compiled anew.
      hparams: its hyperparameters, scalars by name. A field with a leading axis of length
        ``num_rounds`` is a schedule.
      params: the start point.
      data: the clients.
      key: all the luck of the run. Cohorts and minibatches depend on it and on nothing else, so
        runs with one key can be compared pair by pair.
      num_rounds: R.
      work: ``local_steps(...)`` or ``local_epochs(...)``.
      cohort: who takes part; ``everyone()`` by default.
      observe: ``(hparams, model, context) -> dict``, asked after every ``eval_every`` rounds.
      context: arrays that ``observe`` needs, say a validation set.
      eval_every: rounds between two looks; must divide ``num_rounds``.
      client_chunk_size: clients that work side by side; ``None`` picks it for the backend.

    Returns:
      The model after the last round, and the history: one entry per look of what ``observe``
      said, of the clients' metrics, ``participants``, ``dropped``, ``lost`` where a cohort loses
      uploads, and the ``round``.

    Example:
      >>> import jax, jax.numpy as jnp, numpy as np, fcojax
      >>> data = fcojax.from_clients([{"a": np.array([1.0])}, {"a": np.array([3.0])}])
      >>> loss = lambda w, rows: 0.5 * (w - rows["a"]) ** 2
      >>> model, history = fcojax.run(
      ...     fcojax.algorithms.fed_avg(loss), fcojax.algorithms.fed_avg.Hparams(client_lr=0.5),
      ...     jnp.array(0.0), data, jax.random.key(0), num_rounds=60, work=fcojax.local_steps(1))
      >>> round(float(model), 6)
      2.0
    """
    plan = Plan(work, cohort or everyone(), client_chunk_size)
    check_run(algorithm, plan, hparams, data, num_rounds, eval_every)
    hparams = as_arrays(hparams)
    plan = with_chunk_size(plan, algorithm, hparams, params, data)
    return scan_blocks(
        algorithm, plan, observe, num_rounds, eval_every, hparams, params, data, key, context
    )


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def scan_blocks(
    algorithm: Algorithm,
    plan: Plan,
    observe: Observe | None,
    num_rounds: int,
    eval_every: int,
    hparams: PyTree,
    params: Params,
    data: ClientData,
    key: Key,
    context: PyTree,
) -> tuple[Params, dict[str, Array]]:
    """``run`` with everything checked and chosen."""

    def body(state, _):
        state, metrics = block(algorithm, plan, eval_every, hparams, data, state, key)
        look = look_at(algorithm, observe, hparams, state, context)
        return state, metrics | look | {"round": state.round}

    state = start(algorithm, at_round(hparams, 0), params, data)
    state, history = jax.lax.scan(body, state, length=num_rounds // eval_every)
    return algorithm.model(at_round(hparams, num_rounds - 1), state.server), history


def look_at(
    algorithm: Algorithm, observe: Observe | None, hparams: PyTree, state: State, context: PyTree
) -> dict[str, Array]:
    """What ``observe`` says of the model as it is now."""
    if observe is None:
        return {}
    now = at_round(hparams, jnp.maximum(state.round - 1, 0))
    return observe(now, algorithm.model(now, state.server), context)
