"""Rounds, one after the other: start, advance, look, read the model.

This is the only loop over rounds. ``run`` and ``sweep`` are a few lines on top of it, and anybody's
own loop may be another few: a ``State`` is all that a run needs to go on.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.device import in_full_precision
from fcojax.engine import axes
from fcojax.engine.check import (
    check_observe,
    check_reading,
    check_rounds,
    check_run,
    checked_init,
    checked_pair,
    checked_params,
    checked_sight,
    refuse_no_state,
)
from fcojax.engine.chunks import Round, Rows
from fcojax.engine.grid import num_points
from fcojax.engine.hparams import as_arrays, at_round
from fcojax.engine.layout import sized
from fcojax.engine.luck import local_handle
from fcojax.engine.memory import shapes_of
from fcojax.engine.outliers import bound_after
from fcojax.engine.plan import Plan, as_plan
from fcojax.engine.round import merged, one_round, summed_up
from fcojax.engine.state import ALONG, Observe, OfState, State, laid_out
from fcojax.engine.surroundings import under_any_mesh
from fcojax.engine.uplink import split
from fcojax.problems.clients import ClientData
from fcojax.types import Array, Key, Params, PyTree


def start(
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params | Callable[[Key], Params],
    data: ClientData,
    key: Key,
    plan: Plan | Work,
) -> State:
    """The state before the first round.

    Args:
      algorithm: what to run.
      hparams: its hyperparameters; for a sweep a grid of them, with a leading axis of points.
      params: the start point, or ``(key) -> params`` that makes one for each seed.
      data: the clients.
      key: all the luck of the run; for a sweep a vector of keys, one a seed.
      plan: how rounds will be driven, or only how much clients work.

    Example:
      >>> import jax, jax.numpy as jnp, numpy as np, fcojax
      >>> data = fcojax.from_clients([{"a": np.array([1.0])}, {"a": np.array([3.0])}])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> hparams, plan = fed_avg.hparams_type(client_lr=0.5), fcojax.local_steps(1)
      >>> state = start(fed_avg, hparams, jnp.array(0.0), data, jax.random.key(0), plan)
      >>> while look(fed_avg, hparams, state, lambda hparams, w, _: {"w": w})["w"] < 1.9:
      ...     state, history = advance(fed_avg, hparams, data, state, plan, num_rounds=2)
      >>> int(state.round), round(float(read_model(fed_avg, hparams, state)), 3)
      (6, 1.969)
    """
    plan = as_plan(plan)
    check_run(algorithm, plan, hparams, data, key)
    hparams = as_arrays(hparams)
    # A fixed start point is an argument of the compiled program; a function is part of it.
    if callable(params):
        init, fixed = checked_init(params), None
    else:
        init, fixed = None, checked_params(params)
    return _start(algorithm, plan, init, hparams, fixed, data, key)


def advance(
    algorithm: Algorithm,
    hparams: PyTree,
    data: ClientData,
    state: State,
    plan: Plan | Work,
    num_rounds: int,
    *,
    eval_every: int = 1,
    observe: Observe | None = None,
    context: PyTree = None,
    donate: bool = False,
) -> tuple[State, dict[str, Array]]:
    """``num_rounds`` rounds from ``state``, in one compiled program.

    Ten rounds are five and five: the state that comes out is the same to the last bit, and the
    histories are two halves of one.

    Args:
      algorithm: what runs, and so are the next three as they were for ``start``.
      hparams: the hyperparameters, or the grid.
      data: the clients.
      state: where to go on from.
      plan: how rounds are driven.
      num_rounds: how many.
      eval_every: rounds between two looks; must divide ``num_rounds``.
      observe: ``(hparams, model, context) -> dict``, asked after every ``eval_every`` rounds; or
        ``OfState`` of a function of the whole state.
      context: arrays that ``observe`` needs, say a validation set.
      donate: whether ``state`` may be overwritten, for those who do not look at it again.

    Returns:
      The state, and the history: one entry per look of what ``observe`` said, of the clients'
      metrics (means over the rounds in which somebody was heard, NaN if there were none), and of
      the engine's counts since the last look: ``participants``, uploads ``dropped`` because they
      were not finite, uploads ``lost``, server steps ``refused`` because they were not finite,
      ``bytes_down`` and ``bytes_up`` of everybody together; with a guard ``outliers``, uploads
      that it dropped; and the ``round``. Entries of a sweep
      have axes [seeds, points] in front.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> hparams, plan = fed_avg.hparams_type(client_lr=0.5), fcojax.local_steps(1)
      >>> state = fcojax.start(fed_avg, hparams, jnp.array(0.0), data, jax.random.key(0), plan)
      >>> state, history = fcojax.advance(
      ...     fed_avg, hparams, data, state, plan, 4, eval_every=2,
      ...     observe=lambda hparams, w, context: {"w": w})
      >>> history["round"].tolist(), history["w"].tolist()
      ([2, 4], [1.5, 1.875])
    """
    plan = as_plan(plan)
    num_rounds, eval_every = check_rounds(num_rounds, eval_every)
    refuse_no_state(state)
    check_run(algorithm, plan, hparams, data, state.key)
    check_observe(observe, context, optional=True)
    hparams = as_arrays(hparams)
    _check_state(algorithm, plan, hparams, data, state)
    static = (algorithm, plan, observe, num_rounds // eval_every, eval_every)
    program = advance_donated if donate else advance_kept
    return program(*static, hparams, data, state, context)


def look(
    algorithm: Algorithm, hparams: PyTree, state: State, observe: Observe, context: PyTree = None
) -> dict[str, Array]:
    """What ``observe`` says of the model as it is now; in a sweep of every seed and point.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> hparams, plan = fed_avg.hparams_type(), fcojax.local_steps(1)
      >>> state = fcojax.start(fed_avg, hparams, jnp.array(3.0), data, jax.random.key(0), plan)
      >>> seen = fcojax.look(fed_avg, hparams, state, lambda hparams, w, context: {"square": w**2})
      >>> float(seen["square"])
      9.0
    """
    check_reading(algorithm, hparams, state)
    check_observe(observe, context)
    return _look(algorithm, observe, as_arrays(hparams), state, context)


def read_model(algorithm: Algorithm, hparams: PyTree, state: State) -> Params:
    """The model as it is now: what one would ship today.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> hparams, plan = fed_avg.hparams_type(), fcojax.local_steps(1)
      >>> state = fcojax.start(fed_avg, hparams, jnp.array(3.0), data, jax.random.key(0), plan)
      >>> float(fcojax.read_model(fed_avg, hparams, state))
      3.0
    """
    check_reading(algorithm, hparams, state)
    return _read(algorithm, as_arrays(hparams), state)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _start(algorithm, plan, init, hparams, params, data, key) -> State:
    return started(algorithm, plan, init, hparams, params, data, key)


@in_full_precision
@under_any_mesh
def started(algorithm, plan, init, hparams, params, data, key) -> State:
    """``start`` with everything checked, as a part of a larger program."""

    def one(hparams, key):
        now = at_round(hparams, 0)
        point = params if init is None else checked_params(init(key))
        server, client = checked_pair(algorithm.init(now, point))
        residual = _first_residual(algorithm, plan, now, (server, client), data)
        num_rows = data.clients_per_shard * data.num_shards
        clients, residuals = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (num_rows, *jnp.shape(leaf))), (client, residual)
        )
        bound = () if plan.guard is None else plan.guard.first()
        return State(server, clients, residuals, jnp.zeros((), jnp.int32), key, bound)

    if not axes.is_sweep(key):
        return laid_out(one(hparams, key), data, ())
    start_of = axes.over_grid(one, data, (axes.PER_POINT, axes.PER_SEED), ALONG)
    return laid_out(start_of(hparams, key), data, (None, "sweep"))


def _first_residual(algorithm, plan, hparams, states, data):
    """What the uplink of one client keeps before its first upload."""
    if plan.uplink is None:
        return ()

    def upload(hparams, states, data):
        server, client = states
        key, zero = jax.random.key(0), jnp.zeros((), jnp.int32)
        local = local_handle(data.local(), plan.work, key, zero, zero, zero)
        message = algorithm.broadcast(hparams, server)
        return algorithm.client_update(hparams, message, client, local, key).upload

    payload, _, _ = split(jax.eval_shape(upload, hparams, states, data))
    return plan.uplink.init([jnp.zeros(leaf.shape, leaf.dtype) for leaf in payload])


@in_full_precision
@under_any_mesh
def advanced(
    algorithm, plan, observe, num_looks, eval_every, hparams, data, state, context
) -> tuple[State, dict[str, Array]]:
    """``advance`` with everything checked, as a part of a larger program."""
    plan = with_sizes(algorithm, plan, hparams, data, state)

    def one(hparams, state):
        def to_next_look(state, _):
            state, metrics = _rounds(algorithm, plan, eval_every, hparams, data, state)
            seen = {} if observe is None else _see(algorithm, observe, hparams, state, context)
            return state, merged(seen, metrics | {"round": state.round}, "observe")

        return jax.lax.scan(to_next_look, state, length=num_looks)

    if not axes.is_sweep(state.key):
        return one(hparams, state)
    given, found = (axes.PER_POINT, ALONG), (ALONG, axes.OWN)
    return axes.over_grid(one, data, given, found)(hparams, state)


_STATIC = (0, 1, 2, 3, 4)
advance_kept = jax.jit(advanced, static_argnums=_STATIC)
advance_donated = jax.jit(advanced, static_argnums=_STATIC, donate_argnames=("state",))


def with_sizes(algorithm, plan, hparams, data, state) -> Plan:
    """The plan with a chunk size, for as many points as there are."""

    def lower(size):
        static = algorithm, plan._replace(client_chunk_size=size), None, 1, 1
        on_mesh = data.mesh and jax.sharding.NamedSharding(data.mesh, data.shard_spec)
        shapes = shapes_of(hparams), shapes_of(data, on_mesh), shapes_of(state)
        return advance_kept.lower(*static, *shapes, None)

    now, server, points = at_round(hparams, 0), state.server, 1
    if axes.is_sweep(state.key):
        points = num_points(hparams)
        now, server = jax.eval_shape(
            lambda hparams, server: (
                jax.tree.map(lambda leaf: leaf[0], hparams),
                jax.tree.map(lambda leaf: leaf[0, 0], server),
            ),
            now,
            server,
        )
    return sized(plan, algorithm, now, server, data, points, lower)


def _rounds(
    algorithm: Algorithm,
    plan: Plan,
    num_rounds: int,
    hparams: PyTree,
    data: ClientData,
    state: State,
) -> tuple[State, dict[str, Array]]:
    """``num_rounds`` rounds, with the metrics of the clients over all of them."""

    def scan(hparams, data, state):
        def body(state, _):
            now = at_round(hparams, state.round)
            this = Round(algorithm, plan, now, data, state.key, state.round, state.bound)
            rows = Rows(state.clients, state.residuals)
            server, rows, metrics = one_round(this, state.server, rows)
            after = state._replace(
                server=server,
                clients=rows.states,
                residuals=rows.residuals,
                round=state.round + 1,
                bound=bound_after(plan.guard, state.bound, metrics),
            )
            return after, metrics

        state, metrics = jax.lax.scan(body, state, length=num_rounds)
        return state, summed_up(metrics)

    if data.mesh is None:
        return scan(hparams, data, state)
    everywhere = jax.sharding.PartitionSpec()
    along = State(everywhere, data.shard_spec, data.shard_spec, *(everywhere,) * 3)
    return jax.shard_map(
        scan,
        mesh=data.mesh,
        in_specs=(everywhere, data.shard_spec, along),
        out_specs=(along, everywhere),
        # Every device computes the same server state from the same mean; that is not inferred
        # through a scan whose carry starts out replicated.
        check_vma=False,
    )(hparams, data, state)


@functools.partial(jax.jit, static_argnums=(0, 1))
@in_full_precision
@under_any_mesh
def _look(algorithm, observe, hparams, state, context):
    def one(hparams, state):
        return _see(algorithm, observe, hparams, state, context)

    return _of_each(one, hparams, state)


@in_full_precision
@under_any_mesh
def model_of(algorithm: Algorithm, hparams: PyTree, state: State) -> Params:
    """``read_model`` as a part of a larger program."""
    return _of_each(lambda hparams, state: _model(algorithm, hparams, state)[1], hparams, state)


_read = jax.jit(model_of, static_argnums=0)


def _of_each(one: Callable, hparams: PyTree, state: State) -> Any:
    """``one(hparams, state)``, in a sweep for every seed and point."""
    if not axes.is_sweep(state.key):
        return one(hparams, state)
    # No mesh is needed here: what is cut along one stays cut.
    return axes.over_grid(one, None, (axes.PER_POINT, ALONG), axes.OWN)(hparams, state)


def _see(algorithm, observe, hparams, state, context) -> dict[str, Array]:
    now, model = _model(algorithm, hparams, state)
    of_state = isinstance(observe, OfState)
    function, what = (observe.function, state) if of_state else (observe, model)
    return checked_sight(function, now, what, context)


def _model(algorithm, hparams, state):
    """The hyperparameters of the last round, and the model."""
    now = at_round(hparams, jnp.maximum(state.round - 1, 0))
    return now, algorithm.model(now, state.server)


def _check_state(algorithm, plan, hparams, data, state) -> None:
    """Raises unless the state is one that ``start`` makes of the other arguments."""
    try:
        fresh = _remade.eval_shape(algorithm, plan, hparams, data, state)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            "the state is none of this algorithm: its model cannot be read from it "
            f"({str(error).splitlines()[0]}); pass one that fcojax.start made with it."
        ) from error
    culprits = {
        "server": "another algorithm, another start point or another grid",
        "clients": f"another algorithm or another population than these {data.num_clients} clients",
        "residuals": "another plan, whose uplink keeps something else",
        "bound": "another plan, whose guard is another",
        "key": "another number of seeds",
    }
    for name, whose in culprits.items():
        wanted, found = getattr(fresh, name), getattr(state, name)
        if jax.tree.map(_form, wanted) != jax.tree.map(_form, found):
            raise ValueError(
                f"the state's {name} do not fit: they are of {whose}; pass a state that "
                "fcojax.start made of the same arguments."
            )


def _form(leaf) -> tuple:
    return jnp.shape(leaf), jnp.result_type(leaf)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _remade(algorithm, plan, hparams, data, state) -> State:
    """What ``start`` makes of the state's own model."""
    one_hparams, one_state = hparams, state
    if axes.is_sweep(state.key):
        one_hparams = jax.tree.map(lambda leaf: leaf[0], hparams)
        one_state = state._replace(server=jax.tree.map(lambda leaf: leaf[0, 0], state.server))
    params = _model(algorithm, one_hparams, one_state)[1]
    return started(algorithm, plan, None, hparams, params, data, state.key)
