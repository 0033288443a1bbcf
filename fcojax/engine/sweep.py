"""A sweep: runs over a grid of hyperparameters and over seeds, in one compiled program."""

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.engine.blocks import padded
from fcojax.engine.hparams import num_points, take
from fcojax.engine.placement.chunk_size import sized
from fcojax.engine.plan import Plan
from fcojax.engine.run import Report, run_program, warn_if_nonfinite
from fcojax.engine.state import Observe, is_sweep, with_repeats
from fcojax.engine.validation import as_params, as_program
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
    if not is_sweep(keys):
        raise ValueError(
            "keys is a single key; pass one for each seed, as in "
            "jax.random.split(jax.random.key(0), 3), or key[None] for one seed."
        )
    rounds = num_rounds, eval_every
    program, grid = as_program(algorithm, grid, data, keys, plan, *rounds, observe)
    params, points = as_params(params), num_points(grid)
    # Memory decides how many points run together. All parts have the same size, the last one filled
    # up with copies of the last point, so one program serves them.
    at_once, num_seeds = runs_at_once(algorithm, grid, params, data, program.plan, keys.size)
    num_chunks = -(-points // at_once)
    all_keys = repeated(keys, num_seeds)

    def run_part(first):
        def report(rounds, history):
            assert progress is not None
            done = (first // at_once * num_rounds + rounds) // num_chunks
            # Without the copies that fill up the last part.
            progress(done, _of_seeds(take(history, slice(points - first)), keys.size))

        some = padded(np.arange(points)[first : first + at_once], at_once)
        part = grid if at_once == points else take(grid, some)  # nothing is run for all of them
        given = program, part, params, data, all_keys, context
        return _of_seeds(run_program(*given, progress and report), keys.size)

    # One part after the other, so memory holds the states of one part.
    parts = [run_part(index * at_once) for index in range(num_chunks)]
    found = parts[0] if num_chunks == 1 else jax.tree.map(lambda *x: jnp.concatenate(x), *parts)
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


def _of_seeds(found: PyTree, num_seeds: int) -> PyTree:
    """Return results without the repeated seeds."""
    if jax.tree.leaves(found)[0].shape[1] == num_seeds:
        return found
    return jax.tree.map(lambda leaf: leaf[:, :num_seeds], found)


def repeated(values: Array, size: int) -> Array:
    """Return a vector with its last entry repeated up to ``size`` entries."""
    if len(values) == size:  # nothing is run or compiled
        return values
    return values[np.minimum(np.arange(size, dtype=np.int32), len(values) - 1)]
