"""Forward mode, reverse mode and differences agree through runs with uncounted uploads."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms
from fcojax.engine.plan import Plan
from tests.laws.test_algorithm_laws import ROWS, build, point, rates
from tests.support import federations

WORK = fcojax.local_steps(2)
ROUNDS = 3
# Cases of uncounted uploads: the cohort and the losses.
CASES = {"dropped": (), "all of it": (fcojax.coin_flips(0.7), fcojax.dropout(0.4))}
KEY = jax.random.key(5)


@functools.cache
def population():
    """Return clients, of which one has gradients that overflow in the second step."""
    clients = [dict(client) for client in federations.quadratic_clients()]
    clients[2]["A"] = clients[2]["A"] * 1e200
    return fcojax.from_clients(clients)


def validation(name, case, data, theta):
    """Return the end of a run as a function of its start along a line, a rate and a strength."""
    hparams = rates(name)._replace(client_lr=theta[0])
    if "penalty_scale" in hparams._fields:
        hparams = hparams._replace(penalty_scale=theta[1])
    first = point(name) + theta[2] * jnp.array([1.0, -0.5, 0.25, 2.0])
    plan = Plan(WORK, *CASES[case])
    model, history = fcojax.run(build(name), hparams, first, data, KEY, plan, num_rounds=ROUNDS)
    return jnp.sum(jnp.sin(model)), history


def agree(function, theta, moving):
    """Return derivatives by reverse mode, forward mode and central differences."""
    found, history = jax.jit(jax.grad(function, has_aux=True))(theta)
    forward = jax.jit(lambda at, along: jax.jvp(lambda x: function(x)[0], (at,), (along,))[1])
    value = jax.jit(lambda at: function(at)[0])
    for index in range(theta.size):
        along = jnp.zeros(theta.size).at[index].set(1.0)
        differences = (value(theta + 1e-6 * along) - value(theta - 1e-6 * along)) / 2e-6
        np.testing.assert_allclose(forward(theta, along), found[index], rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(differences, found[index], rtol=1e-6, atol=1e-8)
        assert (abs(found[index]) > 1e-4) == (index in moving)
    return history


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["fed_dual_avg", "fed_avg", "fed_dyn"])
def test_derivatives_pass_by_what_did_not_count(name, case):
    moving = {0, 2} if ROWS[name].geometry is None else {0, 1, 2}
    history = agree(
        functools.partial(validation, name, case, population()),
        jnp.array([0.05, 0.1, 0.02]),
        moving,
    )
    assert history["dropped"].sum() > 0
    absent = history["participants"].sum() < ROUNDS * population().num_clients
    assert absent == (history["lost"].sum() > 0) == (case == "all of it")


def test_a_server_step_that_is_not_taken_has_no_derivative():
    """The model does not change, so its derivative in the start is one, in the rate zero."""
    data = fcojax.from_clients([{"a": np.full(1, 1e30)}] * 2)
    algorithm = algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)

    def end(theta):
        hparams = algorithms.fed_avg.Hparams(client_lr=theta[0], server_lr=1e300)
        model, history = fcojax.run(
            algorithm, hparams, theta[1], data, KEY, fcojax.local_steps(1), num_rounds=2
        )
        return model, history["refused"]

    slope, refused = jax.jit(jax.grad(end, has_aux=True))(jnp.array([0.5, 3.0]))
    assert refused.tolist() == [1, 1]
    assert slope.tolist() == [0.0, 1.0]
