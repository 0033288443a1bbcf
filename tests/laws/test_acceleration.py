"""SCAFFOLD with momentum: FISTA's iterates, the limit, and rates against the condition number."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms
from fcojax.check.population import regression_clients
from fcojax.problems import factored, factored_loss, population_loss
from fcojax.problems.least_squares import half_squared_error
from fcojax.reference import fista
from fcojax.transforms import l1

pytestmark = [pytest.mark.slow, pytest.mark.gate]

DIM, NUM_CLIENTS, SCALE = 12, 6, 0.001
HALF_LOST = (fcojax.uniform_cohort(cohort_size=3), fcojax.dropout(0.3))


@functools.cache
def task(condition, seed=0):
    """Clients, the largest curvature, the curvature ratio on the support, and the minimiser."""
    rng = np.random.default_rng(seed)
    sizes = NUM_CLIENTS, 60, DIM
    spectrum = 1 / condition, 1.0
    clients = regression_clients(
        rng, sizes, spectrum=spectrum, own_axes=False, num_true=DIM, spread=0.3
    )
    data = factored(half_squared_error, fcojax.from_clients(clients), jnp.zeros(DIM))
    objective = functools.partial(population_loss, factored_loss)
    found = fista(objective, l1(), SCALE, jnp.zeros(DIM), data, tolerance=1e-12)
    exact = np.asarray(found.params)
    x = np.concatenate([client["x"] for client in clients])
    on_support = x[:, exact != 0]
    least = np.linalg.eigvalsh(on_support.T @ on_support / len(x))[0]
    largest = float(data.examples.curvatures.max())
    return clients, data, largest, largest / least, exact


def distance(hparams, w, exact):
    return {"distance": jnp.linalg.norm(w - exact) / jnp.linalg.norm(exact)}


def distances(factory, condition, seed, num_steps, num_rounds, who=(), server_lr=None):
    """The relative distance to the minimiser after every round."""
    _, data, largest, _, exact = task(condition, seed)
    algorithm = factory(factored_loss, l1())
    # ProxSkip's step does not depend on the number of steps.
    rate = 1 / largest if factory is algorithms.prox_skip else 1 / (num_steps * largest)
    _, history = fcojax.run(
        algorithm,
        algorithm.hparams_type(
            client_lr=rate,
            penalty_scale=SCALE,
            **({} if server_lr is None else {"server_lr": server_lr}),
        ),
        jnp.zeros(DIM),
        data,
        jax.random.key(seed),
        fcojax.Plan(fcojax.local_steps(num_steps), *who),
        num_rounds=num_rounds,
        observe=distance,
        context=jnp.asarray(exact),
    )
    return np.asarray(history["distance"])


def test_one_step_of_everyone_is_fista_with_restarts():
    clients, _, largest, _, exact = task(100)
    found = distances(algorithms.fast_scaffold, 100, 0, 1, 150)
    x, y, count, num_restarts, expected = np.zeros(DIM), np.zeros(DIM), 0, 0, []
    for _ in found:
        slopes = [c["x"].T @ (c["x"] @ y - c["y"]) / len(c["y"]) for c in clients]
        v = y - np.mean(slopes, axis=0) / largest
        new = np.sign(v) * np.maximum(np.abs(v) - SCALE / largest, 0)
        if (y - new) @ (new - x) > 0:
            count, num_restarts = 0, num_restarts + 1
        x, y = new, new + count / (count + 3) * (new - x)
        count += 1
        expected.append(np.linalg.norm(x - exact) / np.linalg.norm(exact))
    assert num_restarts > 0
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-11)


@pytest.mark.parametrize("who", [(), HALF_LOST], ids=["everyone", "half, lost"])
def test_the_limit_is_the_minimiser(who):
    found = distances(algorithms.fast_scaffold, 30, 0, 5, 500, who)
    assert found[-1] < 1e-10
    plain = functools.partial(algorithms.scaffold, prox="feedback")
    assert distances(plain, 30, 0, 5, 500, who)[-1] > 1e-8


@pytest.mark.parametrize("name", ["plain", "accelerated", "accelerated, lost", "ProxSkip"])
def test_rounds_grow_with_the_condition_number_to_the_known_power(name):
    """One, or one half; for ProxSkip, with as many local steps, the latter is a theorem."""
    plain = functools.partial(algorithms.scaffold, prox="feedback")
    factory = {"plain": plain, "ProxSkip": algorithms.prox_skip}.get(name, algorithms.fast_scaffold)
    points = []
    for condition, seed in ((c, s) for c in (30, 100, 300) for s in range(3)):
        ratio = task(condition, seed)[3]
        steps = round(np.sqrt(ratio)) if name == "ProxSkip" else 5
        budget, who = 10_000 if name == "plain" else 1_500, HALF_LOST if "lost" in name else ()
        within = distances(factory, condition, seed, steps, budget, who) < 1e-8
        assert within.any()
        points.append((np.log(ratio), np.log(1 + within.argmax())))
    assert abs(np.polyfit(*np.transpose(points), 1)[0] - (1.0 if name == "plain" else 0.5)) < 0.1
