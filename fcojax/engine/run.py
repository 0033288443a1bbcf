"""A run, and a sweep over a grid and seeds, each in one compiled program."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.engine.blocks import blocks, join_histories, padded
from fcojax.engine.hparams import num_points, take
from fcojax.engine.placement.chunk_size import sized
from fcojax.engine.plan import Plan, Program
from fcojax.engine.state import Observe, is_sweep, with_repeats
from fcojax.engine.stepper import (
    advance_donating,
    advance_traced,
    look_compiled,
    look_traced,
    start_compiled,
    start_traced,
)
from fcojax.engine.validation import as_params, as_program
from fcojax.memo import jit_per
from fcojax.problems.clients import ClientData
from fcojax.types import Array, Key, Params, PyTree

Report = Callable[[int, dict[str, Array]], Any]


def run(
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params,
    data: ClientData,
    key: Key,
    plan: Plan | Work,
    *,
    num_rounds: int,
    eval_every: int = 1,
    observe: Observe | None = None,
    context: PyTree = None,
    progress: Report | None = None,
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
    params = as_params(params)
    model, history = _run(program, hparams, params, data, key, context, progress)
    warn_if_nonfinite(history)
    return model, history


def sweep(
    algorithm: Algorithm,
    grid: PyTree,
    params: Params,
    data: ClientData,
    keys: Key,
    plan: Plan | Work,
    *,
    num_rounds: int,
    eval_every: int = 1,
    observe: Observe | None = None,
    context: PyTree = None,
    progress: Report | None = None,
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
    at_once, all_keys = runs_at_once(algorithm, grid, params, data, program.plan, keys)
    parts = []
    for first in range(0, points, at_once):

        def report(rounds, history, first=first):
            assert progress is not None
            done = (first // at_once * num_rounds + rounds) // -(-points // at_once)
            progress(done, take(history, np.s_[: points - first, : keys.size]))

        some = padded(np.arange(points)[first : first + at_once], at_once)
        part = grid if at_once == points else take(grid, some)  # nothing is run for all of them
        given = program, part, params, data, all_keys, context
        parts.append(_run(*given, progress and report))
    found = parts[0] if len(parts) == 1 else jax.tree.map(lambda *x: jnp.concatenate(x), *parts)
    model, history = take(found, np.s_[:points, : keys.size])
    warn_if_nonfinite(history)
    return model, history


@jit_per(num_static=1)
def run_compiled(
    program: Program, hparams: PyTree, params: Params, data: ClientData, key: Key, context: PyTree
) -> tuple[Params, PyTree]:
    """Start, advance and read the model; for a vector of keys with axes [points, seeds]."""
    state = start_traced(program.algorithm, program.plan, None, hparams, params, data, key)
    state, history = advance_traced(program, hparams, data, state, context)
    return look_traced(program.algorithm, None, hparams, state), history


def _run(program: Program, hparams, params, data, key, context, progress: Report | None) -> tuple:
    """Run as one program, or with ``progress`` one for each evaluation and a report after it."""
    if progress is None:
        return run_compiled(program, hparams, params, data, key, context)
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


def runs_at_once(
    algorithm: Algorithm, grid: PyTree, params: Params, data: ClientData, plan: Plan, keys: Key
) -> tuple[int, Key]:
    """Return how many points run together, and the keys, the last one repeated if need be.

    One of both numbers is a multiple of the devices, so that all compute equally many runs.
    """
    numbers = {"num_points": num_points(grid), "num_seeds": keys.size}
    chosen = sized(algorithm, take(grid, 0), params, data, plan, **numbers).point_chunk_size
    assert chosen is not None
    at_once, num_seeds = with_repeats(data, min(chosen, num_points(grid)), keys.size)
    if num_seeds > keys.size:  # otherwise nothing is run or compiled
        keys = keys[np.minimum(np.arange(num_seeds, dtype=np.int32), keys.size - 1)]
    return at_once, keys


def warn_if_nonfinite(history: dict[str, Array]) -> None:
    """Warn once if between two evaluations no upload, or no server step, was finite.

    It waits for the run. It does nothing while tracing, or if a part of the history is in other
    processes.
    """
    counts = [history[name] for name in ("participants", "dropped", "refused")]
    if any(isinstance(count, Tracer) or not count.is_fully_addressable for count in counts):
        return
    participants, dropped, refused = map(np.asarray, counts)
    # An empty cohort is not a failure: coin flips may leave everybody out.
    failed = ((participants > 0) & (dropped >= participants)) | (refused > 0)
    if failed.any():
        first, of_runs = int(np.asarray(history["round"])[failed].min()), failed.any(axis=-1)
        which = "the run"
        if of_runs.ndim:
            points = [str(point) for point in np.flatnonzero(of_runs.any(axis=-1))]
            some = ", ".join(points[:3]) + ", ..." * (len(points) > 3)
            which = f"{of_runs.sum()} of {of_runs.size} runs (of the points {some})"
        warnings.warn(
            f"{which} became non-finite: by round {first} no upload, or no server step, was "
            "finite any more, and such rounds change nothing; pass smaller rates.",
            stacklevel=3,  # the caller of run or sweep
        )
