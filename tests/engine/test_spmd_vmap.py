"""A client's update runs under a vmap that is sharded over a mesh, as in DrJAX."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import fcojax
from fcojax.algorithms.local import Local
from fcojax.transforms import euclidean, l1

NUM_CLIENTS, SIZE, DIM = 4, 6, 4


def loss(w, rows):
    return 0.5 * (rows["x"] @ w - rows["y"]) ** 2


@pytest.mark.parametrize("shape", [(2, 1), (1, 2)], ids=["clients", "model"])
def test_a_sharded_vmap_of_client_updates_is_a_loop_over_clients(shape):
    """A second axis of the mesh may shard the model of every client."""
    if jax.device_count() < 2:
        pytest.skip("a mesh needs two devices")
    work = fcojax.local_epochs(2, 2)
    algorithm = fcojax.algorithms.fed_dual_avg(loss, euclidean(l1()))
    hparams = jax.tree.map(jnp.asarray, algorithm.hparams_type(client_lr=0.05))
    generator = np.random.default_rng(0)
    rows = {
        "x": generator.normal(size=(NUM_CLIENTS, SIZE, DIM)),
        "y": generator.normal(size=(NUM_CLIENTS, SIZE)),
    }
    keys = jax.random.split(jax.random.key(1), (NUM_CLIENTS, 2))
    server, client = algorithm.init(hparams, jnp.array([1.0, 0.0, -1.0, 0.5]))
    message = algorithm.broadcast(hparams, server)

    def update(message, rows, keys, index):
        zero = jnp.zeros((), jnp.int32)
        local = Local(rows, index, zero, zero + SIZE, keys[0], work, SIZE, SIZE)
        result = algorithm.client_update(hparams, message, client, local, keys[1])
        return result.state, result.upload

    indices = jnp.arange(NUM_CLIENTS, dtype=jnp.int32)
    loop = [
        jax.jit(update)(message, jax.tree.map(lambda leaf, m=m: leaf[m], rows), keys[m], indices[m])
        for m in range(NUM_CLIENTS)
    ]
    expected = jax.tree.map(lambda *leaves: jnp.stack(leaves), *loop)
    mesh = jax.make_mesh(shape, ("clients", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)

    def place(leaf, *before):
        """Return the sharding of a leaf, whose last axis, if any, is that of the features."""
        last = ("model",) if leaf.shape[-1:] == (DIM,) and leaf.ndim > len(before) else ()
        free = (None,) * (leaf.ndim - len(before) - len(last))
        return NamedSharding(mesh, PartitionSpec(*before, *free, *last))

    of_clients = functools.partial(jax.tree.map, lambda leaf: place(leaf, "clients"))
    message = jax.device_put(message, jax.tree.map(place, message))
    rows, keys, indices = (jax.device_put(each, of_clients(each)) for each in (rows, keys, indices))
    sharded = functools.partial(jax.vmap, in_axes=(None, 0, 0, 0), spmd_axis_name="clients")
    with jax.set_mesh(mesh):
        compiled = jax.jit(sharded(update), out_shardings=of_clients(expected))
        found = compiled(message, rows, keys, indices)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
        parts = {part.data.shape for part in one.addressable_shards}
        wide = one.ndim == 2 and one.shape[1] == DIM
        assert parts == {(NUM_CLIENTS // shape[0], *((DIM // shape[1],) if wide else ()))}
