"""Models under one penalty across clients: special cases, and the stacked problem in cvxpy."""

from typing import Any

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import fcojax
from fcojax import algorithms
from fcojax.personal import read_models
from fcojax.transforms import l1
from tests.algorithms.test_personal import ALONE, MATRICES, VECTORS, minimiser
from tests.support import federations

PLAN = fcojax.Plan(fcojax.local_steps(5), fcojax.dropout(fcojax.uniform_cohort(cohort_size=2), 0.3))
SHARED, FUSED = (
    getattr(algorithms, name)(federations.quadratic, *given)
    for name, given in (("shared_support", ()), ("fused", (l1(),)))
)
WEIGHTS = np.array([1.0, 2.0, 1.0, 3.0])


def models(algorithm, clients, weights: Any = WEIGHTS, **strengths):
    """Return the personal models; half of the clients take part, and some uploads are lost."""
    data = fcojax.from_clients(clients, weights=weights)
    hparams = algorithm.hparams_type(client_lr=0.35, prox_step=1.0, **strengths)
    state = fcojax.start(algorithm, hparams, jnp.zeros(4), data, jax.random.key(2), PLAN)
    state, _ = fcojax.advance(algorithm, hparams, state, data, PLAN, num_rounds=400, eval_every=400)
    return np.asarray(read_models(algorithm, hparams, state))


def clients_of(seed):
    return federations.quadratic_clients(sizes=(3, 3, 3, 3), seed=seed)


P = WEIGHTS / WEIGHTS.sum()


@jax.jit
def _derivatives(w, matrices, vectors, shared, fusion, lasso, present, differ, centred):
    """Return gradient and Hessian of the objective, without the norms that are zero."""

    def norms(w, which):
        return jnp.sum(jnp.where(which, jnp.sqrt(jnp.where(which, P @ w**2, 1)), 0))

    def smooth(w):
        w = w.reshape(4, 4)
        mean = P @ w
        value = jnp.sum(P * (jnp.einsum("mi,mij,mj->m", w, matrices, w) / 2))
        value -= jnp.sum(P[:, None] * vectors * w)
        value += shared * norms(w, present) + fusion * norms(w - mean[None], differ)
        return value + lasso * jnp.sum(jnp.where(centred, jnp.abs(mean), 0))

    return jax.grad(smooth)(w), jax.hessian(smooth)(w)


def stacked(clients, shared=0.0, fusion=0.0, lasso=0.0):
    """Return the minimiser of the stacked problem: by an interior-point method, then by Newton's.

    The first ends up to 2e-5 away, and says which columns are zero, or the same at all clients; on
    these the objective is smooth.
    """
    matrices, vectors = federations.client_means(clients)
    scaled = cp.Variable((4, 4))  # models times the square roots of the weights
    roots = np.sqrt(P)
    mean = roots @ scaled
    apart = scaled - cp.outer(roots, mean)
    objective = shared * cp.sum(cp.norm(scaled, axis=0)) + lasso * cp.norm1(mean)
    objective += fusion * cp.sum(cp.norm(apart, axis=0))
    for m in range(4):
        objective += cp.sum_squares(np.linalg.cholesky(matrices[m]).T @ scaled[m]) / 2
        objective -= roots[m] * (vectors[m] @ scaled[m])
    cp.Problem(cp.Minimize(objective)).solve(solver="CLARABEL")
    w = scaled.value / roots[:, None]

    present = P @ w**2 > 1e-6
    differ = P @ (w - (P @ w)[None]) ** 2 > 1e-6 if fusion else present
    centred = np.abs(P @ w) > 1e-4 if lasso else present

    columns = []
    for j in range(4):
        space = np.eye(4) if differ[j] else np.ones((4, 1))
        if not centred[j]:  # mean zero
            space = scipy.linalg.null_space(P[None] @ space) if differ[j] else space[:, :0]
        columns.append(np.kron(space, np.eye(4)[:, [j]]))
    basis = np.concatenate(columns, axis=1)
    free = np.linalg.lstsq(basis, w.ravel())[0]
    numbers = shared, fusion, lasso, present, differ, centred
    for _ in range(6):
        slope, curvature = _derivatives((basis @ free), matrices, vectors, *numbers)
        free = free - np.linalg.solve(basis.T @ curvature @ basis, basis.T @ slope)
    polished = (basis @ free).reshape(4, 4)
    assert np.abs(polished - w).max() < 1e-4
    return polished


@pytest.mark.slow
@pytest.mark.gate
def test_shared_supports_are_the_stacked_minimiser_on_20_problems():
    found = []
    for seed in range(20):
        clients = clients_of(seed)
        ours = models(SHARED, clients, penalty_scale=0.3)
        np.testing.assert_allclose(ours, stacked(clients, shared=0.3), rtol=0, atol=1e-10)
        assert ((ours == 0).all(axis=0) | (ours != 0).all(axis=0)).all()
        found.append((ours == 0).any())
    assert sum(found) >= 5  # the penalty has an effect


@pytest.mark.slow
@pytest.mark.gate
def test_fused_models_are_the_stacked_minimiser_on_20_problems():
    found = []
    for seed in range(20):
        clients = clients_of(seed)
        ours = models(FUSED, clients, penalty_scale=0.05, fusion_scale=0.3)
        expected = stacked(clients, fusion=0.3, lasso=0.05)
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-10)
        found.append((np.ptp(ours, axis=0) < 1e-12).any())
    assert sum(found) >= 5


CLIENTS = federations.quadratic_clients(sizes=(3, 3, 3, 3))


def test_under_an_infinite_fusion_all_clients_use_the_common_minimiser():
    ours = models(FUSED, CLIENTS, weights=None, penalty_scale=0.05, fusion_scale=1e9)
    optimum = minimiser(MATRICES.mean(axis=0), VECTORS.mean(axis=0))
    np.testing.assert_allclose(ours, np.tile(optimum, (4, 1)), rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.gate
@pytest.mark.parametrize("algorithm", [SHARED, FUSED])
def test_without_a_penalty_clients_learn_alone(algorithm):
    none = {"penalty_scale": 0.0} | ({"fusion_scale": 0.0} if algorithm is FUSED else {})
    alone = np.stack([np.linalg.solve(a, c) for a, c in zip(MATRICES, VECTORS, strict=True)])
    np.testing.assert_allclose(models(algorithm, CLIENTS, **none), alone, rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.gate
def test_under_a_large_penalty_all_models_are_zero():
    assert not models(SHARED, CLIENTS, penalty_scale=1e3).any()
    assert ALONE.any()


@pytest.mark.slow
@pytest.mark.gate
def test_the_server_knows_the_moments_of_all_clients():
    """Also after rounds with absent clients and lost uploads."""
    data = fcojax.from_clients(CLIENTS, weights=WEIGHTS)
    hparams = SHARED.hparams_type(client_lr=0.35, penalty_scale=0.3)
    state = fcojax.start(SHARED, hparams, jnp.ones(4), data, jax.random.key(2), PLAN)
    state, _ = fcojax.advance(SHARED, hparams, state, data, PLAN, num_rounds=7, eval_every=7)
    points = np.asarray(state.clients.point)
    np.testing.assert_allclose(state.server.mean, P @ points, rtol=0, atol=1e-14)
    np.testing.assert_allclose(state.server.square, P @ points**2, rtol=0, atol=1e-14)
