"""A sweep: the same program with two leading axes, points of a grid and seeds.

All points of a grid share cohorts and minibatches, which is right for comparing them and lets a
minibatch be gathered once for all.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.local import Work
from fcojax.engine.check import check_hparams, check_run
from fcojax.engine.cohort import Sampler, everyone
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
from fcojax.types import Array, Key, Params, PyTree


def product(hparams_type: type, **values: Any) -> PyTree:
    """All combinations of the given values, as hyperparameters with one leading axis.

    The last field varies fastest. Fields that are not named keep their defaults.

    Example:
      >>> import fcojax
      >>> grid = product(fcojax.algorithms.fed_avg.Hparams, client_lr=[0.1, 1.0], server_lr=[2.0])
      >>> grid.client_lr.tolist(), grid.server_lr.tolist()
      ([0.1, 1.0], [2.0, 2.0])
    """
    fields = hparams_type._fields  # pyright: ignore[reportAttributeAccessIssue]
    unknown = sorted(set(values) - set(fields))
    if unknown:
        raise ValueError(
            f"{hparams_type.__name__} has no field {unknown[0]}; its fields are {list(fields)}."
        )
    defaults = hparams_type()
    lists = [values.get(field, [getattr(defaults, field)]) for field in fields]
    points = list(itertools.product(*lists))
    for point in points:
        check_hparams(hparams_type(*point))
    columns = zip(*points, strict=True)
    return hparams_type(*(jnp.asarray(column, jnp.result_type(float)) for column in columns))


def num_points(grid: PyTree) -> int:
    """Points of a grid."""
    return jax.tree.leaves(grid)[0].shape[0]


def over_grid(function: Callable) -> Callable:
    """``function(hparams, state, key)`` over points and seeds: axes are [points, seeds]."""
    over_seeds = jax.vmap(function, in_axes=(None, 0, 0))
    return jax.vmap(over_seeds, in_axes=(0, 0, None))


@functools.partial(jax.jit, static_argnums=(0, 1))
def start_all(
    algorithm: Algorithm,
    init: Callable[[Key], Params],
    grid: PyTree,
    data: ClientData,
    keys: Key,
) -> State:
    """The states before the first round; every seed starts at its own point."""
    points = jnp.zeros((num_points(grid), keys.shape[0]))
    return over_grid(lambda hparams, _, key: start(algorithm, hparams, init(key), data))(
        grid, points, keys
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
) -> tuple[State, dict[str, Array]]:
    """One block of rounds for all points and seeds, and one look at its end.

    The states are donated: they are overwritten, not copied.
    """

    def one(hparams, state, key):
        state, metrics = block(algorithm, plan, num_rounds, hparams, data, state, key)
        return state, metrics | look_at(algorithm, observe, hparams, state, context)

    return over_grid(one)(grid, states, keys)


@functools.partial(jax.jit, static_argnums=(0, 1))
def look_at_all(
    algorithm: Algorithm, observe: Observe | None, grid: PyTree, states: State, context: PyTree
) -> dict[str, Array]:
    """What ``observe`` says of every point and seed as they are now."""
    over_seeds = jax.vmap(
        lambda hparams, state: look_at(algorithm, observe, hparams, state, context), (None, 0)
    )
    return jax.vmap(over_seeds)(grid, states)


@functools.partial(jax.jit, static_argnums=(0,))
def model_of(algorithm: Algorithm, hparams: PyTree, server: PyTree) -> Params:
    """The model of one point and seed."""
    return algorithm.model(hparams, server)


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
) -> tuple[Params, dict[str, Array]]:
    """``run`` for every point of a grid and every key, in one compiled program.

    Args:
      algorithm: what to run.
      grid: its hyperparameters with a leading axis of points, as ``product`` makes them.
      params: the start point, the same for all.
      data: the clients.
      keys: one key per seed.
      num_rounds: as in ``run``, and so are those that follow.
      work: what each client does.
      cohort: who takes part.
      observe: what to look at.
      context: arrays that ``observe`` needs.
      eval_every: rounds between two looks.
      client_chunk_size: clients that work side by side.

    Returns:
      What ``run`` returns, with leading axes [points, seeds].
    """
    plan = Plan(work, cohort or everyone(), client_chunk_size)
    first = jax.tree.map(lambda column: column[0], grid)
    check_run(algorithm, plan, first, data, num_rounds, eval_every)
    check_hparams(grid)
    grid = as_arrays(grid)
    plan = with_chunk_size(plan, algorithm, first, params, data, num_points(grid))

    def one(hparams, params, key):
        return scan_blocks(
            algorithm, plan, observe, num_rounds, eval_every, hparams, params, data, key, context
        )

    over_seeds = jax.vmap(one, in_axes=(None, None, 0))
    return jax.vmap(over_seeds, in_axes=(0, None, None))(grid, params, keys)
