"""FedMiD and FedDualAvg with an optimiser on the server, against numpy and special cases."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fcojax
from experiments.studies.lasso.server_optimisers import (
    _POINTS,
    SERVER_OPTIMISERS,
    with_optimiser,
)
from fcojax.algorithms import fed_dual_avg, fed_mid
from fcojax.transforms import euclidean, l1

CLIENT_LR, SERVER_LR, SCALE, STEPS, ROUNDS = 0.05, 0.3, 0.2, 3, 6
RNG = np.random.default_rng(0)
CENTRES, CURVATURES = RNG.normal(size=(3, 4)), RNG.uniform(0.5, 2, (3, 4))
START = np.array([0.4, -0.1, 0.02, 0.9])


def loss(w, rows):
    return (rows["curvature"] * (w[None] - rows["centre"]) ** 2).sum(axis=-1) / 2


def after(build, num_rounds):
    clients = zip(CENTRES, CURVATURES, strict=True)
    data = fcojax.from_clients([{"centre": c[None], "curvature": a[None]} for c, a in clients])
    algorithm = build(loss, euclidean(l1()))
    hparams = algorithm.hparams_type(CLIENT_LR, SERVER_LR, SCALE)
    plan = fcojax.local_steps(STEPS)
    given = (algorithm, hparams, jnp.asarray(START), data, jax.random.key(0), plan)
    with jax.numpy_dtype_promotion("standard"):  # like the launcher
        return np.asarray(fcojax.run(*given, num_rounds=num_rounds)[0])


def soft(v, threshold):
    return np.sign(v) * np.maximum(np.abs(v) - threshold, 0)


def in_numpy(method, optimiser):
    """Return the last model; only the server's step differs from ``tests/support/oracles.py``."""
    dual = method is fed_dual_avg
    point, elapsed, first, second = START.copy(), 0.0, np.zeros(4), np.zeros(4)
    eps = 1e-8 if optimiser == "adam" else 1e-6
    for r in range(1, ROUNDS + 1):
        moved = []
        for centre, curvature in zip(CENTRES, CURVATURES, strict=True):
            own = point.copy()
            for k in range(STEPS):
                model = soft(own, (elapsed + k * CLIENT_LR) * SCALE) if dual else own
                own = own - CLIENT_LR * curvature * (model - centre)
                own = own if dual else soft(own, CLIENT_LR * SCALE)
            moved.append(own - point)
        mean = np.mean(moved, axis=0)
        first, second = 0.9 * first + 0.1 * mean, 0.999 * second + 0.001 * mean**2
        step = (first / (1 - 0.9**r)) / (np.sqrt(second / (1 - 0.999**r)) + eps)
        if optimiser == "lamb":  # as many numbers as the point
            step *= np.linalg.norm(point) / np.linalg.norm(step)
        point, elapsed = point + SERVER_LR * step, elapsed + SERVER_LR * STEPS * CLIENT_LR
        if not dual:
            point = soft(point, SERVER_LR * STEPS * CLIENT_LR * SCALE)
    return soft(point, elapsed * SCALE) if dual else point


@pytest.mark.parametrize("optimiser", ["adam", "lamb"])
@pytest.mark.parametrize("method", [fed_mid, fed_dual_avg])
def test_a_round_steps_with_the_optimiser_and_keeps_the_weight_of_the_prox(method, optimiser):
    ours = after(SERVER_OPTIMISERS[f"{method.__name__}_{optimiser}"], ROUNDS)
    np.testing.assert_allclose(ours, in_numpy(method, optimiser), atol=1e-9)


@pytest.mark.parametrize("method", [fed_mid, fed_dual_avg])
def test_a_gradient_step_is_the_method_itself(method):
    def built(loss, mirror):
        return with_optimiser(method(loss, mirror), optax.sgd(1.0), _POINTS[method])

    np.testing.assert_array_equal(after(built, ROUNDS), after(method, ROUNDS))
