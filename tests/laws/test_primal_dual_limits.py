"""The limits of FedPD and FedDyn, with and without psi, and in single precision.

The losses are heterogeneous strongly convex quadratics; errors are relative to the solution.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.algorithms.local_solvers import gd, proxgd
from tests.support import primal_dual
from tests.support.primal_dual import (
    DIM,
    NUM_CLIENTS,
    curvatures_and_slopes,
    gradients,
    hparams,
    last_state,
    optimum,
    plain_l1,
    relative_error,
    trajectory,
)

pytestmark = pytest.mark.gate

SCALE = 0.2
client_l1 = proxgd(plain_l1)


@pytest.mark.parametrize("eta", [0.05, pytest.param(0.5, marks=pytest.mark.slow), 5.0])
@pytest.mark.parametrize(
    ("solver", "num_steps"),
    [
        ("gd", 1),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("exact", 3), ("gd", 10))),
    ],
)
def test_every_prox_step_and_every_solver_ends_at_the_minimiser(solver, num_steps, eta):
    """One local step per round is enough, and any prox step is allowed."""
    state = last_state(
        "fed_pd", solver, rates=hparams("fed_pd", eta), num_steps=num_steps, num_rounds=4000
    )
    assert relative_error(state.server.center) < 1e-12
    np.testing.assert_allclose(state.clients.dual, -gradients(optimum()), atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("warm_start", [False, True])
def test_a_solution_to_a_tolerance_is_within_eta_times_it_of_the_exact_one(warm_start):
    """And no better by orders: the solver stops where it may."""
    room, solver = primal_dual.ETA * 1e-3, gd(warm_start=warm_start, tolerance=1e-3)
    found, exact = (
        trajectory("fed_pd", one, num_steps=500).clients.model[0] for one in (solver, "exact")
    )
    distances = np.linalg.norm(found - exact, axis=1)
    assert (distances <= room).all() and (distances > 1e-3 * room).all()


@pytest.mark.slow
@pytest.mark.parametrize("cohort_size", [4, 1])
@pytest.mark.parametrize("eta", [1.0, 0.2, 0.05])
def test_fed_dyn_needs_no_more_than_one_client_a_round(eta, cohort_size):
    state = last_state(
        "fed_dyn",
        "gd",
        rates=hparams("fed_dyn", eta),
        num_rounds=5000,
        cohort=fcojax.uniform_cohort(cohort_size=cohort_size),
        losses=fcojax.dropout(0.3),
    )
    assert relative_error(state.server.center) < 1e-12


def mean_error(eta, skip_probability):
    """The error of the server's model, over the second half of 6000 rounds."""
    rates = hparams("fed_pd", eta, skip_probability=skip_probability)
    centers = trajectory("fed_pd", rates=rates, rounds_between=100).server.center
    return np.mean([relative_error(center) for center in centers[len(centers) // 2 :]])


@pytest.mark.slow
def test_skipping_stalls_at_a_distance_that_grows_with_the_prox_step_and_the_probability():
    skips = (0.0, 0.25, 0.5, 0.9)
    floors = {(eta, skip): mean_error(eta, skip) for eta in (0.5, 0.05) for skip in skips}
    for eta in (0.5, 0.05):
        at = [floors[eta, skip] for skip in skips]
        assert at[0] < 1e-12 < at[1] < at[2] < at[3]
    for skip in (0.25, 0.5):
        assert 5 < floors[0.5, skip] / floors[0.05, skip] < 15


@pytest.mark.slow
def test_skipping_less_and_less_often_removes_the_floor():
    num_rounds, eta = 6000, 0.05
    falling = 1 - (1 + np.arange(num_rounds)) / num_rounds
    rates = hparams("fed_pd", eta)._replace(skip_probability=fcojax.schedule(falling))
    state = last_state("fed_pd", rates=rates, num_rounds=num_rounds)
    assert relative_error(state.server.center) < 0.05 * mean_error(eta, 0.5)


@functools.cache
def sparse_optimum():
    """Return the minimiser of the mean quadratic plus psi, by coordinate descent."""
    curvatures, slopes = (array.mean(axis=0) for array in curvatures_and_slopes())
    x = np.zeros(DIM)
    for _ in range(500):
        for i in range(DIM):
            pull = slopes[i] - curvatures[i] @ x + curvatures[i, i] * x[i]
            x[i] = np.sign(pull) * max(abs(pull) - SCALE, 0) / curvatures[i, i]
    assert 0 < np.count_nonzero(x) < DIM
    return x


COMPOSITE = {
    "FedPD, exact": ("fed_pd", "exact", fcojax.everyone()),
    "FedPD, three steps": ("fed_pd", "gd", fcojax.everyone()),
    "FedDyn, half, three steps": ("fed_dyn", "gd", fcojax.uniform_cohort(cohort_size=4)),
    "FedDyn, one, three steps": ("fed_dyn", "gd", fcojax.uniform_cohort(cohort_size=1)),
}
SLOW = [pytest.param(case, marks=pytest.mark.slow) for case in list(COMPOSITE)[3:]]


@pytest.mark.slow
@pytest.mark.parametrize("case", [*list(COMPOSITE)[:3], *SLOW])
def test_a_server_prox_ends_at_the_composite_minimiser(case):
    r"""There x_i = x_0 = x*, lambda_i = -grad f_i(x*), and x* = prox(x* + eta mean lambda).

    Zeros are exact, because the model is the result of a prox.
    """
    name, solver, cohort = COMPOSITE[case]
    rates = hparams(name, penalty_scale=SCALE)
    state = last_state(name, solver, rates=rates, cohort=cohort, num_rounds=5000)
    best, eta = sparse_optimum(), primal_dual.ETA
    np.testing.assert_allclose(state.server.center, best, rtol=0, atol=1e-12)
    assert np.array_equal(np.asarray(state.server.center) != 0, best != 0)
    np.testing.assert_allclose(
        state.clients.model, np.tile(best, (NUM_CLIENTS, 1)), rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(state.clients.dual, -gradients(best), rtol=0, atol=1e-10)
    mean = np.asarray(state.clients.dual).mean(axis=0)
    back = plain_l1.prox(jnp.asarray(best + eta * mean), eta, SCALE)
    np.testing.assert_allclose(back, best, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cohort"),
    [("fed_pd", fcojax.everyone()), ("fed_dyn", fcojax.uniform_cohort(cohort_size=4))],
    ids=["FedPD", "FedDyn, half"],
)
def test_a_client_prox_ends_there_too_and_its_duals_hold_a_subgradient(name, cohort):
    """-lambda_i - grad f_i(x*) is a subgradient of psi at x*, and the duals cancel."""
    rates = hparams(name, penalty_scale=SCALE)
    state = last_state(name, client_l1, rates=rates, cohort=cohort, num_rounds=5000, penalty=None)
    best = sparse_optimum()
    np.testing.assert_allclose(state.server.center, best, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        state.clients.model, np.tile(best, (NUM_CLIENTS, 1)), rtol=0, atol=1e-12
    )
    subgradients = -np.asarray(state.clients.dual) - gradients(best)
    assert np.abs(subgradients).max() <= SCALE + 1e-10
    signs = np.tile(np.sign(best[best != 0]), (NUM_CLIENTS, 1))
    np.testing.assert_allclose(subgradients[:, best != 0], SCALE * signs, atol=1e-10)
    np.testing.assert_allclose(np.asarray(state.clients.dual).mean(axis=0), 0, atol=1e-10)


@pytest.mark.slow
def test_in_single_precision_twenty_thousand_rounds_do_not_drift():
    """The drift accumulates over rounds and is never recomputed."""
    wide = primal_dual.population()
    rows = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), wide.examples)
    narrow = dataclasses.replace(wide, examples=rows)
    state = last_state(
        "fed_dyn",
        "gd",
        rates=hparams("fed_dyn"),
        num_rounds=20_000,
        data=narrow,
        cohort=fcojax.uniform_cohort(cohort_size=4),
    )
    assert state.server.center.dtype == jnp.float32
    assert relative_error(state.server.center) < 2e-6
    mean = np.asarray(state.clients.dual, np.float64).mean(axis=0)
    np.testing.assert_allclose(state.server.drift, mean, rtol=0, atol=1e-5)
