"""The population spread over the devices of a mesh.

Along the mesh's axis ``sweep`` every device has all clients and works for its own points of a
grid. Along the axis ``clients`` each device owns a run of clients with their examples and their
states. In a round every device knows the whole cohort from the key and works for those members it
owns; only the sum of uploads and a few counts cross. The cohort is the one that a single device
would draw.
"""

import dataclasses
import re

import jax
import numpy as np

from fcojax import device, tree
from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.engine.check import check_run
from fcojax.engine.hparams import as_arrays, at_round
from fcojax.engine.layout import client_bytes, pays_to_share, sized
from fcojax.engine.memory import device_memory
from fcojax.engine.plan import Plan, as_plan
from fcojax.problems import stored
from fcojax.problems.clients import ClientData
from fcojax.types import Params, PyTree

_DECOMPOSITIONS = re.compile(r"\b(svd|eigh|eig|schur|qr|geqrf|householder_product|lu|cholesky)\[")


def device_mesh(*, sweep: int = 1, clients: int = 1) -> jax.sharding.Mesh:
    """A mesh of ``sweep`` times ``clients`` devices, with axes of these names.

    The points of a grid are cut along the first, the clients of the population along the second.

    Example:
      >>> import fcojax
      >>> dict(fcojax.device_mesh(sweep=1, clients=1).shape)
      {'sweep': 1, 'clients': 1}
    """
    devices, needed = jax.devices(), sweep * clients
    if sweep < 1 or clients < 1 or needed > len(devices):
        raise ValueError(
            f"a mesh of {sweep} x {clients} devices was asked for but JAX sees {len(devices)}; "
            "pass less, or on a CPU set jax_num_cpu_devices before the first use of JAX."
        )
    # shard_map is told where everything lies, so nothing is left to be inferred.
    return jax.make_mesh(
        (sweep, clients),
        ("sweep", "clients"),
        axis_types=(jax.sharding.AxisType.Auto,) * 2,
        devices=devices[:needed],
    )


def client_mesh(num_devices: int | None = None) -> jax.sharding.Mesh:
    """The mesh whose first ``num_devices`` devices, or all of them, share the clients.

    Example:
      >>> import fcojax
      >>> dict(fcojax.client_mesh(1).shape)
      {'sweep': 1, 'clients': 1}
    """
    return device_mesh(clients=len(jax.devices()) if num_devices is None else num_devices)


def shard_clients(data: ClientData, mesh: jax.sharding.Mesh) -> ClientData:
    """The same population, cut into equal runs of clients over the mesh's ``clients`` axis.

    Devices whose clients have fewer rows are padded to the one with most, with rows of their own,
    at which losses are finite if they are anywhere; clients of weight zero and without rows make up
    the numbers where the mesh does not divide the population.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(6.0)}, [1, 2, 3])
      >>> on_mesh = fcojax.shard_clients(data, fcojax.client_mesh(1))
      >>> on_mesh.num_clients, on_mesh.num_shards, on_mesh.sizes.tolist()
      (3, 1, [1, 2, 3])
    """
    if data.mesh is not None:
        raise ValueError("the population is on a mesh already; shard the original.")
    if "clients" not in mesh.shape:
        raise ValueError(f"the mesh has axes {mesh.axis_names}; it needs one named clients.")
    sharded = dataclasses.replace(data, mesh=mesh)
    num_shards, per_shard = sharded.num_shards, sharded.clients_per_shard
    offsets = np.asarray(data.offsets)
    first = np.minimum(np.arange(num_shards + 1) * per_shard, data.num_clients)
    bounds = offsets[first]
    num_rows = int(np.diff(bounds).max())
    local = np.minimum(first[:-1, None] + np.arange(per_shard + 1), first[1:, None])
    weights = np.zeros(num_shards * per_shard, data.weights.dtype)
    weights[: data.num_clients] = np.asarray(data.weights)

    placement = jax.sharding.NamedSharding(mesh, sharded.shard_spec)

    def placed(array):
        dtype = jax.dtypes.canonicalize_dtype(array.dtype)
        return jax.make_array_from_callback(
            array.shape, placement, lambda index: array[index].astype(dtype, copy=False)
        )

    def rows_placed(leaf):
        leaf = np.asarray(leaf)
        dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)

        def of_device(index):
            # What is on disk is read here and by nobody else.
            first, end, _ = index[0].indices(num_shards * num_rows)
            own = range(first // num_rows, end // num_rows)
            parts = [_padded_rows(leaf, bounds[s], bounds[s + 1], num_rows) for s in own]
            whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
            return whole.astype(dtype, copy=False)

        shape = (num_shards * num_rows, *leaf.shape[1:])
        return jax.make_array_from_callback(shape, placement, of_device)

    return dataclasses.replace(
        sharded,
        examples=jax.tree.map(rows_placed, data.examples),
        offsets=placed((offsets[local] - bounds[:-1, None]).reshape(-1).astype(np.int32)),
        weights=placed(weights),
    )


def _padded_rows(leaf: np.ndarray, start: int, end: int, num_rows: int) -> np.ndarray:
    """``num_rows`` rows: those from start to end, and the last of them again and again."""
    end = max(end, 1)
    start = min(start, end - 1)
    rows = np.empty((num_rows, *leaf.shape[1:]), leaf.dtype)
    stored.read_rows(leaf, np.array([start]), np.array([end - start]), rows)
    rows[end - start :] = rows[end - start - 1]
    return rows


def decomposes_on_a_cpu(program: jax.stages.Traced) -> bool:
    """Whether a program decomposes matrices on a CPU, which only one device at a time should do.

    The kernels of jaxlib for many matrices wait for threads of the pool that they run in. Programs
    of as many devices as the pool has threads then wait for each other without end.
    """
    return device.backend() == "cpu" and _DECOMPOSITIONS.search(str(program.jaxpr)) is not None


def spread(
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params,
    data: ClientData,
    plan: Plan | Work,
    *,
    num_points: int = 1,
) -> ClientData:
    """The population on as many devices as pay for themselves: all of them, or the one it is on.

    The points of a sweep need nothing of each other, so devices share them where every device has
    room for all clients. Otherwise devices share the clients, which pays when every device has at
    least two a round to work for and steps are large: on a CPU so large that clients work one by
    one, on accelerators so large that reading a round's examples and states takes longer than
    meeting. Small steps are over before the devices have met. Programs that decompose matrices on a
    CPU should stay on one device: see ``decomposes_on_a_cpu``.

    Args:
      algorithm: what will run.
      hparams: the hyperparameters of one run.
      params: the start point, or its shapes.
      data: the clients, on one device.
      plan: how rounds will be driven.
      num_points: points of a sweep.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(6.0)}, [1, 2, 3])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> hparams, plan = fed_avg.hparams_type(), fcojax.local_steps(1)
      >>> fcojax.spread(fed_avg, hparams, jnp.array(0.0), data, plan).mesh is None  # too small
      True
    """
    plan, num_devices = as_plan(plan), len(jax.devices())
    check_run(algorithm, plan, hparams, data, jax.random.key(0))
    if num_devices == 1:
        return data
    if num_points >= num_devices and tree.num_bytes(data.examples) <= device_memory() / 4:
        return shard_clients(data, device_mesh(sweep=num_devices))
    now = at_round(as_arrays(hparams), 0)
    server, _ = jax.eval_shape(algorithm.init, now, params)
    places = plan.cohort.size(data.num_clients)
    if places < 2 * num_devices:
        return data
    each = client_bytes(plan.work, algorithm, now, server, data, num_points)
    pays = pays_to_share(each, places, plan.work.max_steps(data.max_size), num_devices)
    if pays is None:
        plan = sized(plan, algorithm, now, server, data, num_points)
        pays = plan.client_chunk_size == 1
    return shard_clients(data, client_mesh()) if pays else data
