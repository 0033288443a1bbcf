"""Runs on many devices and inside a user's mesh: the same numbers, and no deadlock."""

import functools
import json
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import fcojax
from fcojax.algorithms.local import Local
from fcojax.engine.placement.mesh import decomposes_on_a_cpu
from fcojax.transforms import euclidean, l1, nuclear
from fcojax.xla import linalg
from tests.support import federations

DATA = fcojax.from_clients(federations.clients(federations.EQUAL))


def kernel(key, data=DATA):
    """Return the kernel after two rounds."""
    plan = fcojax.Plan(fcojax.local_epochs(1, 3), fcojax.uniform_cohort(cohort_size=3))
    chosen, rates = federations.algorithm("fed_dual_avg"), federations.hparams("fed_dual_avg")
    model, _ = fcojax.run(chosen, rates, federations.start(), data, key, plan, num_rounds=2)
    return model["kernel"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_inside_a_users_vmap_shard_map_and_mesh(kind):
    """With seeds sharded along the mesh, and with a population sharded along another axis."""
    expected = np.stack([kernel(jax.random.key(seed)) for seed in range(4)])
    close = functools.partial(np.testing.assert_allclose, rtol=1e-12)
    mesh = jax.make_mesh((2,), ("mine",), axis_types=(kind,))
    keys = jax.vmap(jax.random.key)(jnp.arange(4))
    spread = jax.device_put(keys, NamedSharding(mesh, P("mine")))
    close(jax.jit(jax.vmap(kernel))(keys), expected)
    mapped = jax.shard_map(
        jax.vmap(kernel), mesh=mesh, in_specs=P("mine"), out_specs=P("mine"), check_vma=False
    )
    close(mapped(spread), expected)
    with jax.set_mesh(mesh):
        close(kernel(keys[0]), expected[0])
        close(jax.vmap(kernel)(spread), expected)
        own = fcojax.devices.shard_clients(DATA, fcojax.devices.device_mesh(clients=2))
        close(kernel(keys[0], own), expected[0])


def least_squares(w, rows):
    return 0.5 * (rows["x"] @ w - rows["y"]) ** 2


@pytest.mark.parametrize("shape", [(2, 1), (1, 2)], ids=["clients", "model"])
def test_a_sharded_vmap_of_client_updates_is_a_loop_over_clients(shape):
    """As in DrJAX; a second axis of the mesh may shard the model of every client."""
    num_clients, size, dim = 4, 6, 4
    algorithm = fcojax.algorithms.fed_dual_avg(least_squares, euclidean(l1()))
    hparams = jax.tree.map(jnp.asarray, algorithm.hparams_type(client_lr=0.05))
    rng = np.random.default_rng(0)
    sizes = {"x": (num_clients, size, dim), "y": (num_clients, size)}
    rows = {name: rng.normal(size=shape) for name, shape in sizes.items()}
    keys = jax.random.split(jax.random.key(1), (num_clients, 2))
    indices = jnp.arange(num_clients, dtype=jnp.int32)
    server, client = algorithm.init(hparams, jnp.array([1.0, 0.0, -1.0, 0.5]))
    message = algorithm.broadcast(hparams, server)

    def update(message, rows, keys, index):
        zero, work = jnp.zeros((), jnp.int32), fcojax.local_epochs(2, 2)
        local = Local(rows, index, zero, zero + size, keys[0], work, size, size)
        result = algorithm.client_update(hparams, message, client, local, keys[1])
        return result.state, result.upload

    loop = [
        jax.jit(update)(message, *jax.tree.map(lambda leaf, m=m: leaf[m], (rows, keys, indices)))
        for m in range(num_clients)
    ]
    expected = jax.tree.map(lambda *leaves: jnp.stack(leaves), *loop)
    mesh = jax.make_mesh(shape, ("clients", "model"), axis_types=(AxisType.Auto,) * 2)

    def place(leaf, *before):
        """Return the sharding of a leaf, whose last axis, if any, is that of the features."""
        last = ("model",) if leaf.shape[-1:] == (dim,) and leaf.ndim > len(before) else ()
        free = (None,) * (leaf.ndim - len(before) - len(last))
        return NamedSharding(mesh, P(*before, *free, *last))

    of_clients = functools.partial(jax.tree.map, lambda leaf: place(leaf, "clients"))
    message = jax.device_put(message, jax.tree.map(place, message))
    given = jax.device_put((rows, keys, indices), of_clients((rows, keys, indices)))
    sharded = jax.vmap(update, in_axes=(None, 0, 0, 0), spmd_axis_name="clients")
    with jax.set_mesh(mesh):
        found = jax.jit(sharded, out_shardings=of_clients(expected))(message, *given)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
        parts = {part.data.shape for part in one.addressable_shards}
        wide = one.ndim == 2 and one.shape[1] == dim
        assert parts == {(num_clients // shape[0], *((dim // shape[1],) if wide else ()))}


SWEEPS = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_enable_x64", True)
import fcojax
from fcojax.transforms import euclidean, nuclear

rng = np.random.default_rng(0)
x, truth = rng.standard_normal((88, 6, 4)), np.outer(np.arange(6.0), np.ones(4))
rows = {"x": x, "y": np.einsum("nij,ij->n", x, truth)}
chosen = fcojax.algorithms.fed_dual_avg(
    lambda w, rows: (jnp.einsum("nij,ij->n", rows["x"], w) - rows["y"]) ** 2, euclidean(nuclear())
)
rates = [0.001, 0.002, 0.003, 0.004, 0.005]
grid = fcojax.grid.product(chosen.hparams_type, client_lr=rates, penalty_scale=[0.2])
keys = jax.vmap(jax.random.key)(jnp.arange(2))
plan = fcojax.Plan(fcojax.local_steps(10, 5), fcojax.uniform_cohort(cohort_size=6))
for sweep, clients in (1, 1), (1, 4), (2, 2), (1, 8), (8, 1):
    data = fcojax.from_rows(rows, [8] * 11)
    if sweep * clients > 1:
        mesh = fcojax.devices.device_mesh(sweep=sweep, clients=clients)
        data = fcojax.devices.shard_clients(data, mesh)
    models, _ = fcojax.sweep(chosen, grid, jnp.eye(6, 4), data, keys, plan, num_rounds=10)
    print(json.dumps(np.asarray(models).tolist()))
"""


@pytest.mark.slow
def test_one_to_eight_devices_give_the_same_numbers():
    """Eight devices decompose a matrix in every local step on fewer cores without a deadlock."""
    root = pathlib.Path(__file__).parent.parent.parent
    options = {"cwd": root, "capture_output": True, "text": True, "timeout": 600}
    done = subprocess.run([sys.executable, "-c", SWEEPS], check=False, **options)
    assert done.returncode == 0, done.stderr
    one, *others = (np.array(json.loads(line)) for line in done.stdout.splitlines())
    assert np.isfinite(one).all() and np.unique(one).size > 100 and len(others) == 4
    for other in others:
        np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("function", "decomposes"),
    [
        (lambda x: jnp.linalg.svd(x)[1], False),
        (lambda x: jax.lax.scan(lambda c, _: (jnp.linalg.qr(c)[0], None), x, length=2)[0], False),
        (lambda x: jax.vmap(jnp.linalg.eigvalsh)(jnp.stack([x, x])), True),
        (lambda x: jax.vmap(linalg.symmetric_eigh)(jnp.stack([x, x])), False),
        (lambda x: jax.vmap(lambda m: nuclear().prox(m, 0.1, 1.0))(jnp.stack([x, x])), False),
        (lambda x: jax.vmap(jnp.linalg.solve, (0, None))(jnp.stack([x, x]), x), True),
        (
            lambda x: jax.lax.cond(
                x[0, 0] > 0, lambda c: jnp.linalg.qr(c)[0], jnp.sin, jnp.stack([x, x])
            ),
            True,
        ),
    ],
)
def test_programs_that_decompose_batches_of_matrices_are_recognised(function, decomposes):
    """Several CPU devices would wait for each other's threads in batched decompositions."""
    assert decomposes_on_a_cpu(jax.jit(function).trace(jnp.eye(3))) == decomposes
