"""Local problems that are solved to a tolerance, by the bound of their strong convexity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.algorithms import fed_pd
from fcojax.algorithms.local_solvers import gd
from tests.support import primal_dual

ETA, TOLERANCE = 0.5, 1e-3


def one_round(algorithm, loss_data, start, client_lr):
    hparams = algorithm.hparams_type(client_lr=client_lr, prox_step=ETA, penalty_scale=0.0)
    key, plan = jax.random.key(0), fcojax.local_steps(500)
    state = fcojax.start(algorithm, hparams, start, loss_data, key, plan)
    state, _ = fcojax.advance(algorithm, hparams, state, loss_data, plan, num_rounds=1)
    return state.clients


@pytest.mark.parametrize("warm_start", [False, True])
def test_a_solution_is_within_eta_times_the_tolerance_of_the_exact_one(warm_start):
    """And no better by orders: the solver stops where it may."""
    rate = 1 / (primal_dual.SMOOTHNESS + 1 / ETA)
    found, exact = (
        one_round(
            primal_dual.algorithm("fed_pd", solver),
            primal_dual.population(),
            primal_dual.first_point(),
            rate,
        ).model
        for solver in (gd(warm_start=warm_start, tolerance=TOLERANCE), "exact")
    )
    distances = np.linalg.norm(found - exact, axis=1)
    assert (distances <= ETA * TOLERANCE).all() and (distances > 1e-3 * ETA * TOLERANCE).all()


def test_minibatches_cannot_tell_how_near_the_solution_is():
    algorithm = fed_pd(lambda w, rows: (w - rows["a"]) ** 2, solver=gd(tolerance=0.1))
    data = fcojax.from_clients([{"a": np.ones(3)}])
    with pytest.raises(ValueError, match="batch_size"):
        fcojax.run(
            algorithm,
            algorithm.hparams_type(),
            jnp.array(0.0),
            data,
            jax.random.key(0),
            fcojax.local_steps(2, batch_size=1),
            num_rounds=1,
        )
