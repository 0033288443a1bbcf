"""The loop over rounds: start, advance, look, read the model.

This is the only loop over rounds. ``run``, ``sweep``, ``solve`` and ``Stream`` are thin layers on
top of it, and so is a user's own loop: a ``State`` is all that a run needs to continue.

Names in the engine: the public function checks its arguments, ``_compiled`` is the jitted program,
and ``_traced`` is its body, for use inside larger programs.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.engine.client_loop import RoundContext, Rows
from fcojax.engine.first_uploads import first_uploads
from fcojax.engine.hparams import as_arrays, at_round, require_hparams
from fcojax.engine.placement.auto_axes import with_auto_axes
from fcojax.engine.placement.chunk_size import with_chunk_size
from fcojax.engine.plan import Plan, Program
from fcojax.engine.randomness import folded_by
from fcojax.engine.round import one_round, reduced_over_rounds
from fcojax.engine.state import (
    PER_POINT,
    PER_RUN,
    PER_SEED,
    STATE_AXES,
    Observe,
    State,
    StateObserver,
    is_sweep,
    on_mesh,
    over_grid,
)
from fcojax.engine.validation import as_first_states, as_params, as_program
from fcojax.memo import jit_per
from fcojax.problems.clients import ClientData
from fcojax.types import Array, Key, Params, PyTree
from fcojax.uploads.forms import merged
from fcojax.xla.loops import scan_some
from fcojax.xla.rewriting import fast_inside_loops
from fcojax.xla.rules import in_full_precision


def start(
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params | Callable[[Key], Params],
    data: ClientData,
    key: Key,
    plan: Plan | Work,
) -> State:
    """Return the state before the first round, from which ``advance`` continues.

    The arguments are those of ``run``, or with a grid and a vector of keys those of ``sweep``; then
    the parts of the state have leading axes [points, seeds]. ``params`` may also be a function
    ``(key) -> params`` that makes a start point for each seed.

    Example:
      >>> import jax, jax.numpy as jnp, numpy as np, fcojax
      >>> data = fcojax.from_clients([{"a": np.array([1.0])}, {"a": np.array([3.0])}])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> hparams, plan = fed_avg.hparams_type(client_lr=0.5), fcojax.local_steps(1)
      >>> state = start(fed_avg, hparams, jnp.array(0.0), data, jax.random.key(0), plan)
      >>> while look(fed_avg, hparams, state, lambda hparams, w, _: {"w": w})["w"] < 1.9:
      ...     state, history = advance(fed_avg, hparams, state, data, plan, num_rounds=2)
      >>> int(state.round), round(float(read_model(fed_avg, hparams, state)), 3)
      (6, 1.969)
    """
    program, hparams = as_program(algorithm, hparams, data, key, plan)
    # A fixed start point is an argument of the compiled program; a function is part of it. A pytree
    # may be callable too, such as an Equinox module.
    is_made = callable(params) and jax.tree_util.all_leaves([params])
    init, fixed = (params, None) if is_made else (None, as_params(params))
    return start_compiled(algorithm, program.plan, init, hparams, fixed, data, key)


def advance(
    algorithm: Algorithm,
    hparams: PyTree,
    state: State,
    data: ClientData,
    plan: Plan | Work,
    *,
    num_rounds: int,
    eval_every: int = 1,
    observe: Observe | None = None,
    context: PyTree = None,
) -> tuple[State, dict[str, Array]]:
    """Advance a state by a number of rounds, in one compiled program.

    The arguments are those of ``run`` or ``sweep``, with a state in place of the start point and
    the key. Ten rounds give the same state and history as five and five, to the last bit. The plan
    may change in between, for example to fewer local steps, except for its transforms of uploads
    and its aggregator, whose memory is in the state. Inside ``jax.jit`` with ``donate_argnums`` the
    new state takes the memory of the old one.

    Returns:
      The new state, and the history, with one entry per evaluation: what ``observe`` returned; the
      clients' metrics (means over the rounds in which any client counts, NaN if there is none); the
      counts since the last evaluation, which are ``participants``, uploads ``dropped`` because they
      were not finite, uploads ``lost``, server steps ``refused`` because they were not finite,
      ``bytes_down`` and ``bytes_up`` of all clients together, and those that a transform leaves
      out, under its name, such as ``late`` and ``left_out``; and ``round``. In a sweep all have
      leading axes [points, seeds].

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> hparams, plan = fed_avg.hparams_type(client_lr=0.5), fcojax.local_steps(1)
      >>> state = fcojax.start(fed_avg, hparams, jnp.array(0.0), data, jax.random.key(0), plan)
      >>> state, history = fcojax.advance(
      ...     fed_avg, hparams, state, data, plan, num_rounds=4, eval_every=2,
      ...     observe=lambda hparams, w, context: {"w": w})
      >>> history["round"].tolist(), history["w"].tolist()
      ([2, 4], [1.5, 1.875])
    """
    rounds = num_rounds, eval_every
    program, hparams = continued(algorithm, hparams, state, data, plan, rounds, observe)
    return advance_compiled(program, hparams, data, state, context)


def look(
    algorithm: Algorithm, hparams: PyTree, state: State, observe: Observe, context: PyTree = None
) -> dict[str, Array]:
    """Return what ``observe`` returns for a state, in a sweep with leading axes [points, seeds].

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> hparams, plan = fed_avg.hparams_type(), fcojax.local_steps(1)
      >>> state = fcojax.start(fed_avg, hparams, jnp.array(3.0), data, jax.random.key(0), plan)
      >>> found = fcojax.look(fed_avg, hparams, state, lambda hparams, w, context: {"square": w**2})
      >>> float(found["square"])
      9.0
    """
    require_hparams(hparams, is_sweep(state.key), expected=algorithm.hparams_type)
    return look_compiled(algorithm, observe, as_arrays(hparams), state, context)


def read_model(algorithm: Algorithm, hparams: PyTree, state: State) -> Params:
    """Return the current model, in a sweep with leading axes [points, seeds].

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> hparams, plan = fed_avg.hparams_type(), fcojax.local_steps(1)
      >>> state = fcojax.start(fed_avg, hparams, jnp.array(3.0), data, jax.random.key(0), plan)
      >>> float(fcojax.read_model(fed_avg, hparams, state))
      3.0
    """
    require_hparams(hparams, is_sweep(state.key), expected=algorithm.hparams_type)
    return look_compiled(algorithm, None, as_arrays(hparams), state)


@in_full_precision
@with_auto_axes
def start_traced(
    algorithm: Algorithm, plan: Plan, init, hparams, params, data: ClientData, key: Key
) -> State:
    """Body of ``start``; ``init`` makes the start point from a key, or is ``None``."""

    def one(hparams, key):
        now = at_round(hparams, 0)
        point = params if init is None else as_params(init(key))
        server, client = as_first_states(algorithm.init(now, point))
        residuals, memory, _ = first_uploads(algorithm, plan, now, (server, client), data)
        # Includes the clients that pad a population to a multiple of the devices.
        num_rows = data.clients_per_shard * data.num_shards
        clients, residuals = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (num_rows, *jnp.shape(leaf))), (client, residuals)
        )
        return State(server, clients, residuals, jnp.zeros((), jnp.int32), key, memory)

    if is_sweep(key):
        one = over_grid(one, data, (PER_POINT, PER_SEED), STATE_AXES)
    return on_mesh(one(hparams, key), data)


start_compiled = jit_per(num_static=3)(start_traced)


@in_full_precision
@with_auto_axes
def advance_traced(
    program: Program, hparams, data: ClientData, state: State, context, num_rounds=None
) -> tuple[State, dict[str, Array]]:
    """Body of ``advance``; runs ``num_rounds`` before an evaluation if that is given."""
    algorithm, _, observe, num_evaluations, length = program
    plan = with_chunk_size(program.plan, algorithm, hparams, data, state)

    def rounds(hparams, data, state, num_rounds):
        """Run the rounds up to the next evaluation; reduce the clients' metrics over them."""
        noise_key = state.key
        if any(one.receive is not None for one in plan.uploads.transforms):
            # Fold in the whole schedule, so that two schedules that agree in one round draw
            # different noise there.
            noise_key = folded_by(state.key, hparams)

        def body(state, _):
            # A schedule is data that the loop reads, so a new schedule needs no new program.
            now = at_round(hparams, state.round)
            given = now, data, state.key, state.round, noise_key, state.memory
            rows = Rows(state.clients, state.residuals)
            found = one_round(RoundContext(algorithm, plan, *given), state.server, rows)
            server, rows, memory, metrics = found
            return State(server, *rows, state.round + 1, state.key, memory), metrics

        state, metrics = scan_some(body, state, length, num_rounds)
        return state, reduced_over_rounds(metrics, plan.uploads.names)

    if data.mesh is not None:
        # The whole block of rounds is one `shard_map`: rows of clients stay on their devices from
        # the first round to the last, and reads and writes of rows are local.
        everywhere = jax.sharding.PartitionSpec()
        specs = State(everywhere, data.shard_spec, data.shard_spec, *(everywhere,) * 3)
        rounds = jax.shard_map(
            rounds,
            mesh=data.mesh,
            in_specs=(everywhere, data.shard_spec, specs, everywhere),
            out_specs=(specs, everywhere),
            # Every device computes the same server state from the same mean; that is not inferred
            # through a scan whose carry starts out replicated.
            check_vma=False,
        )

    def one(hparams, state):
        # A scan over blocks of rounds, with one evaluation after each block. One scan over all
        # rounds would need a branch in every round, for which an accelerator waits, and a history
        # with one entry a round.
        def to_next_evaluation(state, _):
            state, metrics = rounds(hparams, data, state, num_rounds)
            measures = {} if observe is None else _seen(algorithm, observe, context, hparams, state)
            return state, merged(measures, metrics | {"round": state.round}, "observe")

        return jax.lax.scan(to_next_evaluation, state, length=num_evaluations)

    if not is_sweep(state.key):
        return one(hparams, state)
    # Keys have no axis of points: all points share cohorts and minibatches (common random numbers).
    # They then differ by their hyperparameters alone, and a minibatch is gathered once for all.
    return over_grid(one, data, (PER_POINT, STATE_AXES), (STATE_AXES, PER_RUN))(hparams, state)


advance_compiled = jit_per(num_static=1)(advance_traced)
advance_donating = jit_per(num_static=1, donate_argnums=2)(advance_traced)


@in_full_precision
@with_auto_axes
def look_traced(
    algorithm: Algorithm, observe: Observe | None, hparams, state: State, context=None, data=None
) -> Any:
    """Body of ``look``, or without ``observe`` of ``read_model``.

    ``data`` gives the mesh that shares the points of a sweep, if any.
    """
    one = functools.partial(_seen, algorithm, observe, context)
    if is_sweep(state.key):
        # Without a mesh arrays keep the sharding that they have.
        one = over_grid(one, data, (PER_POINT, STATE_AXES), PER_RUN)
    return one(hparams, state)


look_compiled = jit_per(num_static=2)(look_traced)


def _seen(algorithm, observe, context, hparams, state):
    # The model is the result of the last round, so it is evaluated with that round's
    # hyperparameters; before the first round, with those of the first.
    now = at_round(hparams, jnp.maximum(state.round - 1, 0))
    model = algorithm.model(now, state.server)
    if observe is None:
        return model
    whole = isinstance(observe, StateObserver)
    function, argument = (observe.function, state) if whole else (observe, model)
    # An observer runs inside the loop over blocks, where XLA's own form of a convolution is up to a
    # hundred times slower than outside.
    return fast_inside_loops(function)(now, argument, context)


def continued(
    algorithm: Algorithm, hparams, state: State, data: ClientData, plan, rounds: tuple, observe
) -> tuple[Program, PyTree]:
    """Return ``as_program`` for further rounds of a state.

    It raises ``ValueError`` unless ``start`` returns states of this form for the other arguments.
    """
    given = data, state.key, plan, *rounds, observe, state.round
    program, hparams = as_program(algorithm, hparams, *given)
    # Traced only, so no value of the state is read.
    fresh = _restarted.eval_shape(algorithm, program.plan, hparams, data, state)
    for name, expected, found in zip(State._fields, fresh, state, strict=True):
        if _forms(expected) != _forms(found):
            raise ValueError(
                f"state.{name} does not fit: it comes from another algorithm, start point, grid or "
                f"population than these {data.num_clients} clients, or from a plan with other "
                "uploads; pass a state that fcojax.start made with the same arguments."
            )
    return program, hparams


def _forms(arrays: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: (jnp.shape(leaf), jnp.result_type(leaf)), arrays)


@jit_per(num_static=2)
def _restarted(algorithm, plan, hparams, data, state) -> State:
    """Return a state of the form that ``start`` makes, from the model of a state."""
    params = look_traced(algorithm, None, hparams, state)
    if is_sweep(state.key):
        params = jax.tree.map(lambda leaf: leaf[0, 0], params)
    return start_traced(algorithm, plan, None, hparams, params, data, state.key)
