"""Quadratic clients, states and slow numpy forms that the tests of FedPD and FedDyn share.

Client i holds f_i(x) = x'A_i x/2 - c_i'x, and eta is the prox step. The library's clients are
factored, so the exact solver and gradient steps can both run on them.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax.algorithms.fed_dyn import with_duals
from fcojax.algorithms.local_solvers import exact, gd
from fcojax.engine.round import Plan
from fcojax.engine.run import as_arrays, block, start
from fcojax.problems import factored, factored_loss
from tests.federations import client_means, quadratic, quadratic_clients

NUM_CLIENTS, DIM, SMOOTHNESS = 8, 6, 1.6
ETA = 0.5
KEY = jax.random.key(2)
FACTORIES = {"fed_pd": fcojax.algorithms.fed_pd, "fed_dyn": fcojax.algorithms.fed_dyn}
SOLVERS = {
    "exact": exact(),
    "gd": gd(),
    "gd from the center": gd(warm_start=False),
}


def clients():
    return quadratic_clients(sizes=(1,) * NUM_CLIENTS, dim=DIM, seed=5)


@functools.cache
def population(weights=None):
    given = fcojax.from_clients(clients(), None if weights is None else np.array(weights))
    return factored(quadratic, given, jnp.zeros(DIM))


@functools.cache
def curvatures_and_slopes():
    return client_means(clients())


def gradients(points):
    """grad f_i at the i-th of the points, or at one point for all."""
    curvatures, slopes = curvatures_and_slopes()
    return np.einsum("mij,mj->mi", curvatures, np.broadcast_to(points, slopes.shape)) - slopes


@functools.cache
def optimum():
    curvatures, slopes = curvatures_and_slopes()
    return np.linalg.solve(curvatures.mean(axis=0), slopes.mean(axis=0))


@functools.cache
def algorithm(name, solver="exact", penalty=None, **options):
    """Cached, because a rebuilt algorithm is compiled anew."""
    solver = SOLVERS.get(solver, solver)
    return FACTORIES[name](factored_loss, penalty, solver=solver, **options)


def hparams(name, eta=ETA, client_lr=None, penalty_scale=0.1, skip_probability=0.0):
    kind = FACTORIES[name].Hparams
    values = {
        "client_lr": 1 / (SMOOTHNESS + 1 / eta) if client_lr is None else client_lr,
        "prox_step": eta,
        "penalty_scale": penalty_scale,
        "skip_probability": skip_probability,
    }
    return kind(**{field: values[field] for field in kind._fields})


def first_point():
    return np.random.default_rng(1).standard_normal(DIM)


def first_state(name, chosen, rates, data, duals=None, drift=None):
    """The state before round 0, with the given duals and a drift that fits them unless given."""
    state = start(chosen, as_arrays(rates), jnp.asarray(first_point()), data)
    if duals is not None and name == "fed_pd":
        state = state._replace(clients=state.clients._replace(dual=jnp.asarray(duals)))
    elif duals is not None:
        state = with_duals(state, jnp.asarray(duals), data.weights)
    if drift is not None:
        state = state._replace(server=state.server._replace(drift=jnp.asarray(drift)))
    return state


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _states(chosen, plan, num_rounds, rates, data, state, key):
    def body(state, _):
        state, _ = block(chosen, plan, 1, rates, data, state, key)
        return state, state

    return jax.lax.scan(body, state, length=num_rounds)[1]


def trajectory(
    name, solver="exact", *, rates=None, num_rounds=60, num_steps=10, cohort=None, data=None,
    duals=None, drift=None, penalty=None, key=KEY,
):  # fmt: skip
    """The state after every round; leaves have a leading axis of rounds."""
    chosen = algorithm(name, solver, penalty)
    rates = hparams(name) if rates is None else rates
    data = population() if data is None else data
    plan = Plan(fcojax.local_steps(num_steps), cohort or fcojax.everyone())
    state = first_state(name, chosen, rates, data, duals, drift)
    states = _states(chosen, plan, num_rounds, as_arrays(rates), data, state, key)
    return jax.tree.map(np.asarray, states)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _last(chosen, plan, num_rounds, rates, data, state, key):
    return block(chosen, plan, num_rounds, rates, data, state, key)[0]


def last_state(
    name, solver="exact", *, rates, num_rounds, num_steps=10, cohort=None, data=None, penalty=None
):
    """The state after ``num_rounds`` rounds, in the precision of the data."""
    chosen = algorithm(name, solver, penalty)
    data = population() if data is None else data
    plan = Plan(fcojax.local_steps(num_steps), cohort or fcojax.everyone())
    dtype = data.examples.slopes.dtype
    params = jnp.asarray(first_point(), dtype)
    state = start(chosen, as_arrays(rates), params, data)
    return _last(chosen, plan, num_rounds, as_arrays(rates), data, state, KEY)


def prox(targets, eta):
    """argmin_x eta f_i(x) + |x - v_i|^2 / 2 for each client, by a dense solve."""
    curvatures, slopes = curvatures_and_slopes()
    return np.linalg.solve(np.eye(DIM) + eta * curvatures, (targets + eta * slopes)[..., None])[
        ..., 0
    ]


def steps(starts, anchor, duals, eta, num_steps):
    """Gradient steps on every client's augmented Lagrangian."""
    x = starts
    for _ in range(num_steps):
        x = x - (gradients(x) + duals + (x - anchor) / eta) / (SMOOTHNESS + 1 / eta)
    return x


def relative_error(point):
    return np.linalg.norm(np.asarray(point) - optimum()) / np.linalg.norm(optimum())
