"""DiLoCo against AdamW and Nesterov momentum written out in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax

RATE, B1, B2, DECAY, SERVER_RATE, MOMENTUM = 0.02, 0.8, 0.95, 0.3, 0.3, 0.9
NUM_ROUNDS, NUM_STEPS = 6, 4


def loss(w, rows):
    return 0.5 * (rows["x"] @ w - rows["y"]) ** 2


def clients():
    generator = np.random.default_rng(1)
    return [
        {"x": generator.normal(size=(size, 3)), "y": generator.normal(size=size)}
        for size in (4, 7, 5)
    ]


def by_hand(num_rounds):
    """Full batches, everyone, equal weights; the moments stay at the clients."""
    w, velocity = np.array([0.5, -1.0, 0.0]), np.zeros(3)
    first, second, steps = (np.zeros((3, 3)) for _ in range(3))
    for _ in range(num_rounds):
        moved = np.zeros(3)
        for m, rows in enumerate(clients()):
            point = w.copy()
            for _ in range(NUM_STEPS):
                slope = rows["x"].T @ (rows["x"] @ point - rows["y"]) / len(rows["y"])
                first[m] = B1 * first[m] + (1 - B1) * slope
                second[m] = B2 * second[m] + (1 - B2) * slope**2
                steps[m] += 1
                mean = first[m] / (1 - B1 ** steps[m])
                scale = np.sqrt(second[m] / (1 - B2 ** steps[m])) + 1e-8
                point = point - RATE * (mean / scale + DECAY * point)
            moved += (point - w) / 3
        velocity = MOMENTUM * velocity + moved
        w = w + SERVER_RATE * (moved + MOMENTUM * velocity)
    return w


@pytest.mark.gate
@pytest.mark.slow
def test_diloco_is_adamw_on_clients_and_nesterov_on_the_server():
    algorithm = fcojax.algorithms.diloco(loss)
    hparams = algorithm.hparams_type(RATE, B1, B2, DECAY, SERVER_RATE, MOMENTUM)
    model, _ = fcojax.run(
        algorithm,
        hparams,
        jnp.array([0.5, -1.0, 0.0]),
        fcojax.from_clients(clients()),
        jax.random.key(0),
        fcojax.local_steps(NUM_STEPS),
        num_rounds=NUM_ROUNDS,
    )
    np.testing.assert_allclose(model, by_hand(NUM_ROUNDS), rtol=0, atol=1e-12)
