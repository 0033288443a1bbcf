"""The loop over rounds: a run, a sweep, and the programs under them: start, advance, look.

This is the only loop over rounds: ``solve``, ``Stream`` and a user's own loop call its programs.
Names in the engine: the public function checks its arguments, ``_compiled`` is the jitted program,
and ``_traced`` is its body, for use inside larger programs.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.engine.blocks import blocks, join_histories, padded
from fcojax.engine.hparams import at_round, num_points, take
from fcojax.engine.members import draws, folded_by
from fcojax.engine.nonfinite import remember
from fcojax.engine.plan import Plan, Program
from fcojax.engine.round import one_round, reduced_over_rounds, stacked, unstacked
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
    with_auto_axes,
)
from fcojax.engine.tally import RoundContext, Rows, first_uploads
from fcojax.engine.validation import as_first_states, as_params, as_program
from fcojax.memo import jit_per
from fcojax.problems.clients import Clients
from fcojax.types import Array, Key, Params, PyTree
from fcojax.uploads.contract import merged
from fcojax.xla.loops import rewritten, scan_some
from fcojax.xla.rules import in_full_precision, side_by_side

if TYPE_CHECKING:
    from fcojax.problems.client_data import ClientData

# How much runs together where a plan leaves it open: here all clients of a cohort, and all points
# of a sweep. `engine.placement.chunk_size` has the rules, by cache and memory, and puts them here.
SIZES: dict[str, Callable[..., Any]] = {
    "clients": lambda plan, *given: plan.client_chunk_size,
    "runs": lambda algorithm, grid, params, data, plan, keys: (num_points(grid), keys),
}


def run(
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params,
    data: "ClientData",
    key: Key,
    plan: Plan | Work,
    *,
    num_rounds: int,
    eval_every: int = 1,
    observe: Observe | None = None,
    context: PyTree = None,
    progress: Callable[[int, dict[str, Array]], Any] | None = None,
) -> tuple[Params, dict[str, Array]]:
    """Run an algorithm; a pure function, so it can be vmapped, jitted and differentiated.

    Args:
      algorithm: an ``Algorithm``, which a factory such as ``fed_avg(loss)`` returns.
      hparams: its hyperparameters: a named tuple of numbers, or of schedules made by
        ``fcojax.schedule``.
      params: the start point.
      data: the clients.
      key: PRNG key, the only source of randomness. Two runs with the same key use the same cohorts
        and minibatches.
      plan: how rounds are run: a ``Plan``, or only how much clients work, ``local_steps(...)``
        or ``local_epochs(...)``, if everyone takes part.
      num_rounds: number of rounds.
      eval_every: rounds between two evaluations; must divide ``num_rounds``.
      observe: ``(hparams, model, context) -> dict`` of arrays, evaluated after every
        ``eval_every`` rounds; or a ``StateObserver`` of the whole state.
      context: arrays that ``observe`` needs, such as a validation set.
      progress: ``(rounds, history)``, called on the host after every ``eval_every`` rounds with the
        number of rounds so far and the new entry of the history, while the next rounds are
        computed. The run then calls one program per evaluation instead of one program for all
        rounds, with the same result. It cannot be used inside ``jit`` or ``vmap``.

    Returns:
      The model after the last round, and the history as ``fcojax.advance`` returns it.

    Example:
      >>> import jax, jax.numpy as jnp, numpy as np, fcojax
      >>> data = fcojax.from_clients([{"a": np.array([1.0])}, {"a": np.array([3.0])}])
      >>> loss = lambda w, rows: 0.5 * (w - rows["a"]) ** 2
      >>> model, history = fcojax.run(
      ...     fcojax.algorithms.fed_avg(loss), fcojax.algorithms.fed_avg.Hparams(client_lr=0.5),
      ...     jnp.array(0.0), data, jax.random.key(0), fcojax.local_steps(1), num_rounds=60)
      >>> round(float(model), 6)
      2.0
    """
    if is_sweep(key):
        raise ValueError(
            f"key is a vector of {key.size} keys; pass one key to run, or use fcojax.sweep."
        )
    rounds = num_rounds, eval_every
    program, hparams = as_program(algorithm, hparams, data, key, plan, *rounds, observe)
    ran = functools.partial(_with_progress, progress) if progress is not None else run_compiled
    model, history = ran(program, hparams, as_params(params), data, key, context)
    remember(history)
    return model, history


def sweep(
    algorithm: Algorithm,
    grid: PyTree,
    params: Params,
    data: "ClientData",
    keys: Key,
    plan: Plan | Work,
    *,
    num_rounds: int,
    eval_every: int = 1,
    observe: Observe | None = None,
    context: PyTree = None,
    progress: Callable[[int, dict[str, Array]], Any] | None = None,
) -> tuple[Params, PyTree]:
    """Run every point of a grid for every key, in one compiled program.

    The points of a seed share its cohorts and minibatches. The arguments are those of ``run``, with
    hyperparameters that have a leading axis of points, as ``fcojax.grid.product`` makes them, and a
    vector of keys, one per seed. On a mesh with an axis ``sweep`` devices share the points. If
    memory does not hold all points, or more than the plan's ``point_chunk_size``, they run in
    parts, one after the other; then the history that ``progress`` is given covers one part, and the
    rounds are a mean over the parts.

    Returns:
      The models and the history of all runs, with leading axes [points, seeds].

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> grid = fcojax.grid.product(fed_avg.hparams_type, client_lr=[0.25, 0.5, 1.0])
      >>> models, history = fcojax.sweep(
      ...     fed_avg, grid, jnp.array(0.0), data, jax.random.split(jax.random.key(0), 2),
      ...     fcojax.local_steps(1), num_rounds=2)
      >>> models.tolist()  # three rates, two seeds
      [[0.875, 0.875], [1.5, 1.5], [2.0, 2.0]]
    """
    if not is_sweep(keys):
        raise ValueError(
            "keys is a single key; pass one for each seed, as in "
            "jax.random.split(jax.random.key(0), 3), or key[None] for one seed."
        )
    rounds = num_rounds, eval_every
    program, grid = as_program(algorithm, grid, data, keys, plan, *rounds, observe)
    params, points = as_params(params), num_points(grid)
    # All parts have the same size, the last one filled up with copies of the last point, so one
    # program serves them.
    at_once, all_keys = SIZES["runs"](algorithm, grid, params, data, program.plan, keys)
    parts = []
    for first in range(0, points, at_once):

        def report(rounds, history, first=first):
            assert progress is not None
            done = (first // at_once * num_rounds + rounds) // -(-points // at_once)
            progress(done, take(history, np.s_[: points - first, : keys.size]))

        some = padded(np.arange(points)[first : first + at_once], at_once)
        part = grid if at_once == points else take(grid, some)  # nothing is run for all of them
        ran = functools.partial(_with_progress, report) if progress is not None else run_compiled
        parts.append(ran(program, part, params, data, all_keys, context))
    found = parts[0] if len(parts) == 1 else jax.tree.map(lambda *x: jnp.concatenate(x), *parts)
    model, history = take(found, np.s_[:points, : keys.size])
    remember(history)
    return model, history


@in_full_precision
@with_auto_axes
def start_traced(
    algorithm: Algorithm, plan: Plan, init, hparams, params, data: Clients, key: Key
) -> State:
    """Body of ``start``; ``init`` makes the start point from a key, or is ``None``."""

    def one(hparams, key):
        now = at_round(hparams, 0)
        point = params if init is None else as_params(init(key))
        server, client = as_first_states(algorithm.init(now, point))
        residuals, memory = first_uploads(algorithm, plan, now, (server, client), data)
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
    program: Program, hparams, data: Clients, state: State, context, num_rounds=None
) -> tuple[State, dict[str, Array]]:
    """Body of ``advance``; runs ``num_rounds`` before an evaluation if that is given."""
    algorithm, plan, observe, num_evaluations, length = program
    points = num_points(hparams) if is_sweep(state.key) else 1
    runs = points * state.key.size

    def one(hparams, state):
        given = plan, algorithm, at_round(hparams, 0), state.server, data, points
        chunked = plan._replace(client_chunk_size=SIZES["clients"](*given))
        places = plan.cohort.size(data.num_clients)
        at_once = runs * min(chunked.client_chunk_size or places, places)

        def rounds(hparams, data, state, num_rounds):
            """Run the rounds up to the next evaluation; reduce the clients' metrics over them."""
            noise_key = state.key
            if any(one.receive is not None for one in plan.uploads.transforms):
                # Fold in the whole schedule, so that two schedules that agree in one round draw
                # different noise there.
                noise_key = folded_by(state.key, hparams)

            drawn = draws(plan, data, state.key, state.round, length)

            def body(state, _):
                # A schedule is data that the loop reads, so a new schedule needs no new program.
                now, at = at_round(hparams, state.round), (state.key, state.round)
                given = now, data, *at, noise_key, state.memory, drawn(*at)
                rows = Rows(state.clients, state.residuals)
                with side_by_side(at_once if runs > 1 else None):
                    found = one_round(RoundContext(algorithm, chunked, *given), state.server, rows)
                server, rows, memory, metrics = found
                return State(server, *rows, state.round + 1, state.key, memory), stacked(metrics)

            state, metrics = scan_some(body, state, length, num_rounds)
            return state, reduced_over_rounds(unstacked(metrics), plan.uploads.names)

        if data.mesh is not None:
            # The whole block of rounds is one `shard_map`: rows of clients stay on their devices
            # from the first round to the last, and reads and writes of rows are local.
            everywhere = jax.sharding.PartitionSpec()
            specs = State(everywhere, data.shard_spec, data.shard_spec, *(everywhere,) * 3)
            rounds = jax.shard_map(
                rounds,
                mesh=data.mesh,
                in_specs=(everywhere, data.shard_spec, specs, everywhere),
                out_specs=(specs, everywhere),
                # Every device computes the same server state from the same mean; that is not
                # inferred through a scan whose carry starts out replicated.
                check_vma=False,
            )

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
    return rewritten(function)(now, argument, context)


@jit_per(num_static=1)
def run_compiled(
    program: Program, hparams: PyTree, params: Params, data: Clients, key: Key, context: PyTree
) -> tuple[Params, PyTree]:
    """Start, advance and read the model; for a vector of keys with axes [points, seeds]."""
    state = start_traced(program.algorithm, program.plan, None, hparams, params, data, key)
    state, history = advance_traced(program, hparams, data, state, context)
    return look_traced(program.algorithm, None, hparams, state), history


def _with_progress(progress, program: Program, hparams, params, data, key, context) -> tuple:
    """Run one program for each evaluation, and report after it."""
    leaves = jax.tree.leaves((hparams, params, data, key, context))
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        raise ValueError("progress is called on the host; pass None inside jit and vmap.")
    one, every = program._replace(num_evaluations=1), program.rounds_per_evaluation

    def advance(points, state, first, last):
        return advance_donating(one, hparams, data, state, context)

    state = start_compiled(program.algorithm, program.plan, None, hparams, params, data, key)
    ends, histories = range(every, every * program.num_evaluations + 1, every), []
    for block in blocks(advance, state, ends):
        # Only finished rounds are reported.
        progress(block.rounds, jax.block_until_ready(block.history))
        histories.append(block.history)
        state = block.state
    joined = join_histories(histories, axis=2 * key.ndim)
    return look_compiled(program.algorithm, None, hparams, state), joined
