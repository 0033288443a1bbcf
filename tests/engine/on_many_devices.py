"""Run as a program of its own: one sweep on meshes of 1 to 8 devices, printed as JSON."""

import json

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from tests.support import federations

MESHES = [(1, 1), (1, 4), (2, 2), (1, 8), (8, 1)]  # sweep times clients


def main():
    """The models of all points and seeds, for each mesh."""
    grid = fcojax.grid.product(
        fcojax.algorithms.fed_dual_avg.Hparams,
        client_lr=[0.01, 0.02, 0.03, 0.04, 0.05], penalty_scale=[0.2],
    )  # fmt: skip
    clients = federations.clients()
    population = fcojax.from_clients([clients[index % len(clients)] for index in range(11)])
    keys = jax.vmap(jax.random.key)(jnp.arange(2))
    found = {}
    for sweep, own in MESHES:
        data = population
        if sweep * own > 1:
            data = fcojax.devices.shard_clients(
                data, fcojax.devices.device_mesh(sweep=sweep, clients=own)
            )
        model, history = fcojax.sweep(
            federations.algorithm("fed_dual_avg"),
            grid,
            federations.start(),
            data,
            keys,
            num_rounds=4,
            plan=fcojax.Plan(fcojax.local_epochs(1, 3), fcojax.uniform_cohort(cohort_size=6)),
            observe=federations.whole_model,
        )
        leaves = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves((model, history))]
        found[f"{sweep}x{own}"] = np.concatenate(leaves).tolist()
    print(json.dumps(found))


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_enable_x64", True)
    main()
