"""A user's mesh around a call: its explicit axes are automatic inside of the engine's programs."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax

from fcojax.problems.clients import ClientData
from fcojax.types import PyTree

Result = TypeVar("Result")


def with_auto_axes(function: Callable[..., Result]) -> Callable[..., Result]:
    """Trace a function of positional arguments so that a user's mesh around it has no effect.

    With explicit mesh axes JAX requires an output sharding for each gather, which a minibatch does
    not have; those axes are switched to automatic. A sharded population has its own mesh.

    A ``shard_map`` around it has to be one that does not check what varies over its axes.
    """

    @functools.wraps(function)
    def traced(*args) -> Any:
        leaves, structure = jax.tree.flatten(args)
        arrays = {place: leaf for place, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)}
        mesh = _explicit_mesh(arrays)
        if mesh is None:
            with _own_mesh(args):
                return function(*args)

        def of_arrays(arrays):
            whole = [arrays.get(place, leaf) for place, leaf in enumerate(leaves)]
            with _own_mesh(args):
                return function(*jax.tree.unflatten(structure, whole))

        everywhere = jax.sharding.PartitionSpec()
        with jax.sharding.use_abstract_mesh(mesh):
            # XLA may share the work over the user's mesh; results are whole on each device.
            automatic: Callable = jax.sharding.auto_axes(of_arrays, out_sharding=everywhere)
            return automatic(arrays)

    return traced


def _explicit_mesh(arrays: dict[int, jax.Array]) -> jax.sharding.AbstractMesh | None:
    """Return the mesh with explicit axes that the program or one of its arrays is on."""
    meshes = [jax.sharding.get_abstract_mesh()]
    meshes += [getattr(jax.typeof(leaf).sharding, "mesh", None) for leaf in arrays.values()]
    return next((mesh for mesh in meshes if mesh is not None and mesh.explicit_axes), None)


def _own_mesh(args: PyTree) -> contextlib.AbstractContextManager:
    """Enter the mesh of a population among the arguments, if another one is around it."""
    around = jax.sharding.get_abstract_mesh()
    for argument in args:
        if isinstance(argument, ClientData) and argument.mesh is not None and not around.empty:
            return jax.sharding.use_abstract_mesh(argument.mesh.abstract_mesh)
    return contextlib.nullcontext()
