"""A sweep: runs over a grid of hyperparameters and over seeds, in one compiled program."""

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.engine.hparams import as_arrays, num_points, take
from fcojax.engine.placement.chunk_size import sized
from fcojax.engine.plan import Plan, Program, as_plan
from fcojax.engine.run import (
    Report,
    run_compiled,
    run_in_blocks,
    warn_if_nonfinite,
)
from fcojax.engine.state import Observe, is_sweep, with_repeats
from fcojax.engine.validation import as_params, as_round_counts, require_run, require_schedules
from fcojax.problems.clients import ClientData
from fcojax.types import Array, Key, Params, PyTree


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

    The points of a seed share its cohorts and minibatches.

    Args:
      algorithm: an ``Algorithm``, which a factory such as ``fed_avg(loss)`` returns.
      grid: its hyperparameters with a leading axis of points, as ``fcojax.grid.product`` makes
        them.
      params: the start point of all runs.
      data: the clients. On a mesh with an axis ``sweep`` the points are sharded over it.
      keys: a vector of PRNG keys, one per seed.
      plan: how rounds are run: a ``Plan``, or a ``Work`` if everyone takes part. Its
        ``point_chunk_size`` is the number of points that run together.
      num_rounds: number of rounds.
      eval_every: rounds between two evaluations; must divide ``num_rounds``.
      observe: ``(hparams, model, context) -> dict`` of arrays, evaluated after every
        ``eval_every`` rounds.
      context: arrays that ``observe`` needs, such as a validation set.
      progress: ``(rounds, history)``, called as by ``run``. Where the points run in several parts,
        one after the other, the history covers one part and the rounds are a mean over the parts.

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
    plan = as_plan(plan)
    num_rounds, eval_every = as_round_counts(num_rounds, eval_every)
    if not is_sweep(keys):
        raise ValueError(
            "keys is a single key; pass one for each seed, as in "
            "jax.random.split(jax.random.key(0), 3), or key[None] for one seed."
        )
    require_run(algorithm, plan, grid, data, keys)
    require_schedules(grid, num_rounds, sweeping=True)
    params = as_params(params)
    grid = as_arrays(grid)
    points = num_points(grid)
    # Memory decides how many points run together. All parts have the same size, the last one filled
    # up with copies of the last point, so one program serves them.
    at_once, num_seeds = runs_at_once(algorithm, grid, params, data, plan, keys.size)
    num_chunks = -(-points // at_once)
    padded = pad(grid, num_chunks * at_once)
    all_keys = repeated(keys, num_seeds)
    program = Program(algorithm, plan, observe, num_rounds // eval_every, eval_every)

    def run_points(part):
        found = run_compiled(program, part, params, data, all_keys, context)
        return _of_seeds(found, keys.size)

    if progress is not None:

        def run_reported(index):
            first = index * at_once

            def report(rounds, history):
                done = (index * num_rounds + rounds) // num_chunks
                # Without the copies that fill up the last part.
                progress(done, _of_seeds(take(history, slice(points - first)), keys.size))

            part = take(padded, slice(first, first + at_once))
            found = run_in_blocks(program, part, params, data, all_keys, context, report)
            return _of_seeds(found, keys.size)

        parts = map(run_reported, range(num_chunks))
        found = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
    elif num_chunks == 1:
        found = run_points(padded)
    else:
        parts = jax.tree.map(
            lambda column: column.reshape(num_chunks, at_once, *column.shape[1:]), padded
        )
        found = jax.tree.map(
            lambda leaf: leaf.reshape(num_chunks * at_once, *leaf.shape[2:]),
            # One part after the other, so memory holds the states of one part.
            jax.lax.map(run_points, parts),
        )
    model, history = take(found, slice(points))
    warn_if_nonfinite(history, grid)
    return model, history


def runs_at_once(
    algorithm: Algorithm,
    grid: PyTree,
    params: Params,
    data: ClientData,
    plan: Plan,
    num_seeds: int,
) -> tuple[int, int]:
    """Return how many points and seeds run together; one of them is a multiple of the devices."""
    points = num_points(grid)
    chosen = sized(
        algorithm, take(grid, 0), params, data, plan, num_points=points, num_seeds=num_seeds
    ).point_chunk_size
    # `sized` has filled in both sizes.
    assert chosen is not None
    # Rounded up, so that every device of the mesh computes equally many runs.
    return with_repeats(data, min(chosen, points), num_seeds)


def pad(grid: PyTree, size: int) -> PyTree:
    """Repeat the last point of a grid up to ``size`` points."""
    return jax.tree.map(lambda column: repeated(column, size), grid)


def _of_seeds(found: PyTree, num_seeds: int) -> PyTree:
    """Return results without the repeated seeds."""
    if jax.tree.leaves(found)[0].shape[1] == num_seeds:
        return found
    return jax.tree.map(lambda leaf: leaf[:, :num_seeds], found)


def repeated(values: Array, size: int) -> Array:
    """Return a vector with its last entry repeated up to ``size`` entries."""
    if len(values) == size:  # nothing is run or compiled
        return values
    return values[jnp.minimum(jnp.arange(size, dtype=jnp.int32), len(values) - 1)]
