"""Models under any penalty on their stack: the stacked problem in cvxpy, and special cases."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms, uploads
from fcojax.algorithms import takes
from fcojax.algorithms.multi_task import CoupledHparams
from fcojax.check import LAWS, subject_of
from fcojax.personal import read_models
from fcojax.transforms import Penalty, group_l2, l1, nuclear, sparse_group
from tests.support import federations

PLAN = fcojax.Plan(fcojax.local_steps(5), fcojax.uniform_cohort(cohort_size=2), fcojax.dropout(0.3))
WEIGHTS = np.array([1.0, 2.0, 1.0, 3.0])
P = WEIGHTS / WEIGHTS.sum()
EYE = np.eye(4)
# A triangle of clients, and a fourth one at its corner.
EDGES = np.array([[1, -1, 0, 0], [0, 0.5, -0.5, 0], [1, 0, -1, 0], [0, 0, 0.8, -0.8]])


class Row(NamedTuple):
    """A penalty, its matrix, psi(A W) for cvxpy, and a strength at which it has an effect."""

    penalty: Penalty
    matrix: np.ndarray
    value: Callable[[cp.Expression], Any]
    strength: float


ROWS = {
    "graph": Row(l1(), EDGES, cp.norm1, 0.05),
    "network lasso": Row(group_l2(axis=1), EDGES, lambda u: cp.sum(cp.norm(u, axis=1)), 0.1),
    "graph and own zeros": Row(l1(), np.concatenate([0.7 * EYE, EDGES]), cp.norm1, 0.05),
    "sparse groups": Row(
        sparse_group(0.3, axis=0),
        EYE,
        lambda u: 0.3 * cp.norm1(u) + 0.7 * cp.sum(cp.norm(u, axis=0)),
        0.15,
    ),
    "low rank": Row(nuclear(), EYE, cp.normNuc, 0.15),
}

IN_GATE = ("graph", "sparse groups")


def clients_of(seed):
    return federations.quadratic_clients(sizes=(3, 3, 3, 3), seed=seed)


@functools.cache
def built(name):
    return algorithms.multi_task(federations.quadratic, *ROWS[name][:2])


def after(algorithm, data, num_rounds=4000, plan=PLAN, start: Any = None, **numbers):
    """Return the state, and the arguments of ``read_models``."""
    hparams = algorithm.hparams_type(**({"client_lr": 0.35, "prox_step": 1.0} | numbers))
    start = jnp.zeros(4) if start is None else start
    state = fcojax.start(algorithm, hparams, start, data, jax.random.key(2), plan)
    state, _ = fcojax.advance(
        algorithm, hparams, state, data, plan, num_rounds=num_rounds, eval_every=num_rounds
    )
    return algorithm, hparams, state


def models(algorithm, clients, weights: Any = WEIGHTS, **numbers):
    """Return the personal models; half of the clients take part, and some uploads are lost."""
    return np.asarray(
        read_models(*after(algorithm, fcojax.from_clients(clients, weights), **numbers))
    )


def stacked(clients, name, p=P) -> Any:
    """Return the minimiser of the stacked problem: by an interior-point method, then by Newton's.

    The first is within 1e-9 for quadratic programs, and within 2e-5 for others.
    """
    row, (matrices, vectors) = ROWS[name], federations.client_means(clients)
    w = cp.Variable((4, 4))
    objective = row.strength * row.value(row.matrix @ w)
    for m in range(4):
        root = np.linalg.cholesky(matrices[m])
        objective += p[m] / 2 * cp.sum_squares(root.T @ w[m] - np.linalg.solve(root, vectors[m]))
    tight = dict.fromkeys(("tol_feas", "tol_gap_abs", "tol_gap_rel"), 1e-13)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it ends before these tolerances
        cp.Problem(cp.Minimize(objective)).solve(solver="CLARABEL", **tight)
    return w.value if name not in POLISH else polished(name, w.value, matrices, vectors)


def _norms(squares):
    """Return the sum of square roots, without the terms that are zero."""
    there = squares > 1e-9
    return jnp.sum(jnp.where(there, jnp.sqrt(jnp.where(there, squares, 1)), 0))


def _network(w):
    """Return coordinates of W, and the projector onto models that agree where these do."""
    fused = EDGES[np.linalg.norm(EDGES @ w, axis=1) < 1e-4]
    return w.ravel(), np.kron(EYE - np.linalg.pinv(fused) @ fused, EYE)


def _factors(w):
    """Return the factors L and R of W = L R', whose squares sum to twice the nuclear norm."""
    left, values, right = np.linalg.svd(w)
    roots = np.sqrt(np.where(values < 1e-4, 0, values))
    return np.stack([left * roots, right.T * roots]).ravel(), np.eye(32)


# On the zeros that the first solution has, psi(A W) is smooth: coordinates and their space, and
# W and psi at coordinates.
POLISH = {
    "network lasso": (_network, lambda w: (w, _norms(jnp.sum((EDGES @ w) ** 2, axis=1)))),
    "sparse groups": (
        lambda w: (w.ravel(), np.diag(1.0 * (np.abs(w.ravel()) > 1e-4))),
        lambda w: (w, 0.3 * jnp.sum(jnp.abs(w)) + 0.7 * _norms(jnp.sum(w**2, axis=0))),
    ),
    "low rank": (_factors, lambda lr: (lr[:4] @ lr[4:].T, jnp.sum(lr**2) / 2)),
}


@functools.cache
def _derivatives(name):
    def smooth(theta, space, matrices, vectors):
        w, value = POLISH[name][1]((space @ theta).reshape(-1, 4))
        quadratic = jnp.einsum("mi,mij,mj->m", w, matrices, w) / 2 - jnp.sum(vectors * w, axis=1)
        return P @ quadratic + ROWS[name].strength * value

    return jax.jit(lambda *given: (jax.grad(smooth)(*given), jax.hessian(smooth)(*given)))


def polished(name, w, matrices, vectors):
    theta, space = POLISH[name][0](w)
    for _ in range(6):
        slope, curvature = _derivatives(name)(theta, space, matrices, vectors)
        theta = theta - np.linalg.lstsq(curvature, slope, rcond=1e-9)[0]
    found = np.asarray(POLISH[name][1]((space @ theta).reshape(-1, 4))[0])
    assert np.abs(found - w).max() < 1e-4
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.gate] * (name in IN_GATE)) for name in ROWS],
)
def test_models_are_the_stacked_minimiser_on_20_problems(name):
    found = []
    for seed in range(20):
        ours = models(built(name), clients_of(seed), penalty_scale=ROWS[name].strength)
        expected = stacked(clients_of(seed), name)
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-9)
        if name == "low rank":
            zeros = np.linalg.svd(ours)[1] < 1e-14
        else:
            zeros = np.abs(ROWS[name].matrix @ ours) < 1e-9
        found.append(zeros.any())
    assert sum(found) >= 5  # the penalty has an effect


CLIENTS = clients_of(0)
DATA = fcojax.from_clients(CLIENTS, WEIGHTS)


@pytest.mark.slow
def test_another_order_of_the_clients_permutes_the_models():
    order = np.array([2, 0, 3, 1])
    algorithm = algorithms.multi_task(federations.quadratic, l1(), EDGES[:, order])
    ours = models(built("graph"), CLIENTS, penalty_scale=0.05)
    moved = models(algorithm, [CLIENTS[i] for i in order], WEIGHTS[order], penalty_scale=0.05)
    np.testing.assert_allclose(moved, ours[order], rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["network lasso", "sparse groups"])
def test_chunks_devices_compression_and_resumed_sweeps_give_the_same_models(name):
    algorithm, numbers = built(name), {"num_rounds": 6, "start": jnp.ones(4)}
    run = after(algorithm, DATA, **numbers)
    expected = read_models(*run), fcojax.read_model(*run)
    assert np.ptp(expected[0], axis=0).all()

    def agrees(found):
        np.testing.assert_allclose(read_models(*found), expected[0], rtol=1e-11)
        np.testing.assert_allclose(fcojax.read_model(*found), expected[1], rtol=1e-11)

    agrees(after(algorithm, DATA, plan=PLAN._replace(client_chunk_size=1), **numbers))
    row_alone = uploads.compressed(uploads.top_k(4))  # all other entries are zero
    chained = uploads.chain(row_alone, PLAN.uploads)
    agrees(after(algorithm, DATA, plan=PLAN._replace(uploads=chained), **numbers))
    on_two = fcojax.devices.shard_clients(DATA, fcojax.devices.client_mesh(2))
    agrees(after(algorithm, on_two, **numbers))

    grid = fcojax.grid.product(
        algorithm.hparams_type, client_lr=[0.35, 0.1], prox_step=[1.0], penalty_scale=[0.1]
    )
    keys = jnp.stack([jax.random.key(2), jax.random.key(0)])
    state = fcojax.start(algorithm, grid, jnp.ones(4), DATA, keys, PLAN)
    for num_rounds in (2, 4):
        state, _ = fcojax.advance(algorithm, grid, state, DATA, PLAN, num_rounds=num_rounds)
    np.testing.assert_allclose(read_models(algorithm, grid, state)[0, 0], expected[0], rtol=1e-11)


def test_before_the_first_round_all_models_are_the_start():
    algorithm, plan = built("sparse groups"), fcojax.local_steps(1)
    hparams = algorithm.hparams_type(penalty_scale=0.15)
    state = fcojax.start(algorithm, hparams, jnp.ones(4), DATA, jax.random.key(0), plan)
    assert (read_models(algorithm, hparams, state) == 1).all()
    assert (fcojax.read_model(algorithm, hparams, state) == 1).all()


@pytest.mark.slow
def test_a_client_of_weight_zero_adds_no_loss():
    weights = np.array([1.0, 2.0, 0.0, 3.0])
    ours = models(built("graph"), CLIENTS, weights, penalty_scale=ROWS["graph"].strength)
    expected = stacked(CLIENTS, "graph", weights / weights.sum())
    np.testing.assert_allclose(ours[weights > 0], expected[weights > 0], rtol=0, atol=1e-9)


@takes(CoupledHparams, "penalty")
def on_a_path(loss, penalty):
    """The path of the clients of ``fcojax.check``, at most eight."""
    path = algorithms.multi_task(loss, penalty, np.diff(np.eye(8), axis=0))
    return path._replace(facts=path.facts._replace(num_clients=None))


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_the_laws_of_the_contract_hold(law):
    found = LAWS[law](subject_of(on_a_path))
    # Clients on a path cannot be exchanged.
    applies = law not in ("order", "identical clients", "weights", "fraction")
    assert found.holds is (True if applies else None), found.sentence
