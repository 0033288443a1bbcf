"""Personalised methods of docs/ports, against minimisers and methods of the library."""

import numpy as np
import pytest

import fcojax
from fcojax import algorithms
from fcojax.personal import read_models
from tests.algorithms.test_personal import (
    ALONE,
    LASSO,
    MATRICES,
    STRENGTH,
    VECTORS,
    ended,
    in_gate,
    loss,
    minimiser,
)
from tests.support.composite_oracles import soft
from tests.test_ports import port

EYE = np.eye(4)


@pytest.mark.slow
def test_with_a_share_of_1_scafflix_is_prox_skip():
    _, model, run = ended(port("scafflix")(loss, LASSO), share=1.0)
    _, expected, _ = ended(algorithms.prox_skip(loss, LASSO))
    np.testing.assert_allclose(model, expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(read_models(*run), np.tile(model, (4, 1)), rtol=0, atol=1e-13)


@in_gate
def test_scafflix_ends_at_the_minimiser_of_the_mixtures():
    algorithm, share = port("scafflix")(loss, LASSO, step_factors=(1.0, 0.8, 1.5, 2.0)), 0.6
    _, model, run = ended(algorithm, num_rounds=500, share=share)
    shifted = VECTORS - (1 - share) * np.einsum("mij,mj->mi", MATRICES, ALONE)
    optimum = minimiser(share**2 * MATRICES.mean(axis=0), share * shifted.mean(axis=0))
    np.testing.assert_allclose(model, optimum, rtol=0, atol=1e-10)
    mixed = share * optimum + (1 - share) * ALONE
    np.testing.assert_allclose(read_models(*run), mixed, rtol=0, atol=1e-10)


@in_gate
@pytest.mark.parametrize("around", ["zero", "mean"])
def test_coupled_models_are_those_of_a_penalty_on_their_stack(around):
    """A norm of all models of an entry; or one of their deviations, and l1 of the mean."""
    algorithm = port("coupled")(loss, None if around == "zero" else LASSO, around=around)
    *_, run = ended(algorithm, num_rounds=400, fusion_scale=0.6)
    models, step = np.zeros((4, 4)), 1 / np.linalg.eigvalsh(MATRICES).max()
    for _ in range(4000):  # proximal gradient descent on the sum, which is 4 times the mean
        models = models - step * (np.einsum("mij,mj->mi", MATRICES, models) - VECTORS)
        mean = models.mean(axis=0) if around == "mean" else np.zeros(4)
        norms = np.linalg.norm(models - mean[None], axis=0)
        shrunk = np.maximum(1 - 4 * step * 0.6 * 0.5 / norms, 0)
        models = soft(mean, step * STRENGTH)[None] + shrunk * (models - mean[None])
    found = read_models(*run)
    np.testing.assert_allclose(found, models, rtol=0, atol=1e-9)
    same = found == 0 if around == "zero" else np.abs(found - found.mean(axis=0)[None]) < 1e-9
    assert same.all(axis=0).any()


def moreau(x, pull):
    """Return the minimisers v_i of the envelopes at x, and minus their mean gradient."""
    v, step = np.tile(x, (4, 1)), 1 / (np.linalg.eigvalsh(MATRICES).max() + pull)
    for _ in range(100):
        slope = np.einsum("mij,mj->mi", MATRICES, v) - VECTORS + pull * (v - x)
        v = soft(v - step * slope, step * STRENGTH)
    return v, pull * (v - x).mean(axis=0)


def forward_backward(x, step):
    """Return the minimisers v_i, a proximal step each, and minus the mean gradient."""
    v = soft(x - step * (MATRICES @ x - VECTORS), step * STRENGTH)
    slopes = np.einsum("mij,mj->mi", EYE / step - MATRICES, x - v)
    return v, -slopes.mean(axis=0)


@in_gate
@pytest.mark.parametrize(
    ("name", "number", "at"),
    [("p_fed_me", "prox_scale", moreau), ("p_fed_fbe", "prox_step", forward_backward)],
)
def test_the_limit_is_the_minimiser_of_the_mean_envelope(name, number, at):
    """With one local step of everyone."""
    x = np.zeros(4)
    for _ in range(300):
        x = x + 0.5 * at(x, 0.6)[1]
    plan = fcojax.Plan(fcojax.local_steps(1))
    _, model, run = ended(port(name)(loss, LASSO), num_rounds=500, plan=plan, **{number: 0.6})
    np.testing.assert_allclose(model, x, rtol=0, atol=1e-10)
    np.testing.assert_allclose(read_models(*run), at(x, 0.6)[0], rtol=0, atol=1e-10)


@in_gate
def test_several_steps_on_moreau_envelopes_move_the_limit_as_in_theory():
    """The steps are linear, x - c_i to (I - eta E_i)(x - c_i), with E_i the envelope's Hessian."""
    pull, rate, plan = 0.7, 0.3, fcojax.Plan(fcojax.local_steps(3))
    hessians = pull * MATRICES @ np.linalg.inv(MATRICES + pull * EYE)
    through = EYE - np.linalg.matrix_power(EYE - rate * hessians, 3)
    ends = np.linalg.solve(MATRICES, VECTORS[..., None])
    limit = np.linalg.solve(through.mean(axis=0), (through @ ends).mean(axis=0)[:, 0])
    algorithm = port("p_fed_me")(loss, inner_steps=60)
    _, model, _ = ended(algorithm, num_rounds=300, plan=plan, client_lr=rate, prox_scale=pull)
    np.testing.assert_allclose(model, limit, rtol=0, atol=1e-10)
