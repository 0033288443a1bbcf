"""Parameters of a network over one axis of a mesh, rows over the other."""

import dataclasses

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import fcojax
from fcojax import networks

if jax.config.values["jax_num_cpu_devices"] < 1:
    jax.config.update("jax_num_cpu_devices", 4)  # four GPUs need no such line
automatic = jax.sharding.AxisType.Auto
mesh = jax.make_mesh((2, 2), ("clients", "model"), (automatic,) * 2)


def spread(leaf):
    """Put the last axis of a matrix on the axis ``model``."""
    axes = [None] * (leaf.ndim - 1) + ["model"] if leaf.ndim > 1 else []
    return jax.device_put(leaf, NamedSharding(mesh, PartitionSpec(*axes)))


x = np.random.default_rng(0).standard_normal((16, 8), np.float32)
rows = {"x": x, "y": (x[:, 0] > 0).astype(np.int32)}
plan = fcojax.Plan(
    fcojax.local_steps(2, batch_size=2), fcojax.uniform_cohort(cohort_size=2)
)


data = fcojax.from_rows(rows, sizes=[4] * 4)
problem = networks.network(networks.two_layer(8, 16, 4), data, num_classes=4)
algorithm = fcojax.algorithms.fed_avg(problem.loss)


def trained(start, data):
    """Return the model after three rounds."""
    hparams, key = algorithm.hparams_type(client_lr=0.1), jax.random.key(1)
    return fcojax.run(algorithm, hparams, start, data, key, plan, num_rounds=3)[
        0
    ]


start = problem.init(jax.random.key(0))
by_rows = NamedSharding(mesh, PartitionSpec("clients"))
divided = dataclasses.replace(data, examples=jax.device_put(rows, by_rows))
parts = trained(jax.tree.map(spread, start), divided)
jax.tree.map(
    lambda one, other: np.testing.assert_allclose(one, other, 1e-4, 1e-5),
    trained(start, data),
    parts,
)
leaves = jax.tree.leaves(parts)
held = sum(leaf.addressable_shards[0].data.size for leaf in leaves)
total = sum(leaf.size for leaf in leaves)
print(f"equal; a device holds {held} of {total} parameters")
