"""The same algorithm on other manifolds, against solutions computed in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.transforms import (
    flat,
    generalised_stiefel,
    product_manifold,
    sphere,
)
from tests.support import subspaces
from tests.support.subspaces import pca

Rates = fcojax.algorithms.fed_manifold.Hparams


def stationary(manifold, loss, clients, start, client_lr, num_rounds=300, tau=5):
    """Return the model after many rounds of several steps on heterogeneous clients."""
    chosen = subspaces.algorithm("fed_manifold", manifold, loss)
    seen, _ = subspaces.states(
        chosen,
        Rates(client_lr),
        num_rounds,
        params=start,
        every=num_rounds,
        population=fcojax.from_clients(clients),
        work=fcojax.local_steps(tau),
    )
    return jax.tree.map(lambda leaf: leaf[-1], seen.server.point)


def direction_and_offset(params, rows):
    return 0.5 * (rows["a"] @ params["w"] + params["b"] - rows["y"]) ** 2


def test_a_product_with_a_flat_part_fits_a_unit_direction_and_an_offset():
    """y = a^T w + b with |w| = 1: the result is stationary in both, checked in numpy."""
    rng = np.random.default_rng(6)
    w = rng.standard_normal(4)
    clients = []
    for _ in range(4):
        a = rng.standard_normal((6, 4)) + rng.standard_normal(4)
        truth = w / np.linalg.norm(w) + 0.3 * rng.standard_normal(4)
        clients.append({"a": a, "y": a @ truth + rng.standard_normal()})
    start = {"w": jnp.eye(4)[0], "b": jnp.zeros(())}
    manifold = product_manifold({"w": sphere(), "b": flat()})
    found = stationary(manifold, direction_and_offset, clients, start, 0.02, num_rounds=2000)
    rows = {name: np.concatenate([client[name] for client in clients]) for name in ("a", "y")}
    residual = rows["a"] @ found["w"] + found["b"] - rows["y"]
    gradient = residual @ rows["a"] / len(residual)
    assert np.linalg.norm(found["w"]) == pytest.approx(1, abs=1e-14)
    assert abs(residual.mean()) <= 1e-10
    across = gradient - found["w"] * (gradient @ found["w"])
    np.testing.assert_allclose(across, 0, atol=1e-10)


@pytest.mark.slow
def test_generalised_stiefel_solves_the_generalised_eigenproblem():
    rng = np.random.default_rng(7)
    root = rng.standard_normal((5, 5))
    metric = root @ root.T / 5 + np.eye(5)
    clients = subspaces.small_clients()
    manifold = generalised_stiefel(jnp.asarray(metric))
    start = manifold.project(jnp.asarray(subspaces.SMALL_START))
    found = stationary(manifold, pca, clients, start, 0.1, num_rounds=1000)
    np.testing.assert_allclose(found.T @ metric @ found, np.eye(2), atol=1e-12)
    mean = np.mean([rows.T @ rows / len(rows) for rows in clients], axis=0)
    values = np.linalg.eigvals(np.linalg.solve(metric, mean)).real
    assert np.trace(found.T @ mean @ found) == pytest.approx(np.sort(values)[-2:].sum(), rel=1e-12)
