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

NUM_CLIENTS, SIZE = 4, 6


def loss(w, rows):
    return 0.5 * (rows["x"] @ w - rows["y"]) ** 2


ALGORITHMS = {
    "fed_dual_avg": lambda: fcojax.algorithms.fed_dual_avg(loss, euclidean(l1())),
    "scaffold": lambda: fcojax.algorithms.scaffold(loss),
}


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("work", [fcojax.local_steps(3), fcojax.local_epochs(2, 2)], ids=str)
def test_a_sharded_vmap_of_client_updates_is_a_loop_over_clients(name, work):
    if jax.device_count() < 2:
        pytest.skip("a mesh needs two devices")
    algorithm = ALGORITHMS[name]()
    hparams = jax.tree.map(jnp.asarray, algorithm.hparams_type(client_lr=0.05))
    generator = np.random.default_rng(0)
    rows = {
        "x": generator.normal(size=(NUM_CLIENTS, SIZE, 3)),
        "y": generator.normal(size=(NUM_CLIENTS, SIZE)),
    }
    keys = jax.random.split(jax.random.key(1), (NUM_CLIENTS, 2))
    server, client = algorithm.init(hparams, jnp.array([1.0, 0.0, -1.0]))
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
    mesh = jax.make_mesh((2,), ("clients",), axis_types=(jax.sharding.AxisType.Auto,))
    here = NamedSharding(mesh, PartitionSpec("clients"))
    rows, keys, indices = jax.device_put((rows, keys, indices), here)
    sharded = functools.partial(jax.vmap, in_axes=(None, 0, 0, 0), spmd_axis_name="clients")
    with jax.set_mesh(mesh):
        found = jax.jit(sharded(update), out_shardings=here)(message, rows, keys, indices)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
        assert len(one.sharding.device_set) == 2
