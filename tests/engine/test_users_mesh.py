"""Runs inside a user's transformations and meshes give the same numbers as outside."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import fcojax
from tests.support import federations

pytestmark = pytest.mark.slow

PLAN = fcojax.Plan(fcojax.local_epochs(1, 3), fcojax.uniform_cohort(cohort_size=3))
DATA = fcojax.from_clients(federations.clients(federations.EQUAL))
KINDS = [AxisType.Auto, AxisType.Explicit]


def kernel(key, data=None, params=None):
    """Return the kernel after two rounds."""
    algorithm, hparams = federations.algorithm("fed_dual_avg"), federations.hparams("fed_dual_avg")
    model, _ = fcojax.run(
        algorithm,
        hparams,
        params or federations.start(),
        data or DATA,
        key,
        PLAN,
        num_rounds=2,
    )
    return model["kernel"]


@functools.cache
def alone():
    return np.stack([kernel(jax.random.key(seed)) for seed in range(4)])


def keys():
    return jax.vmap(jax.random.key)(jnp.arange(4))


def mesh_of(kind):
    return jax.make_mesh((2,), ("mine",), axis_types=(kind,))


def close(found, expected):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)


def test_inside_vmap_and_jit():
    close(jax.jit(jax.vmap(kernel))(keys()), alone())


@pytest.mark.parametrize("kind", KINDS)
def test_inside_a_shard_map_over_a_users_axis(kind):
    mesh = mesh_of(kind)
    spread = jax.device_put(keys(), NamedSharding(mesh, P("mine")))
    mapped = jax.shard_map(
        jax.vmap(kernel), mesh=mesh, in_specs=P("mine"), out_specs=P("mine"), check_vma=False
    )
    close(mapped(spread), alone())


@pytest.mark.parametrize("kind", KINDS)
def test_under_a_users_mesh(kind):
    """With seeds sharded along the mesh, and with a population sharded along another axis."""
    mesh = mesh_of(kind)
    with jax.set_mesh(mesh):
        close(kernel(jax.random.key(0)), alone()[0])
        close(jax.vmap(kernel)(jax.device_put(keys(), NamedSharding(mesh, P("mine")))), alone())
        own = fcojax.devices.shard_clients(DATA, fcojax.devices.device_mesh(clients=2))
        close(kernel(jax.random.key(0), own), alone()[0])
