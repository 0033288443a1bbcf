"""RFedAGS of docs/ports: FedAvg in flat space, gradient descent, and its limits on manifolds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import fractional_matrix_power as power

import fcojax
from fcojax import uploads
from fcojax.transforms import flat, spd
from tests.support import frechet
from tests.test_ports import DIM, KEY, PORTS, least_squares, loaded, loss, port, require_on_page

R_FED_AGS = port("r_fed_ags")
# Client 1 is in one of four rounds, and has three times the weight of client 0.
TRACE, WEIGHTS = fcojax.from_trace([[0, 1], [0], [0], [0]]), np.array([1.0, 3.0])
KNOWN = uploads.inverse_probability("known")
A, B = np.diag([1.0, 2.0]), np.array([[3.0, 1.0], [1.0, 0.5]])


def between(t):
    """Return the point at the share t of the geodesic from A to B, in closed form."""
    root, back = power(A, 0.5), power(A, -0.5)
    return root @ power(back @ B @ back, t) @ root


def on_pair(client_lr):
    algorithm = R_FED_AGS(frechet.loss_on(spd()), spd())
    data = fcojax.from_clients([A[None], B[None]], weights=WEIGHTS)
    return algorithm, algorithm.hparams_type(client_lr), data


@pytest.mark.gate
@pytest.mark.slow
def test_in_flat_space_it_is_fed_avg_with_corrected_weights():
    data, *_ = least_squares()
    work, cohort = fcojax.local_steps(3, batch_size=2), fcojax.coin_flips([0.9, 0.3, 0.5, 0.7])
    plan = fcojax.Plan(work, cohort, uploads.inverse_probability("estimated"))
    ends = [
        frechet.ran(made, made.hparams_type(0.1), jnp.ones(DIM), data, plan, 10)
        for made in (R_FED_AGS(loss, flat()), fcojax.algorithms.fed_avg(loss))
    ]
    assert np.allclose(*ends, rtol=0, atol=1e-12)


def test_one_step_of_everyone_is_riemannian_gradient_descent():
    algorithm, hparams, data = on_pair(0.3)
    found = frechet.ran(algorithm, hparams, jnp.asarray(A), data, fcojax.local_steps(1), 10)
    # It moves along the geodesic: in its length, from 0 towards the weighted mean of 0 and 1.
    share = 0.75 * (1 - 0.7**10)
    np.testing.assert_allclose(found, between(share), rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.gate
@pytest.mark.parametrize("chain", [uploads.chain(), KNOWN], ids=["plain", "known"])
def test_limits_with_and_without_correction_have_their_closed_forms(chain):
    algorithm, hparams, data = on_pair(0.2)
    plan = fcojax.Plan(fcojax.local_steps(3), TRACE, chain)
    first = fcojax.start(algorithm, hparams, jnp.asarray(A), data, KEY, plan)

    def mean_step(_, x):
        def tangent(index):
            state = first._replace(server=x, round=index)
            after = fcojax.advance(algorithm, hparams, state, data, plan, num_rounds=1)[0]
            return spd().log(x, after.server)

        steps = jax.vmap(tangent)(jnp.arange(4, dtype=jnp.int32))
        return spd().exp(x, jnp.mean(steps, axis=0))

    found = jax.jit(lambda x: jax.lax.fori_loop(0, 200, mean_step, x))(first.server)
    # Without correction client 1 has 3/4 of the mean in a quarter of the rounds.
    share = 0.75 if chain is KNOWN else 0.25 * 0.75
    np.testing.assert_allclose(found, between(share), rtol=0, atol=1e-11)


@pytest.mark.slow
def test_the_page_gives_the_verdicts_of_the_figure(monkeypatch):
    """Among them: with estimated frequencies the error falls, and RFedAvg stays at its limit."""
    monkeypatch.syspath_prepend(PORTS.parent)
    script = loaded(PORTS.parent / "r_fed_ags_figure.py")
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        require_on_page(script.claims(*script.measured(spd(), jnp.eye(3))))
