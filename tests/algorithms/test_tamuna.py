"""TAMUNA: owners, the printed loop in numpy, Scaffnew, and exactness with partial uploads."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import uploads
from fcojax.algorithms import prox_skip, tamuna

KEY, DIM, CLIENTS, STEPS = jax.random.key(1), 7, 5, 3
LOSSY = fcojax.dropout(fcojax.uniform_cohort(cohort_size=3), 0.3)
RATES = tamuna.Hparams(client_lr=0.05)


@functools.cache
def clients():
    rng = np.random.default_rng(0)
    return [
        {"A": np.eye(DIM) * rng.uniform(0.5, 3.0, DIM), "c": rng.standard_normal(DIM)}
        for _ in range(CLIENTS)
    ]


def loss(w, rows):
    return jnp.einsum("nij,i,j->n", rows["A"], w, w) / 2 - rows["c"] @ w


@functools.cache
def data(weights=None):
    rows = [{name: value[None] for name, value in client.items()} for client in clients()]
    return fcojax.from_clients(rows, weights=weights)


def chosen(owners):
    return tamuna(loss, num_clients=CLIENTS, num_owners=owners)


def states(owners, num_rounds, weights=None, cohort=None):
    """Return the states after every round."""
    plan = fcojax.Plan(fcojax.local_steps(STEPS), cohort or fcojax.everyone())
    algorithm = chosen(owners)
    found = [fcojax.start(algorithm, RATES, jnp.ones(DIM), data(weights), KEY, plan)]
    for _ in range(num_rounds):
        state, _ = fcojax.advance(algorithm, RATES, found[-1], data(weights), plan, num_rounds=1)
        found.append(state)
    return found


def shares(weights):
    weights = np.ones(CLIENTS) if weights is None else np.array(weights)
    return weights / weights.sum()


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, (1.0, 2.0, 0.5, 3.0, 1.5)])
@pytest.mark.parametrize("owners", [2, 3, 5])
def test_it_is_the_printed_loop_and_controls_add_up_to_zero(owners, weights):
    """With the owners that the run drew, exactly q per coordinate."""
    found, share = states(owners, 6, weights), shares(weights)
    hessians, slopes = (np.stack([client[name] for client in clients()]) for name in "Ac")
    gamma, n = RATES.client_lr, CLIENTS
    chi = n * (owners - 1) / (owners * (n - 1))
    model, control = np.ones(DIM), np.zeros((n, DIM))
    for after in found[1:]:
        owned = np.asarray(after.clients.owned)
        np.testing.assert_array_equal(owned.sum(axis=0), owners)
        assert np.all(np.abs(owned.sum(axis=1) - DIM * owners / n) <= owners)
        x = np.tile(model, (n, 1))
        np.testing.assert_allclose(after.clients.control, control, atol=1e-12)
        for _ in range(STEPS):
            x = x - gamma * (np.einsum("mij,mj->mi", hessians, x) - slopes - control)
        model = (share @ (owned * x)) / (share @ owned)
        control = control + chi / (gamma * STEPS) * owned * (model - x)
        np.testing.assert_allclose(after.server.center, model, atol=1e-12)
        np.testing.assert_allclose(share @ control, 0, atol=1e-11)
    assert len({np.asarray(state.clients.owned).tobytes() for state in found[1:]}) > 1 or (
        owners == n
    )


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, (1.0, 2.0, 0.5, 3.0, 1.5)])
def test_controls_that_are_due_add_up_to_zero_with_absent_clients_and_lost_uploads(weights):
    """A participating client's variate is recomputed; the others keep theirs."""
    found, share, owners = states(2, 12, weights, LOSSY), shares(weights), 2
    rate = CLIENTS * (owners - 1) / (owners * (CLIENTS - 1)) / (RATES.client_lr * STEPS)
    moved = 0
    last = np.asarray(found[0].clients.point)
    for after in found[1:]:
        control, point, owned = map(np.asarray, after.clients)
        due = control + rate * owned * (np.asarray(after.server.center) - point)
        np.testing.assert_allclose(share @ due, 0, atol=1e-11)
        np.testing.assert_allclose(after.server.owned, share @ owned, atol=1e-14)
        moved += np.sum(np.any(point != last, axis=1))
        last = point
    assert 12 < moved < 36
    seen = np.stack([state.clients.owned for state in found[1:]])
    assert np.any(seen.sum(axis=1) == 0)  # some coordinate has no owner


@pytest.mark.slow
def test_with_everyone_an_owner_it_is_scaffnew():
    plan, runs = fcojax.Plan(fcojax.local_steps(STEPS)), []
    for algorithm in (chosen(CLIENTS), tamuna(loss), prox_skip(loss)):
        hparams = algorithm.hparams_type(client_lr=0.05)
        model, history = fcojax.run(
            algorithm, hparams, jnp.ones(DIM), data(), KEY, plan, num_rounds=9
        )
        runs.append((model, float(history["bytes_up"][0])))
    for model, _ in runs[:2]:
        np.testing.assert_allclose(model, runs[2][0], rtol=1e-12)
    assert runs[0][1] == runs[1][1] == CLIENTS * DIM * 8


@pytest.mark.slow
@pytest.mark.parametrize(("cohort", "size"), [(fcojax.everyone(), 5), (LOSSY, 3)])
def test_two_owners_of_each_coordinate_end_at_the_solution(cohort, size):
    """TAMUNA sends two fifths of the numbers; a codec that sends as many does not converge."""
    plan = fcojax.Plan(fcojax.local_steps(STEPS), cohort)
    model, history = fcojax.run(
        chosen(2), RATES, jnp.ones(DIM), data(), KEY, plan, num_rounds=600, eval_every=600
    )
    hessians, slopes = (np.mean([client[name] for client in clients()], axis=0) for name in "Ac")
    best = np.linalg.solve(hessians, slopes)
    np.testing.assert_allclose(model, best, atol=1e-10)
    assert float(history["bytes_up"][0]) == pytest.approx(600 * size * 0.4 * DIM * 8)
    lossy = plan._replace(codec=uploads.compressed(uploads.top_k(3)))
    plain = prox_skip(loss)
    stuck, _ = fcojax.run(
        plain,
        plain.hparams_type(client_lr=0.05),
        jnp.ones(DIM),
        data(),
        KEY,
        lossy,
        num_rounds=600,
        eval_every=600,
    )
    assert np.linalg.norm(stuck - best) > 1e-3 * np.linalg.norm(best)
