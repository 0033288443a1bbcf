"""When FedPD and FedDyn are the same method, and the effects of mistakes.

With full participation, no skipping, the same solver from the same start, and a drift that is the
mean of the duals, they coincide for all duals and also for inexact solvers.
"""

import numpy as np
import pytest

import fcojax
from tests.support import primal_dual
from tests.support.primal_dual import (
    DIM,
    ETA,
    NUM_CLIENTS,
    curvatures_and_slopes,
    first_point,
    gradients,
    optimum,
    prox,
    relative_error,
    steps,
    trajectory,
)

pytestmark = pytest.mark.gate

DUALS = {
    "zero": np.zeros((NUM_CLIENTS, DIM)),
    "minus the gradients": -gradients(first_point()),
    "plus the gradients": gradients(first_point()),
    "arbitrary": np.random.default_rng(3).standard_normal((NUM_CLIENTS, DIM)),
}
WEIGHTS = (1.0, 2.0, 0.5, 1.0, 3.0, 1.0, 0.25, 1.0)


def largest_gap(ours, theirs):
    return np.abs(np.asarray(ours) - np.asarray(theirs)).max()


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("solver", ["exact", "gd", "gd from the center"])
@pytest.mark.parametrize("duals", DUALS)
def test_the_two_coincide_for_any_duals_if_the_drift_is_their_mean(duals, solver, weights):
    settings = {"duals": DUALS[duals], "data": primal_dual.population(weights)}
    pd, dyn = (trajectory(name, solver, **settings) for name in ("fed_pd", "fed_dyn"))
    assert largest_gap(pd.server.center, dyn.server.center) < 1e-12
    assert largest_gap(pd.clients.model, dyn.clients.model) < 1e-12
    assert largest_gap(pd.clients.dual, dyn.clients.dual) < 1e-12
    shares = np.ones(NUM_CLIENTS) if weights is None else np.array(weights)
    mean_dual = np.einsum("m,rmi->ri", shares / shares.sum(), dyn.clients.dual)
    assert largest_gap(dyn.server.drift, mean_dual) < 1e-12


@pytest.mark.parametrize("duals", ["zero", "arbitrary"])
def test_another_start_of_the_local_steps_is_another_method_with_the_same_limit(duals):
    warm = trajectory("fed_pd", "gd", duals=DUALS[duals])
    cold = trajectory("fed_dyn", "gd from the center", duals=DUALS[duals])
    assert largest_gap(warm.server.center, cold.server.center) > 1e-3
    assert relative_error(warm.server.center[-1]) < 1e-7
    assert relative_error(cold.server.center[-1]) < 1e-7


def literal_fed_dyn(duals, drift, solve, duals_after, num_rounds=60, drift_after=None):
    """FedDyn with full participation; ``duals_after`` computes duals from the new models."""
    center, models, centers = first_point(), np.tile(first_point(), (NUM_CLIENTS, 1)), []
    for _ in range(num_rounds):
        models = solve(models, center, duals)
        duals = duals_after(models, duals, center)
        drift = drift + (models - center).mean(axis=0) / ETA
        if drift_after is not None:
            drift = drift_after(models)
        center = models.mean(axis=0) + ETA * drift
        centers.append(center)
    return np.array(centers)


def solve_exactly(models, center, duals):
    return prox(center - ETA * duals, ETA)


def solve_roughly(models, center, duals):
    return steps(models, center, duals, ETA, num_steps=3)


def reevaluated(models, duals, center):
    return -gradients(models)


START = DUALS["minus the gradients"]


def test_duals_may_be_evaluated_afresh_only_if_clients_solve_exactly():
    """An exact solution has lambda_i = -grad f_i(x_i), an inexact one does not."""
    settings = (START, START.mean(axis=0))
    ours = trajectory("fed_dyn", duals=START).server.center
    afresh = literal_fed_dyn(*settings, solve_exactly, reevaluated)
    assert largest_gap(ours, afresh) < 1e-12
    ours = trajectory("fed_dyn", "gd", duals=START).server.center
    afresh = literal_fed_dyn(*settings, solve_roughly, reevaluated, num_rounds=2000)
    assert largest_gap(ours, afresh[:60]) > 0.01
    assert relative_error(afresh[-1]) > 0.01
    assert largest_gap(afresh[-1], afresh[-100]) < 1e-12  # it has converged
    both = literal_fed_dyn(
        *settings,
        solve_roughly,
        reevaluated,
        num_rounds=2000,
        drift_after=lambda models: -gradients(models).mean(axis=0),
    )
    assert relative_error(both[-1]) < 1e-12


def test_a_gradient_with_the_wrong_sign_never_converges():
    """The linear term of the local problem is minus the client's gradient, not plus."""
    right = trajectory("fed_dyn", duals=DUALS["plus the gradients"]).server.center
    wrong = literal_fed_dyn(
        DUALS["plus the gradients"],
        DUALS["plus the gradients"].mean(axis=0),
        solve_exactly,
        lambda models, duals, center: gradients(models),
        num_rounds=2000,
    )
    assert relative_error(right[-1]) < 1e-6
    assert largest_gap(right, wrong[:60]) > 0.1
    assert not relative_error(wrong[-1]) < 0.1


@pytest.mark.parametrize(
    ("cohort", "num_rounds"),
    [(fcojax.everyone(), 420), (fcojax.uniform_cohort(cohort_size=4), 2040)],
    ids=["everyone", "half"],
)
def test_a_drift_that_is_not_the_mean_dual_is_a_bias_for_ever(cohort, num_rounds):
    r"""The offset b = h - mean lambda is conserved, and the limit solves grad f(x) = b.

    On quadratics that is x* + Hbar^{-1} b, with Hbar the mean Hessian.
    """
    duals = np.random.default_rng(5).standard_normal(START.shape)
    between = num_rounds // 60
    states = trajectory(
        "fed_dyn", duals=duals, drift=np.zeros(DIM), cohort=cohort, rounds_between=between
    )
    offset = -duals.mean(axis=0)
    mean_duals = states.clients.dual.mean(axis=1)
    assert largest_gap(states.server.drift - mean_duals, offset) < 1e-12
    curvatures, _ = curvatures_and_slopes()
    predicted = optimum() + np.linalg.solve(curvatures.mean(axis=0), offset)
    assert relative_error(predicted) > 0.5
    # It is not the start point, at which the test could not fail.
    assert largest_gap(primal_dual.first_point(), predicted) > 0.1
    np.testing.assert_allclose(states.server.center[-1], predicted, rtol=0, atol=1e-12)
    unbiased = trajectory("fed_dyn", duals=duals, cohort=cohort, rounds_between=between)
    assert largest_gap(states.server.center, unbiased.server.center) > 0.5
    assert relative_error(unbiased.server.center[-1]) < 1e-12


@pytest.mark.slow
def test_a_cohort_or_a_skip_makes_them_different_methods():
    always = trajectory("fed_pd").server.center
    skipping = trajectory("fed_pd", rates=primal_dual.hparams("fed_pd", skip_probability=0.5))
    half = trajectory("fed_dyn", cohort=fcojax.uniform_cohort(cohort_size=4))
    for other in (skipping, half):
        assert largest_gap(always, other.server.center) > 0.1
