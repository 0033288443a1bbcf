"""Seeds and points: the two axes that a sweep puts in front of a run.

All points of a grid share their cohorts and minibatches, which is right for comparing them and lets
a minibatch be gathered once for all. Seeds are the outer axis, so that the points of one seed meet
its minibatch in one matrix product. What is shared has no axis at all, so it cannot be drawn twice.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fcojax.problems.clients import ClientData
from fcojax.problems.fields import shown
from fcojax.types import Key, PyTree


@dataclasses.dataclass(frozen=True)
class Along:
    """Which of the two axes a value has in front; a leaf of prefix trees over arguments."""

    points: int | None
    seeds: int | None


OWN = Along(points=0, seeds=0)
PER_POINT = Along(points=0, seeds=None)
PER_SEED = Along(points=None, seeds=0)
SHARED = Along(points=None, seeds=None)


def is_sweep(key: Key) -> bool:
    """Whether a key is that of a sweep, a vector with one key a seed; raises if it is no key."""
    dtype = getattr(key, "dtype", jnp.dtype(bool))
    if not jnp.issubdtype(dtype, jax.dtypes.prng_key) or key.ndim > 1:
        raise ValueError(
            f"key is {shown(key)}; pass a key as jax.random.key(0) makes it for a run, or a vector "
            "of keys, as in jax.random.split(jax.random.key(0), 3), for a sweep over three seeds."
        )
    return key.ndim == 1


def over_grid(function: Callable, data: ClientData | None, given: tuple, found: PyTree) -> Callable:
    """``function`` mapped over points and then over seeds.

    On a mesh with an axis ``sweep`` the points are cut along it.

    Args:
      function: of one point and one seed.
      data: says over which devices; ``None`` to leave that open.
      given: for each argument a prefix tree of ``Along``.
      found: likewise for the result.
    """
    mesh = None if data is None else data.mesh
    axis = None if mesh is None or "sweep" not in mesh.shape else "sweep"
    points, seeds = (
        jax.tree.map(lambda along, name=name: getattr(along, name), (given, found))
        for name in ("points", "seeds")
    )
    over_points = _over_axis(function, points[0], points[1], axis)
    return _over_axis(over_points, seeds[0], seeds[1], None)


def _over_axis(
    function: Callable, given: tuple, found: PyTree, spmd_axis_name: str | None
) -> Callable:
    """``vmap``, but for an axis of size one, which would only make products harder to compile."""

    def mapped(*args):
        sizes = jax.tree.leaves(_where_mapped(lambda leaf: leaf.shape[0], given, args))
        if sizes[0] > 1 or spmd_axis_name is not None:
            return jax.vmap(function, given, found, spmd_axis_name=spmd_axis_name)(*args)
        single = _where_mapped(lambda leaf: leaf[0], given, args, keep=True)
        return _where_mapped(lambda leaf: jnp.asarray(leaf)[None], found, function(*single), True)

    return mapped


def _where_mapped(change: Callable, axes: PyTree, value: Any, keep: bool = False) -> Any:
    """``change`` at the leaves that have the axis; the others as they are, or left out."""

    def one(axis, part):
        if axis is None:
            return part if keep else None
        return jax.tree.map(change, part)

    return jax.tree.map(one, axes, value, is_leaf=lambda axis: axis is None)
