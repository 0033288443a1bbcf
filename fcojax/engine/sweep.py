"""A sweep: the same program with two leading axes, seeds and points of a grid.

All points of a grid share cohorts and minibatches, which is right for comparing them and lets a
minibatch be gathered once for all. Seeds are the outer axis, so that the points of one seed meet
its minibatch in one matrix product.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.local import Work
from fcojax.engine.check import check_hparams, check_run
from fcojax.engine.cohort import Sampler, everyone
from fcojax.engine.grid import num_points, take
from fcojax.engine.memory import points_that_fit
from fcojax.engine.round import Plan
from fcojax.engine.run import (
    Observe,
    State,
    as_arrays,
    block,
    look_at,
    scan_blocks,
    start,
    with_chunk_size,
)
from fcojax.problems.clients import ClientData
from fcojax.types import Key, Params, PyTree


def sweep(
    algorithm: Algorithm,
    grid: PyTree,
    params: Params,
    data: ClientData,
    keys: Key,
    *,
    num_rounds: int,
    work: Work,
    cohort: Sampler | None = None,
    observe: Observe | None = None,
    context: PyTree = None,
    eval_every: int = 1,
    client_chunk_size: int | None = None,
    point_chunk_size: int | None = None,
) -> tuple[Params, PyTree]:
    """``run`` for every point of a grid and every key, in one compiled program.

    Args:
      algorithm: what to run.
      grid: its hyperparameters with a leading axis of points, as ``fcojax.product`` makes them.
      params: the start point, the same for all.
      data: the clients. On a mesh with an axis ``sweep`` each device takes its share of the points.
      keys: one key per seed.
      num_rounds: as in ``run``, and so are those that follow.
      work: what each client does.
      cohort: who takes part.
      observe: what to look at.
      context: arrays that ``observe`` needs.
      eval_every: rounds between two looks.
      client_chunk_size: clients that work side by side.
      point_chunk_size: points that run side by side; ``None`` for as many as memory holds.

    Returns:
      What ``run`` returns, with leading axes [points, seeds].
    """
    plan = Plan(work, cohort or everyone(), client_chunk_size)
    check_run(algorithm, plan, take(grid, 0), data, num_rounds, eval_every)
    check_hparams(grid)
    grid, points = as_arrays(grid), num_points(grid)
    fixed = (algorithm, plan, observe, num_rounds, eval_every)
    rest = (params, data, keys, context)

    def lower(size):
        return ends.lower(*fixed, *shapes_of((pad(grid, size), *rest)))

    at_once = point_chunk_size
    if at_once is None:
        first = jax.eval_shape(functools.partial(start, algorithm), take(grid, 0), params, data)
        at_once = points_at_once(lower, points, keys.shape[0] * tree.num_bytes(first), data)
    num_chunks = -(-points // at_once)
    at_once = -(-min(at_once, points) // data.num_sweep_shards) * data.num_sweep_shards
    padded = pad(grid, num_chunks * at_once)
    if num_chunks == 1:
        found = ends(*fixed, padded, *rest)
    else:
        parts = jax.tree.map(
            lambda column: column.reshape(num_chunks, at_once, *column.shape[1:]), padded
        )
        found = jax.tree.map(
            lambda leaf: leaf.reshape(num_chunks * at_once, *leaf.shape[2:]),
            jax.lax.map(lambda part: ends(*fixed, part, *rest), parts),
        )
    return take(found, slice(points))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def ends(
    algorithm: Algorithm,
    plan: Plan,
    observe: Observe | None,
    num_rounds: int,
    eval_every: int,
    grid: PyTree,
    params: Params,
    data: ClientData,
    keys: Key,
    context: PyTree,
) -> tuple[Params, PyTree]:
    """Where all points end and their histories, [points, seeds]; all points side by side."""
    plan = with_chunk_size(plan, algorithm, take(grid, 0), params, data, num_points(grid))

    def one(hparams, _, key):
        return scan_blocks(
            algorithm, plan, observe, num_rounds, eval_every, hparams, params, data, key, context
        )

    found = over_grid(one, data)(grid, jnp.zeros((keys.shape[0], num_points(grid))), keys)
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), found)


def points_at_once(
    lower: Callable[[int], jax.stages.Lowered], points: int, point_bytes: int, data: ClientData
) -> int:
    """How many points fit into memory side by side, over all devices that share them."""
    devices = data.num_sweep_shards
    fit = points_that_fit(lambda size: lower(size * devices), -(-points // devices), point_bytes)
    return min(points, fit * devices)


def shapes_of(arrays: PyTree) -> PyTree:
    """The shapes of arrays, to compile for them without having them."""
    return jax.eval_shape(lambda same: same, arrays)


def pad(grid: PyTree, size: int) -> PyTree:
    """The grid with its last point repeated up to ``size`` points."""
    index = jnp.minimum(jnp.arange(size, dtype=jnp.int32), num_points(grid) - 1)
    return take(grid, index)


def over_grid(function: Callable, data: ClientData) -> Callable:
    """``function(hparams, state, key)`` over seeds and points, the axes of its results.

    The states have axes [seeds, points], the grid [points] and the keys [seeds]. On a mesh with an
    axis ``sweep`` the points are cut along it.
    """
    axis = None if data.mesh is None or "sweep" not in data.mesh.shape else "sweep"
    over_points = _over_axis(function, (0, 0, None), axis)
    return _over_axis(over_points, (None, 0, 0), None)


def _over_axis(function: Callable, in_axes: tuple, spmd_axis_name: str | None) -> Callable:
    """``vmap``, but for an axis of size one, which would only make products harder to compile."""

    def mapped(*args):
        leaves = [
            jax.tree.leaves(arg) for arg, axis in zip(args, in_axes, strict=True) if axis == 0
        ]
        if leaves[0][0].shape[0] > 1 or spmd_axis_name is not None:
            return jax.vmap(function, in_axes, spmd_axis_name=spmd_axis_name)(*args)
        single = [
            arg if axis is None else jax.tree.map(lambda leaf: leaf[0], arg)
            for arg, axis in zip(args, in_axes, strict=True)
        ]
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], function(*single))

    return mapped


@functools.partial(jax.jit, static_argnums=(0, 1))
def start_all(
    algorithm: Algorithm,
    init: Callable[[Key], Params],
    grid: PyTree,
    data: ClientData,
    keys: Key,
) -> State:
    """The states before the first round, [seeds, points]; every seed starts at its own point."""
    nothing = jnp.zeros((keys.shape[0], num_points(grid)))
    return over_grid(lambda hparams, _, key: start(algorithm, hparams, init(key), data), data)(
        grid, nothing, keys
    )


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3), donate_argnames=("states",))
def advance(
    algorithm: Algorithm,
    plan: Plan,
    observe: Observe | None,
    num_rounds: int,
    grid: PyTree,
    data: ClientData,
    states: State,
    keys: Key,
    context: PyTree,
) -> tuple[State, PyTree]:
    """One block of rounds for all seeds and points, and one look at its end.

    The states are donated: they are overwritten, not copied.
    """

    def one(hparams, state, key):
        state, metrics = block(algorithm, plan, num_rounds, hparams, data, state, key)
        return state, metrics | look_at(algorithm, observe, hparams, state, context)

    return over_grid(one, data)(grid, states, keys)


@functools.partial(jax.jit, static_argnums=(0, 1))
def look_at_all(
    algorithm: Algorithm,
    observe: Observe | None,
    grid: PyTree,
    data: ClientData,
    states: State,
    keys: Key,
    context: PyTree,
) -> PyTree:
    """What ``observe`` says of every seed and point as they are now."""

    def one(hparams, state, _):
        return look_at(algorithm, observe, hparams, state, context)

    return over_grid(one, data)(grid, states, keys)


@functools.partial(jax.jit, static_argnums=(0,))
def model_of(algorithm: Algorithm, hparams: PyTree, server: PyTree) -> Params:
    """The model of one point and seed."""
    return algorithm.model(hparams, server)
