"""A sweep: the same program with two leading axes, seeds and points of a grid."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.engine.axes import is_sweep
from fcojax.engine.check import (
    check_observe,
    check_rounds,
    check_run,
    check_schedules,
    checked_params,
)
from fcojax.engine.grid import num_points, take
from fcojax.engine.hparams import as_arrays
from fcojax.engine.memory import points_that_fit, shapes_of
from fcojax.engine.plan import Plan, as_plan
from fcojax.engine.run import warn_of_losses, whole
from fcojax.engine.state import Observe
from fcojax.engine.stepper import started
from fcojax.problems.clients import ClientData
from fcojax.types import Key, Params, PyTree


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
) -> tuple[Params, PyTree]:
    """``run`` for every point of a grid and every key, in one compiled program.

    The points of a seed share its cohorts and minibatches.

    Args:
      algorithm: what to run.
      grid: its hyperparameters with a leading axis of points, as ``fcojax.product`` makes them.
      params: the start point, the same for all.
      data: the clients. On a mesh with an axis ``sweep`` each device takes its share of the points.
      keys: one key per seed.
      plan: as in ``run``; its ``point_chunk_size`` says how many points run side by side.
      num_rounds: as in ``run``, and so are those that follow.
      eval_every: rounds between two looks.
      observe: what to look at.
      context: arrays that ``observe`` needs.

    Returns:
      What ``run`` returns, with leading axes [points, seeds].

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> grid = fcojax.product(fed_avg.hparams_type, client_lr=[0.25, 0.5, 1.0])
      >>> models, history = fcojax.sweep(
      ...     fed_avg, grid, jnp.array(0.0), data, jax.random.split(jax.random.key(0), 2),
      ...     fcojax.local_steps(1), num_rounds=2)
      >>> models.tolist()  # three rates, two seeds
      [[0.875, 0.875], [1.5, 1.5], [2.0, 2.0]]
    """
    plan = as_plan(plan)
    num_rounds, eval_every = check_rounds(num_rounds, eval_every)
    if not is_sweep(keys):
        raise ValueError(
            "keys is a single key; pass one for each seed, as in "
            "jax.random.split(jax.random.key(0), 3), or key[None] for one seed."
        )
    if not keys.size:
        raise ValueError("keys is empty; pass one for each seed.")
    check_run(algorithm, plan, grid, data, keys)
    check_schedules(grid, num_rounds, sweeping=True)
    params = checked_params(params)
    check_observe(observe, context, optional=True)
    grid = as_arrays(grid)
    points = num_points(grid)
    static = (algorithm, plan, observe, num_rounds // eval_every, eval_every)

    def lower(size):
        return whole.lower(*static, *shapes_of((pad(grid, size), params, data, keys, context)))

    at_once = plan.point_chunk_size
    if at_once is None:
        first = jax.eval_shape(
            lambda *given: started(algorithm, plan, None, *given),
            pad(grid, 1), params, data, keys,
        )  # fmt: skip
        at_once = points_at_once(lower, points, tree.num_bytes(first), data)
    num_chunks = -(-points // at_once)
    at_once = -(-min(at_once, points) // data.num_sweep_shards) * data.num_sweep_shards
    padded = pad(grid, num_chunks * at_once)

    def ends(part):
        found = whole(*static, part, params, data, keys, context)
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), found)

    if num_chunks == 1:
        found = ends(padded)
    else:
        parts = jax.tree.map(
            lambda column: column.reshape(num_chunks, at_once, *column.shape[1:]), padded
        )
        found = jax.tree.map(
            lambda leaf: leaf.reshape(num_chunks * at_once, *leaf.shape[2:]),
            jax.lax.map(ends, parts),
        )
    model, history = take(found, slice(points))
    warn_of_losses(history, grid)
    return model, history


def points_at_once(
    lower: Callable[[int], jax.stages.Lowered], points: int, point_bytes: int, data: ClientData
) -> int:
    """How many points fit into memory side by side, over all devices that share them."""
    devices = data.num_sweep_shards
    fit = points_that_fit(lambda size: lower(size * devices), -(-points // devices), point_bytes)
    return min(points, fit * devices)


def pad(grid: PyTree, size: int) -> PyTree:
    """The grid with its last point repeated up to ``size`` points."""
    index = jnp.minimum(jnp.arange(size, dtype=jnp.int32), num_points(grid) - 1)
    return take(grid, index)
