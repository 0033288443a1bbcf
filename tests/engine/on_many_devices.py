"""A program that prints a sweep of matrices on one and on eight devices, as JSON."""

import json

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax.problems.measures import rank
from fcojax.transforms import euclidean, nuclear


def swept(num_devices):
    """Low rank: one decomposition in every local step and in every evaluation, 20,000 in all."""
    rng = np.random.default_rng(0)
    x, truth = rng.standard_normal((60, 6, 4)), np.outer(np.arange(6.0), np.ones(4))
    rows = {"x": x, "y": np.einsum("nij,ij->n", x, truth)}
    algorithm = fcojax.algorithms.fed_dual_avg(
        lambda w, rows: (jnp.einsum("nij,ij->n", rows["x"], w) - rows["y"]) ** 2,
        euclidean(nuclear()),
    )
    mesh = fcojax.devices.device_mesh(sweep=num_devices, clients=1)
    data = fcojax.devices.shard_clients(fcojax.from_rows(rows, [20] * 3), mesh)
    rates = {"client_lr": [0.01, 0.02, 0.03, 0.04, 0.05], "penalty_scale": [0.2]}
    result = fcojax.sweep(
        algorithm,
        fcojax.grid.product(algorithm.hparams_type, **rates),
        jnp.eye(6, 4),
        data,
        jax.vmap(jax.random.key)(jnp.arange(2)),
        fcojax.local_steps(10, 5),
        num_rounds=30,
        observe=lambda hparams, w, _: rank(w, 1e-3),
    )
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(result)]).tolist()


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_enable_x64", True)
    print(json.dumps([swept(1), swept(8)]))
