"""A program that prints two sweeps on meshes of 1 to 8 devices, as JSON."""

import json

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax.problems.measures import rank
from fcojax.transforms import euclidean, nuclear
from tests.support import federations

MESHES = [(1, 1), (1, 4), (2, 2), (1, 8), (8, 1)]  # sizes of the axes sweep and clients
POINTS = {"client_lr": [0.01, 0.02, 0.03, 0.04, 0.05], "penalty_scale": [0.2]}


def swept(algorithm, population, params, plan, observe, num_rounds, meshes):
    """Return the models of all points and seeds, for each mesh."""
    grid = fcojax.grid.product(fcojax.algorithms.fed_dual_avg.Hparams, **POINTS)
    keys = jax.vmap(jax.random.key)(jnp.arange(2))
    found = {}
    for sweep, own in meshes:
        data = population
        if sweep * own > 1:
            data = fcojax.devices.shard_clients(
                data, fcojax.devices.device_mesh(sweep=sweep, clients=own)
            )
        result = fcojax.sweep(
            algorithm, grid, params, data, keys, num_rounds=num_rounds, plan=plan, observe=observe
        )
        leaves = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves(result)]
        found[f"{sweep}x{own}"] = np.concatenate(leaves).tolist()
    return found


def vectors():
    """Return a federation of eleven clients, six of them in a round."""
    clients = federations.clients()
    population = fcojax.from_clients([clients[index % len(clients)] for index in range(11)])
    plan = fcojax.Plan(fcojax.local_epochs(1, 3), fcojax.uniform_cohort(cohort_size=6))
    return swept(
        federations.algorithm("fed_dual_avg"),
        population,
        federations.start(),
        plan,
        federations.whole_model,
        4,
        MESHES,
    )


def matrices():
    """Low rank: one decomposition in every local step and in every evaluation, 20,000 in all."""
    rng = np.random.default_rng(0)
    x, truth = rng.standard_normal((60, 6, 4)), np.outer(np.arange(6.0), np.ones(4))
    rows = {"x": x, "y": np.einsum("nij,ij->n", x, truth)}
    algorithm = fcojax.algorithms.fed_dual_avg(
        lambda w, rows: (jnp.einsum("nij,ij->n", rows["x"], w) - rows["y"]) ** 2,
        euclidean(nuclear()),
    )
    return swept(
        algorithm,
        fcojax.from_rows(rows, [20] * 3),
        jnp.eye(6, 4),
        fcojax.local_steps(10, 5),
        lambda hparams, w, _: rank(w, 1e-3),
        30,
        [(1, 1), (8, 1)],
    )


def main():
    print(json.dumps({"vectors": vectors(), "matrices": matrices()}))


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_enable_x64", True)
    main()
