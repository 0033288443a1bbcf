"""The exact composite methods: printed forms, special cases, invariants and fixed points."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms
from fcojax.algorithms.local_solvers import gd
from fcojax.engine.plan import Plan
from fcojax.transforms import l1
from tests.support import composite_oracles as oracles
from tests.support.composite_oracles import Numbers, Problem
from tests.support.federations import client_means, quadratic, quadratic_clients

pytestmark = pytest.mark.gate

WEIGHTS = np.array([1.0, 2.0, 0.5, 1.0, 1.5])
KEY = jax.random.key(4)
LOSSY = (fcojax.uniform_cohort(cohort_size=3), fcojax.dropout(0.3))
SEEN = fcojax.StateObserver(lambda hparams, state, context: {"state": state._replace(key=())})
BY = Numbers()


def clients():
    return quadratic_clients(sizes=(1,) * 5, dim=6, seed=3)


@functools.cache
def data():
    return fcojax.from_clients(clients(), WEIGHTS)


@functools.cache
def problem():
    start = np.random.default_rng(1).standard_normal(6)
    return Problem(*client_means(clients()), WEIGHTS / WEIGHTS.sum(), start)


class Method(NamedTuple):
    """A row: an algorithm with its options, its printed form, and its invariants.

    Attributes:
      name: the name of the factory.
      options: the factory's options.
      printed: its oracle.
      kept: ``(server, clients, delta) -> (left, right)``, which agree after every round.
      at_solution: ``(w, gradients, mean gradient) -> (server's fields, clients' fields)``.
    """

    name: str
    options: dict
    printed: Callable | None = None
    kept: Callable | None = None
    at_solution: Callable | None = None


def mean(rows):
    """Return the weighted mean over clients after every round, of one row per client."""
    return np.einsum("m,rmi->ri", WEIGHTS / WEIGHTS.sum(), rows)


def slopes_kept(server, clients):
    return server.control, mean(clients)


def offers_kept(server, clients):
    return server.total, mean(clients.model + BY.prox_step * clients.dual)


def slopes_at(w, gradients, common):
    return {"point": w, "control": common}, gradients


def shifts_at(w, gradients, common):
    delta = BY.client_lr * BY.num_steps
    server = {"center": w, "mean": w - delta * common}
    return server, w - delta * gradients


def normals_at(w, gradients, common):
    """Walks of the normal map stand still on average, so the slopes' mean is zero."""
    point = {"point": w - BY.prox_step * common, "control": 0 * w}
    return point, gradients - common


def settled_at(w, gradients, common):
    """And so do SCAFFOLD's with a prox in each step, whose slopes hold a common subgradient."""
    return {"point": w, "control": 0 * w}, gradients - common


def duals_at(w, gradients, common):
    server = {"total": w - BY.prox_step * common, "center": w}
    return server, {"model": np.tile(w, (5, 1)), "dual": -gradients}


def fed_back(w, gradients, common):
    server, slopes = slopes_at(w, gradients, common)
    return server | {"subgradient": -common}, slopes


def scaffold(prox, control="steps", at_solution=slopes_at):
    printed = functools.partial(oracles.scaffold, prox=prox, control=control)
    options = {"prox": prox, "control": control}
    return Method("scaffold", options, printed, slopes_kept, at_solution)


METHODS = {
    "composite_fl": Method("composite_fl", {}, oracles.composite_fl, slopes_kept, slopes_at),
    "prox_skip": Method(
        "prox_skip", {}, oracles.prox_skip, lambda s, c: (s.mean, mean(c)), shifts_at
    ),
    "fed_dr": Method("fed_dr", {}, oracles.fed_dr, offers_kept, duals_at),
    "scaffold, client": scaffold("client", at_solution=settled_at),
    "scaffold, feedback": scaffold("feedback", at_solution=fed_back),
    "scaffold, server": scaffold("server", at_solution=None),
    "scaffold, client, I": scaffold("client", "gradient"),
    "scaffold, feedback, I": scaffold("feedback", "gradient", fed_back),
    "fed_normal_map": Method("fed_normal_map", {}, oracles.fed_normal_map, slopes_kept, normals_at),
    "fed_admm": Method(
        "fed_admm", {}, lambda p, by: oracles.fed_dr(p, by._replace(relaxation=1.0)), offers_kept
    ),
    "fed_split": Method("fed_split", {}, oracles.fed_split),
}
RELATED = {
    "fed_pd": Method("fed_pd", {}),
    "fed_dyn": Method("fed_dyn", {"solver": gd()}),
    "prox_skip, geometric": Method("prox_skip", {"steps": "geometric"}),
    "mime": Method("mime", {}),
}
ALL = METHODS | RELATED
QUICK = ("composite_fl", "prox_skip")
plain_l1 = l1()


def table(only=tuple(METHODS)):
    """Return methods as test parameters, with all but a few marked slow."""
    return [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in only]


def factory_of(method):
    return getattr(algorithms, ALL[method].name)


@functools.cache
def build(method):
    factory = factory_of(method)
    geometry = (plain_l1,) if "penalty" in factory.geometry else ()
    return factory(quadratic, *geometry, **ALL[method].options)


def hparams(method, by=BY):
    kind = factory_of(method).Hparams
    values = by._asdict() | {
        "penalty_scale": by.scale,
        "momentum": 0.3,
        "skip_probability": 0.0 if method == "fed_pd" else 0.5,
    }
    return kind(**{field: values[field] for field in kind._fields})


def trajectory(method, by=BY, who=(), change=None) -> tuple[Any, np.ndarray]:
    """Return states after every round and models, from the start or from a modified start."""
    algorithm, rates = build(method), hparams(method, by)
    plan = Plan(fcojax.local_steps(by.num_steps), *who)
    state = fcojax.start(algorithm, rates, jnp.asarray(problem().start), data(), KEY, plan)
    state = change(state) if change else state
    _, history = fcojax.advance(
        algorithm, rates, state, data(), plan, num_rounds=by.num_rounds, observe=SEEN
    )
    states = jax.tree.map(np.asarray, history["state"])
    models = jax.vmap(lambda server: algorithm.model(rates, server))(states.server)
    return states, np.asarray(models)


def assert_same(ours, expected):
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@functools.cache
def printed(method, by=BY):
    return np.array(list(METHODS[method].printed(problem(), by)))


@pytest.mark.parametrize("method", table())
def test_every_round_is_the_printed_one(method):
    models = trajectory(method)[1]
    assert np.abs(np.diff(models, axis=0)).max(axis=1).min() > 1e-6
    assert_same(models, printed(method))


@pytest.mark.slow
@pytest.mark.parametrize("method", table([m for m in METHODS if METHODS[m].kept]))
def test_the_server_control_is_the_mean_of_the_client_controls(method):
    """In every round, weighted over all clients, with absent clients and lost uploads."""
    states, _ = trajectory(method, who=LOSSY)
    left, right = METHODS[method].kept(states.server, states.clients)
    assert np.ptp(right, axis=0).max() > 1e-2
    np.testing.assert_allclose(left, right, rtol=0, atol=1e-12)


@functools.cache
def solution():
    """Return the solution by many proximal gradient steps, checked by its optimality."""
    by = BY._replace(num_rounds=2000)
    w = list(oracles.prox_gd(problem(), by, 0.6))[-1]
    step = w - problem().weights @ problem().gradients(w)
    assert np.abs(w - oracles.soft(step, by.scale)).max() < 1e-15
    assert 0 < np.count_nonzero(w) < len(w)
    return w


@pytest.mark.parametrize("method", table([m for m in METHODS if METHODS[m].at_solution]))
def test_at_the_solution_with_the_right_memories_the_model_stays(method):
    """This holds for every cohort and all lost uploads."""
    w, gradients = solution(), problem().gradients(solution())
    fields, rows = METHODS[method].at_solution(w, gradients, problem().weights @ gradients)

    def change(state):
        server = state.server._replace(**jax.tree.map(jnp.asarray, fields))
        if isinstance(rows, dict):
            clients = state.clients._replace(**jax.tree.map(jnp.asarray, rows))
        else:
            clients = jnp.asarray(rows)
        return state._replace(server=server, clients=clients)

    _, models = trajectory(method, who=LOSSY, change=change)
    np.testing.assert_allclose(models, np.tile(w, (len(models), 1)), rtol=0, atol=1e-12)


ONE_STEP = Numbers(num_steps=1, client_lr=0.4, server_lr=1.2, prox_step=0.48)
AS_PROX_GD = (
    "composite_fl",
    "prox_skip",
    "scaffold, feedback",
    "scaffold, server",
    "fed_normal_map",
    "scaffold, feedback, I",
)


@pytest.mark.parametrize("method", table(AS_PROX_GD))
def test_one_local_step_is_proximal_gradient(method):
    """The normal map equals it from the prox of its start, if eta_s eta_c = gamma."""
    by = ONE_STEP._replace(server_lr=1.0) if method == "prox_skip" else ONE_STEP
    models = trajectory(method, by)[1]
    if method == "fed_normal_map":
        # Its first model is the prox of the start, and the next is a step from there.
        first = oracles.soft(problem().start, by.prox_step * by.scale)
        expected = oracles.prox_gd(problem()._replace(start=first), by, by.prox_step)
    else:
        expected = oracles.prox_gd(problem(), by, by.client_lr * by.server_lr)
    assert_same(models, list(expected))


UNPENALISED, UNRELAXED = BY._replace(scale=0.0), BY._replace(relaxation=1.0)
SMOOTH_SPLIT = BY._replace(scale=0.0, relaxation=2.0)
SAME = {
    "without psi SCAFFOLD is composite FL": (
        ("scaffold, client", UNPENALISED),
        ("composite_fl", UNPENALISED),
    ),
    "and so is its server's prox": (
        ("scaffold, server", UNPENALISED),
        ("scaffold, client", UNPENALISED),
    ),
    "and its feedback": (("scaffold, feedback", UNPENALISED), ("scaffold, server", UNPENALISED)),
    "FedADMM is FedDR unrelaxed": (("fed_admm", BY), ("fed_dr", UNRELAXED)),
    "FedADMM is FedPD that never skips": (("fed_admm", BY), ("fed_pd", BY)),
    "FedADMM of everyone is FedDyn": (("fed_admm", BY), ("fed_dyn", BY)),
    "FedSplit is FedDR relaxed by two": (("fed_split", SMOOTH_SPLIT), ("fed_dr", SMOOTH_SPLIT)),
}


@pytest.mark.slow
@pytest.mark.parametrize("pair", SAME)
def test_two_methods_are_one(pair):
    (ours, by), (theirs, theirs_by) = SAME[pair]
    assert_same(trajectory(ours, by)[1], trajectory(theirs, theirs_by)[1])


def test_without_a_penalty_the_controls_of_scaffnew_cancel():
    """h_i = (w - b_i) / delta, and the mean of the b_i is w after every exchange."""
    states, models = trajectory("prox_skip", UNPENALISED)
    controls = states.server.center[:, None] - states.clients
    assert np.abs(controls).max() > 0.1
    np.testing.assert_allclose(mean(controls), 0, rtol=0, atol=1e-12)
    assert_same(models, printed("prox_skip", UNPENALISED))


def test_mime_is_the_printed_one_in_every_second_round():
    """The server's state does not change in rounds that collect gradients."""
    models = trajectory("mime", BY._replace(num_rounds=2 * BY.num_rounds))[1]
    assert_same(models[1::2], list(oracles.mime(problem(), BY)))
    assert (models[0] == problem().start).all() and (models[2::2] == models[1:-1:2]).all()


def test_random_numbers_of_steps_follow_the_printed_method():
    """P(K = k) = p (1 - p)^{k - 1}: the models, the mean of K, and the frequency of one."""
    by = BY._replace(num_rounds=2000, num_steps=40)
    states, models = trajectory("prox_skip, geometric", by)
    numbers = np.array([2, *states.server.num_steps[:-1]])
    assert_same(models[:60], list(oracles.prox_skip(problem(), by, 0.5, numbers[:60])))
    spread = 5 / np.sqrt(len(numbers))
    assert abs(numbers.mean() - 2) < spread * np.sqrt(2)
    assert abs((numbers == 1).mean() - 0.5) < spread * 0.5
