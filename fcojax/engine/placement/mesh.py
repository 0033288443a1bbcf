"""Meshes: the population and the points of a sweep on several devices.

Along the mesh axis ``sweep`` every device holds all clients and computes its own points of a grid.
Along the axis ``clients`` each device owns a contiguous part of the clients with their examples and
states. In a round every device draws the whole cohort from the key and computes the members that it
owns; only the sum of uploads and a few counts cross devices. A single device draws the same cohort.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import jax
import numpy as np

from fcojax import tree
from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.arguments import validated
from fcojax.engine.hparams import at_round
from fcojax.engine.placement.chunk_size import choose_chunk_size, client_bytes, device_memory
from fcojax.engine.plan import Plan
from fcojax.engine.validation import as_program
from fcojax.problems import memory
from fcojax.problems.client_data import ClientData
from fcojax.problems.clients import require_one_device
from fcojax.types import Count, Params, PyTree
from fcojax.xla import rules
from fcojax.xla.jaxprs import equations

# JAX primitives that call LAPACK on a CPU.
_DECOMPOSITIONS = ["svd", "eigh", "eig", "schur", "qr", "geqrf", "householder_product", "lu"]
_DECOMPOSITIONS += ["cholesky", "hessenberg", "tridiagonal", "triangular_solve"]


@validated
def device_mesh(*, sweep: Count = 1, clients: Count = 1) -> jax.sharding.Mesh:
    """Return a mesh of ``sweep`` times ``clients`` devices, with axes of these names.

    Args:
      sweep: devices that share the points of a grid.
      clients: devices that share the clients of the population.

    Example:
      >>> import fcojax
      >>> dict(fcojax.devices.device_mesh(sweep=1, clients=1).shape)
      {'sweep': 1, 'clients': 1}
    """
    devices, needed = jax.devices(), sweep * clients
    if needed > len(devices):
        raise ValueError(
            f"the mesh has {sweep} x {clients} devices but JAX sees {len(devices)}; pass fewer, or "
            "on a CPU set jax_num_cpu_devices before the first use of JAX."
        )
    # shard_map is given every sharding, so none has to be inferred.
    return jax.make_mesh(
        (sweep, clients),
        ("sweep", "clients"),
        axis_types=(jax.sharding.AxisType.Auto,) * 2,
        devices=devices[:needed],
    )


@validated
def shard_clients(data: ClientData, mesh: jax.sharding.Mesh) -> ClientData:
    """Shard a population over the mesh axis ``clients``, in contiguous parts of equal size.

    Devices whose clients have fewer rows are padded with copies of their own rows, so that losses
    at padding are finite if others are. Where the mesh does not divide the population, clients of
    weight zero and without rows are added.

    Args:
      data: the clients, on one device or on disk.
      mesh: a mesh with an axis named ``clients``.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(6.0)}, [1, 2, 3])
      >>> on_mesh = fcojax.devices.shard_clients(data, fcojax.devices.device_mesh(clients=1))
      >>> on_mesh.num_clients, on_mesh.num_shards, on_mesh.sizes.tolist()
      (3, 1, [1, 2, 3])
    """
    require_one_device(data)
    sharded = dataclasses.replace(data, mesh=mesh)
    num_shards, per_shard = sharded.num_shards, sharded.clients_per_shard
    offsets = np.asarray(data.offsets)
    first = np.minimum(np.arange(num_shards + 1) * per_shard, data.num_clients)
    bounds = offsets[first]
    # `shard_map` needs parts of equal shape, but equal numbers of clients have unequal numbers of
    # rows, so shorter parts are padded.
    num_rows = int(np.diff(bounds).max())
    # Offsets within a part. Clients that only pad the population begin and end at its end, so they
    # have no rows, and their weight is zero: they are never drawn or collected.
    local = np.minimum(first[:-1, None] + np.arange(per_shard + 1), first[1:, None])
    local = (offsets[local] - bounds[:-1, None]).astype(np.int32)
    weights = np.zeros(num_shards * per_shard, data.weights.dtype)
    weights[: data.num_clients] = np.asarray(data.weights)
    weights = weights.reshape(num_shards, per_shard)

    def examples_of(leaf, shard):
        start, end = int(bounds[shard]), int(bounds[shard + 1])
        if end - start == num_rows:
            return leaf[start:end]
        # A part without rows repeats the row before it, or the first.
        end = max(end, 1)
        return memory.padded_rows(leaf, min(start, end - 1), end, num_rows)

    examples, products = jax.tree.map(
        lambda leaf: _placed(sharded, functools.partial(examples_of, np.asarray(leaf))),
        (data.examples, data.products),
    )
    on_mesh = dataclasses.replace(
        sharded,
        examples=examples,
        offsets=_placed(sharded, local.__getitem__),
        weights=_placed(sharded, weights.__getitem__),
    )
    return on_mesh.with_products(products)


def _placed(data: ClientData, rows_of_shard: Callable[[int], np.ndarray]) -> jax.Array:
    """Put the rows of each shard on the devices that have it, one shard after the other.

    ``rows_of_shard`` returns equally many rows for every shard, and is called only for those of
    this process. The devices of a CPU share an array that needs no conversion, and copy none.
    """
    assert data.mesh is not None
    placement = jax.sharding.NamedSharding(data.mesh, data.shard_spec)
    numbers = {
        device: (slice(None) if index is None else index[0]).indices(data.num_shards)[0]
        for device, index in placement.addressable_devices_indices_map((data.num_shards,)).items()
    }
    parts = []
    # One part at a time, so that the host holds one padded copy. Devices along the axis `sweep`
    # share a part, which is made once.
    for shard in sorted(set(numbers.values())):
        rows = memory.in_memory(rows_of_shard(shard))
        owners = [device for device, number in numbers.items() if number == shard]
        parts += jax.block_until_ready([jax.device_put(rows, device) for device in owners])
    shape = (data.num_shards * len(rows), *rows.shape[1:])
    return jax.make_array_from_single_device_arrays(shape, placement, parts)


def decomposes_on_a_cpu(program: jax.stages.Traced) -> bool:
    """Return whether a program decomposes a batch of matrices on a CPU, or solves with one.

    jaxlib's kernels for batches of matrices wait for threads of the pool that they run in, so
    programs on as many devices as the pool has threads can deadlock. Kernels for one matrix do not
    wait, and the decompositions of ``fcojax.xla.linalg`` take one at a time.
    """
    return rules.backend() == "cpu" and any(
        equation.primitive.name in _DECOMPOSITIONS
        and math.prod(equation.invars[0].aval.shape[:-2]) > 1
        for equation in equations(program.jaxpr.jaxpr)
    )


@validated
def spread(
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params,
    data: ClientData,
    plan: Plan | Work,
    *,
    num_points: Count = 1,
    num_seeds: Count = 1,
) -> ClientData:
    """Place the population on as many devices as are worth their communication.

    The runs of a sweep are independent, so where each device has memory for all clients, devices
    share its points, or its seeds if there are fewer points than devices. Otherwise devices share
    the clients, which pays if every device has at least two clients a round and steps are large: on
    a CPU so large that clients run one by one, on accelerators so large that reading a round's
    examples and states takes longer than the communication. Programs that decompose batches of
    matrices on a CPU should stay on one device; see ``decomposes_on_a_cpu``.

    The arguments are those of ``sized``; the population is returned unchanged if one device is
    best.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(6.0)}, [1, 2, 3])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> hparams, plan = fed_avg.hparams_type(), fcojax.local_steps(1)
      >>> spread = fcojax.devices.spread(fed_avg, hparams, jnp.array(0.0), data, plan)
      >>> spread.mesh is None  # too small
      True
    """
    program, hparams = as_program(algorithm, hparams, data, None, plan)
    plan, num_devices = program.plan, len(jax.devices())
    if num_devices == 1:
        return data
    # All examples on every device, with room left for states and intermediate results.
    fits = tree.num_bytes(data.examples) <= device_memory() / 4
    if fits and max(num_points, num_seeds) >= num_devices:
        return shard_clients(data, device_mesh(sweep=num_devices))
    now = at_round(hparams, 0)
    server, _ = jax.eval_shape(algorithm.init, now, params)
    places = plan.cohort.size(data.num_clients)
    # Members fall on devices at random. With W3's ten members a round the busier of two devices
    # computes 6.2 on average where 5 would be even; with fewer it is worse.
    if places < 2 * num_devices:
        return data
    message = jax.eval_shape(algorithm.broadcast, now, server)
    each = client_bytes(plan.work, data, message, num_points)
    # 64 MiB a device on an accelerator, which take as long to read as an all-reduce.
    least = rules.rules().bytes_to_share
    if least is not None:
        pays = each * places * plan.work.max_steps(data.max_size) >= least * num_devices
    else:
        # On a CPU: clients so large that they run one by one, such as W2's, which take 27 ms a
        # round on one device and 18 to 21 on two.
        pays = choose_chunk_size(plan, algorithm, now, server, data, num_points) == 1
    return shard_clients(data, device_mesh(clients=num_devices)) if pays else data
