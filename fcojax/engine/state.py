"""The state of a run, its axes in a sweep and on a user's mesh, and observers of it.

All points of a grid share their cohorts and minibatches, so that their differences have less noise
and a minibatch is gathered once for all. Inside a sweep seeds are the outer axis, so that the
points of one seed use its minibatch in one matrix product. A shared value has no axis, so it is
computed once. At every public boundary the axes are [points, seeds].
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax.arguments import shown
from fcojax.problems.clients import Clients
from fcojax.types import Array, Key, Params, PyTree, Result


@dataclasses.dataclass(frozen=True)
class Axes:
    """Where a value has the axes of a sweep; a leaf of prefix trees over arguments."""

    points: int | None
    seeds: int | None


PER_RUN = Axes(points=0, seeds=1)
PER_POINT = Axes(points=0, seeds=None)
PER_SEED = Axes(points=None, seeds=0)
SHARED = Axes(points=None, seeds=None)


def is_sweep(key: Key) -> bool:
    """Return whether this is a vector of keys, one per seed; raise ``ValueError`` if not a key."""
    dtype = getattr(key, "dtype", jnp.dtype(bool))
    if not jnp.issubdtype(dtype, jax.dtypes.prng_key) or key.ndim > 1:
        raise ValueError(
            f"key is {shown(key)}; pass a key as jax.random.key(0) makes it for a run, or a vector "
            "of keys, as in jax.random.split(jax.random.key(0), 3), for a sweep over three seeds."
        )
    if not key.size:
        raise ValueError("key is an empty vector; pass one key for each seed.")
    return key.ndim == 1


def over_grid(
    function: Callable, data: Clients | None, in_axes: tuple, out_axes: PyTree
) -> Callable:
    """Map a function of one point and one seed over points and over seeds.

    On a mesh with an axis ``sweep`` the points or the seeds are sharded over it.
    """
    points = jax.tree.map(lambda axes: axes.points, (in_axes, out_axes))
    seeds = jax.tree.map(lambda axes: axes.seeds, (in_axes, out_axes))

    def over_both(*args):
        sizes = (_size_of(points[0], args), _size_of(seeds[0], args))
        of_points, of_seeds = (None, None) if data is None else sweep_axes(data, *sizes)
        # Seeds outside, points inside, so that the points of a seed use its minibatch in one matrix
        # product: with clients one by one on a CPU, a sweep of 25 points by FedDualAvg on W1 went
        # from 4.6 to 2.0 ms a round. `spmd_axis_name` tells the `shard_map` over clients inside
        # that this axis is sharded; otherwise every device would compute all points.
        over_points = _over_axis(function, points[0], points[1], of_points)
        return _over_axis(over_points, seeds[0], seeds[1], of_seeds)(*args)

    return over_both


def sweep_axes(data: Clients, num_points: int, num_seeds: int) -> tuple[str | None, str | None]:
    """Return for the points and for the seeds of a sweep the mesh axis that shards them, if any."""
    if data.mesh is None or "sweep" not in data.mesh.shape:
        return None, None
    num_devices = data.num_sweep_shards
    if num_points % num_devices == 0:
        return "sweep", None
    if num_seeds % num_devices == 0:
        return None, "sweep"
    raise ValueError(
        f"the grid has {num_points} points and {num_seeds} seeds for {num_devices} devices; pass a "
        "multiple of them as either, or call fcojax.sweep, which takes any number."
    )


def _size_of(axes: PyTree, args: tuple) -> int:
    sizes = []
    _at_axes(lambda leaf, axis: sizes.append(leaf.shape[axis]), axes, args)
    return sizes[0]


def _over_axis(
    function: Callable, in_axes: tuple, out_axes: PyTree, spmd_axis_name: str | None
) -> Callable:
    """Return ``vmap``, except for an axis of size one, which would only slow down compilation."""

    def mapped(*args):
        if _size_of(in_axes, args) > 1 or spmd_axis_name is not None:
            return jax.vmap(function, in_axes, out_axes, spmd_axis_name=spmd_axis_name)(*args)
        single = _at_axes(lambda leaf, axis: leaf[(slice(None),) * axis + (0,)], in_axes, args)
        return _at_axes(jnp.expand_dims, out_axes, function(*single))

    return mapped


def _at_axes(change: Callable, axes: PyTree, value: Any) -> Any:
    """Apply ``change(leaf, axis)`` to mapped leaves; keep the others."""

    def one(axis, part):
        return part if axis is None else jax.tree.map(lambda leaf: change(leaf, axis), part)

    # `axes` is a prefix tree: one axis may apply to a whole subtree, and `None` is a leaf of it.
    return jax.tree.map(one, axes, value, is_leaf=lambda axis: axis is None)


def with_auto_axes(function: Callable[..., Result]) -> Callable[..., Result]:
    """Trace a function of positional arguments so that a user's mesh around it has no effect.

    With explicit mesh axes JAX requires an output sharding for each gather, which a minibatch does
    not have; those axes are switched to automatic. A sharded population has its own mesh. A
    ``shard_map`` around it has to be one that does not check what varies over its axes.
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
        if isinstance(argument, Clients) and argument.mesh is not None and not around.empty:
            return jax.sharding.use_abstract_mesh(argument.mesh.abstract_mesh)
    return contextlib.nullcontext()


class StateObserver(NamedTuple):
    """An observer of the whole state, for quantities that the model alone does not determine.

    Attributes:
      function: ``(hparams, state, context) -> dict``.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax.transforms import euclidean, l1
      >>> data = fcojax.from_rows({"a": np.arange(6.0)}, [1, 2, 3])
      >>> algorithm = fcojax.algorithms.fed_dual_avg(lambda w, rows: w * rows["a"], euclidean(l1()))
      >>> hparams, plan = algorithm.hparams_type(), fcojax.local_steps(1)
      >>> state = fcojax.start(algorithm, hparams, jnp.array(2.0), data, jax.random.key(0), plan)
      >>> dual = fcojax.StateObserver(lambda hparams, state, context: {"dual": state.server.dual})
      >>> float(fcojax.look(algorithm, hparams, state, dual)["dual"])
      2.0
    """

    function: Callable[[PyTree, Any, PyTree], dict[str, Array]]


Observe = Callable[[PyTree, Params, PyTree], dict[str, Array]] | StateObserver


class Memory(NamedTuple):
    """What the server keeps between rounds, beside the algorithm's state.

    For each transform its server state, the aggregator's memory, and the clients' estimate of the
    message, if the plan compresses it.
    """

    transforms: tuple = ()
    aggregator: PyTree = ()
    broadcast: PyTree = ()


class State(NamedTuple):
    """Everything that a run needs to continue.

    In a sweep ``round`` is one number for all runs and ``key`` has the axis [seeds], as the points
    of a seed share its cohorts and minibatches. All others have leading axes [points, seeds].

    Attributes:
      server: the algorithm's server state.
      clients: the algorithm's client state, with one row per client.
      residuals: what transforms of uploads keep for each client, with one row per client.
      round: number of rounds so far.
      key: PRNG key, the only source of randomness.
      memory: what transforms and the aggregator keep on the server.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(6.0)}, [1, 2, 3])
      >>> algorithm = fcojax.algorithms.scaffold(lambda w, rows: rows["a"] @ w)
      >>> state = fcojax.start(
      ...     algorithm, algorithm.hparams_type(), jnp.zeros(4), data, jax.random.key(0),
      ...     fcojax.local_steps(1))
      >>> int(state.round), state.clients.shape  # a control variate for each of three clients
      (0, (3, 4))
    """

    server: PyTree
    clients: PyTree
    residuals: PyTree
    round: Any  # an array; in trees of axes or of shardings one of those
    key: Any
    memory: Any = Memory()


# Axes of a sweep in each part of its state.
STATE_AXES = State(PER_RUN, PER_RUN, PER_RUN, SHARED, PER_SEED, PER_RUN)


def on_mesh(state: State, data: Clients) -> State:
    """Shard an initial state as ``advance`` shards its results.

    Otherwise the second block of rounds would need another program than the first.
    """
    mesh = data.mesh
    if mesh is None:
        return state
    leading = ()
    if is_sweep(state.key):
        leading = sweep_axes(data, jax.tree.leaves(state.server)[0].shape[0], state.key.size)

    def put(part, *spec):
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
        return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, sharding), part)

    rows = (*leading, *data.shard_spec)
    return state._replace(
        server=put(state.server, *leading),
        clients=put(state.clients, *rows),
        residuals=put(state.residuals, *rows),
        round=put(state.round),
        memory=put(state.memory, *leading),
    )
