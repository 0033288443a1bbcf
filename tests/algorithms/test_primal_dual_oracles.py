"""FedPD and FedDyn against loops over rounds and clients in numpy.

Ragged least squares with minibatches, with sampling or skips; psi is the l1 norm of the kernel.
"""

import functools

import jax
import numpy as np
import pytest

import fcojax
from fcojax.algorithms import fed_dyn, fed_pd
from fcojax.algorithms.local_solvers import gd, proxgd, variance_reduced
from tests.support import federations
from tests.support.oracles import soft, squared_gradient

pytestmark = pytest.mark.gate

KEY = jax.random.key(11)
NUM_ROUNDS, LR, ETA, SCALE = 12, 0.05, 0.4, 0.3
SIZES = np.array(federations.RAGGED)


def descend(x, anchor, dual, batches, client, client_scale=0.0):
    """Gradient steps on the augmented Lagrangian, each followed by the prox of psi."""
    for indices, weights in batches:
        if weights.sum() > 0:
            slope = squared_gradient(x, client["x"][indices], client["y"][indices], weights)
            x = soft(x - LR * (slope + dual + (x - anchor) / ETA), LR * client_scale)
    return x


def descend_with_memory(x, estimate, anchor, dual, batches, client, refresh):
    """Oracle II with the paper's gamma."""
    gamma = 1 / (1 / LR - 1 / ETA)
    if refresh:
        estimate = squared_gradient(x, client["x"], client["y"], np.ones(len(client["y"])))
    for indices, weights in batches:
        if weights.sum() > 0:
            rows = client["x"][indices], client["y"][indices], weights
            moved = (ETA * x + gamma * anchor - ETA * gamma * (estimate + dual)) / (ETA + gamma)
            estimate = estimate + squared_gradient(moved, *rows) - squared_gradient(x, *rows)
            x = moved
    return x, estimate


def literal_fed_pd(rounds, coins, *, server_scale=0.0, client_scale=0.0, refresh_every=None):
    """Return the centers after each round; ``coins`` marks the rounds that end with an exchange."""
    clients, start = federations.clients(), np.asarray(federations.as_vector(federations.start()))
    states = {
        m: {"x": start, "dual": np.zeros_like(start), "anchor": start, "g": None}
        for m in range(len(clients))
    }
    center, centers = start, []
    for number, (cohort, exchange) in enumerate(zip(rounds, coins, strict=True)):
        offers, weights = {}, {}
        for m, weight, batches in cohort:
            s = states[m]
            given = s["anchor"], s["dual"], batches, clients[m]
            if refresh_every is None:
                s["x"] = descend(s["x"], *given, client_scale)
            else:
                refresh = number % refresh_every == 0
                s["x"], s["g"] = descend_with_memory(s["x"], s["g"], *given, refresh)
            s["dual"] = s["dual"] + (s["x"] - s["anchor"]) / ETA
            offers[m], weights[m] = s["x"] + ETA * s["dual"], weight
        if exchange:
            mean = sum(weights[m] * offers[m] for m in offers) / sum(weights.values())
            center = soft(mean, ETA * server_scale)
        for m, s in states.items():
            s["anchor"] = center if exchange else offers[m]
        centers.append(center)
    return np.array(centers)


def literal_fed_dyn(
    rounds, shares, *, warm_start, report="server", server_scale=0.0, client_scale=0.0
):
    """The reported models after each round; ``shares`` are the p_i, which sum to one."""
    clients, start = federations.clients(), np.asarray(federations.as_vector(federations.start()))
    models = np.tile(start, (len(clients), 1))
    duals, h = np.zeros_like(models), np.zeros_like(start)
    center, sampled, reports = start, start, []
    for cohort in rounds:
        members = [m for m, weight, _ in cohort if weight > 0]
        for m, weight, batches in cohort:
            if weight > 0:
                begin = models[m] if warm_start else center
                models[m] = descend(begin, center, duals[m], batches, clients[m], client_scale)
                duals[m] = duals[m] + (models[m] - center) / ETA
        if members:
            h = h + sum(shares[m] * (models[m] - center) for m in members) / ETA
            sampled = np.average(models[members], axis=0, weights=shares[members])
            center = soft(sampled + ETA * h, ETA * server_scale)
        everything = {"server": center, "sampled": sampled, "all": shares @ models}
        reports.append(everything[report])
    return np.array(reports)


MINIBATCHES = fcojax.local_steps(3, 2)
PD_SETTINGS = {
    "psi on the server": (gd(), fcojax.local_steps(3), {"server_scale": SCALE}),
    "variance reduced": (variance_reduced(refresh_every=3), MINIBATCHES, {"refresh_every": 3}),
    "psi on the clients": (proxgd(federations.kernel_l1()), MINIBATCHES, {"client_scale": SCALE}),
}


@functools.cache
def population(weights):
    return fcojax.from_clients(federations.clients(), weights)


def with_slow_after(settings, fast):
    """Mark the settings after the first few, which differ little, as slow."""
    first, slow = [*settings][:fast], [*settings][fast:]
    return [*first, *(pytest.param(name, marks=pytest.mark.slow) for name in slow)]


@pytest.mark.parametrize("setting", with_slow_after(PD_SETTINGS, 1))
def test_fed_pd_equals_its_procedure(setting):
    solver, work, options = PD_SETTINGS[setting]
    data = population("examples")
    penalty = federations.kernel_l1() if "server_scale" in options else None
    chosen = fed_pd(federations.loss, penalty, solver=solver)
    rates = fed_pd.Hparams(LR, ETA, skip_probability=0.6, penalty_scale=SCALE)
    server, history = observed(chosen, rates, data, work, fcojax.everyone())
    coins = server.synced
    assert 2 < coins.sum() < NUM_ROUNDS - 2
    # The metric of a round describes the end of the previous round.
    assert np.array_equal(history["bytes_down"] > 0, np.append(True, coins[:-1]))
    assert np.array_equal(history["bytes_up"] > 0, coins)
    rounds = federations.replay(data, KEY, NUM_ROUNDS, work, fcojax.everyone())
    expected = literal_fed_pd(rounds, coins, **options)
    assert np.ptp(expected, axis=0).max() > 0.1  # the model moved
    np.testing.assert_allclose(as_rows(server.center), expected, rtol=1e-10, atol=1e-12)


DYN_SETTINGS = {
    "psi on the clients, sampled models": (
        proxgd(federations.kernel_l1(), warm_start=False),
        fcojax.local_steps(3),
        fcojax.uniform_cohort(cohort_size=2),
        None,
        {"warm_start": False, "report": "sampled", "client_scale": SCALE},
    ),
    "the code: from the center, half": (
        gd(warm_start=False),
        fcojax.local_epochs(2, 3),
        fcojax.uniform_cohort(cohort_size=3),
        "examples",
        {"warm_start": False, "server_scale": SCALE},
    ),
    "all models, coin flips": (
        gd(),
        fcojax.local_steps(3, 2),
        fcojax.coin_flips(0.3),
        "examples",
        {"warm_start": True, "report": "all"},
    ),
}


@pytest.mark.parametrize("setting", with_slow_after(DYN_SETTINGS, 1))
def test_fed_dyn_equals_its_procedure(setting):
    solver, work, cohort, weights, options = DYN_SETTINGS[setting]
    penalty = federations.kernel_l1() if "server_scale" in options else None
    report = options.get("report", "server")
    chosen = fed_dyn(federations.loss, penalty, solver=solver, report=report)
    rates = fed_dyn.Hparams(LR, ETA, penalty_scale=SCALE)
    server, history = observed(chosen, rates, population(weights), work, cohort)
    assert (np.asarray(history["participants"]) < 5).all()
    shares = SIZES / SIZES.sum() if weights else np.full(5, 0.2)
    rounds = federations.replay(population(weights), KEY, NUM_ROUNDS, work, cohort)
    expected = literal_fed_dyn(rounds, shares, **options)
    assert np.ptp(expected, axis=0).max() > 0.1
    reported = server.center if report == "server" else server.average
    np.testing.assert_allclose(as_rows(reported), expected, rtol=1e-10, atol=1e-12)


def observed(chosen, rates, data, work, cohort):
    """Return the server's states after every round, and the history of the run."""
    given = federations.revealing(chosen), rates, federations.start(), data, KEY
    options = {"num_rounds": NUM_ROUNDS, "observe": federations.whole_server}
    _, history = fcojax.run(*given, fcojax.Plan(work, cohort), **options)
    return jax.tree.map(np.asarray, history["server"]), history


def as_rows(params):
    return np.column_stack([params["kernel"], params["bias"]])
