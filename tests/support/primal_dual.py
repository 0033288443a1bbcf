"""Quadratic clients, states and slow numpy versions for the tests of FedPD and FedDyn.

Client i holds f_i(x) = x'A_i x/2 - c_i'x, and eta is the prox step. The library's clients are
factored, so the exact solver and gradient steps can both run on them. Tests share few programs:
the server always has its prox, which at strength zero is exactly the identity, and the number
of rounds between two evaluations is traced.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax.algorithms.local_solvers import exact, gd
from fcojax.engine.plan import Plan
from fcojax.engine.stepper import start
from fcojax.problems import factored, factored_loss
from fcojax.transforms import l1
from fcojax.uploads.transform import NOTHING
from tests.support.federations import client_means, quadratic, quadratic_clients

NUM_CLIENTS, DIM, SMOOTHNESS = 8, 6, 1.6
ETA = 0.5
NUM_LOOKS = 60
KEY = jax.random.key(2)
FACTORIES = {"fed_pd": fcojax.algorithms.fed_pd, "fed_dyn": fcojax.algorithms.fed_dyn}
SOLVERS = {"exact": exact(), "gd": gd(), "gd from the center": gd(warm_start=False)}
plain_l1 = l1()


def clients():
    return quadratic_clients(sizes=(1,) * NUM_CLIENTS, dim=DIM, seed=5)


@functools.cache
def population(weights=None):
    with jax.ensure_compile_time_eval():  # a cache filled inside a jit would keep tracers
        given = fcojax.from_clients(clients(), None if weights is None else np.array(weights))
        return factored(quadratic, given, jnp.zeros(DIM))


@functools.cache
def curvatures_and_slopes():
    return client_means(clients())


def gradients(points):
    """Return grad f_i at the i-th of the points, or at one point for all."""
    curvatures, slopes = curvatures_and_slopes()
    return np.einsum("mij,mj->mi", curvatures, np.broadcast_to(points, slopes.shape)) - slopes


@functools.cache
def optimum():
    curvatures, slopes = curvatures_and_slopes()
    return np.linalg.solve(curvatures.mean(axis=0), slopes.mean(axis=0))


@functools.cache
def algorithm(name, solver="exact", penalty=plain_l1):
    """Return the cached algorithm, because a new one would be compiled again."""
    solver = SOLVERS.get(solver, solver)
    return FACTORIES[name](factored_loss, penalty, solver=solver)


def hparams(name, eta=ETA, client_lr=None, penalty_scale=0.0, skip_probability=0.0):
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


def first_state(name, chosen, rates, data, plan, duals=None, drift=None, center=None):
    """Return the state before round 0 with these duals, and a matching drift by default."""
    center = first_point() if center is None else center
    center = jnp.asarray(center, data.examples.slopes.dtype)
    state = start(chosen, rates, center, data, KEY, plan)
    if duals is not None:
        state = state._replace(clients=state.clients._replace(dual=jnp.asarray(duals)))
        if name == "fed_dyn" and drift is None:
            drift = np.average(duals, axis=0, weights=data.weights)
    if drift is not None:
        state = state._replace(server=state.server._replace(drift=jnp.asarray(drift)))
    return state


SEEN = fcojax.StateObserver(lambda hparams, state, context: {"state": state._replace(key=())})


def trajectory(
    name,
    solver="exact",
    *,
    rates=None,
    rounds_between=1,
    num_steps=3,
    cohort=None,
    losses=NOTHING,
    data=None,
    duals=None,
    drift=None,
    center=None,
    penalty=plain_l1,
):
    """Return the state at ``NUM_LOOKS`` evaluations, by default after every round."""
    chosen = algorithm(name, solver, penalty)
    rates = hparams(name) if rates is None else rates
    data = population() if data is None else data
    plan = Plan(fcojax.local_steps(num_steps), cohort or fcojax.everyone(), losses)
    state = first_state(name, chosen, rates, data, plan, duals, drift, center)
    rounds = {"num_rounds": NUM_LOOKS * rounds_between, "eval_every": rounds_between}
    _, history = fcojax.advance(chosen, rates, state, data, plan, observe=SEEN, **rounds)
    return jax.tree.map(np.asarray, history["state"])


def last_state(name, solver="exact", *, num_rounds, **options):
    """Return the state after at least ``num_rounds`` rounds."""
    states = trajectory(name, solver, rounds_between=-(-num_rounds // NUM_LOOKS), **options)
    return jax.tree.map(lambda leaf: leaf[-1], states)


def prox(targets, eta):
    """Return argmin_x eta f_i(x) + |x - v_i|^2 / 2 for each client, by a dense solve."""
    curvatures, slopes = curvatures_and_slopes()
    return np.linalg.solve(np.eye(DIM) + eta * curvatures, (targets + eta * slopes)[..., None])[
        ..., 0
    ]


def steps(starts, anchor, duals, eta, num_steps):
    """Take gradient steps on every client's augmented Lagrangian."""
    x = starts
    for _ in range(num_steps):
        x = x - (gradients(x) + duals + (x - anchor) / eta) / (SMOOTHNESS + 1 / eta)
    return x


def relative_error(point):
    return np.linalg.norm(np.asarray(point) - optimum()) / np.linalg.norm(optimum())
