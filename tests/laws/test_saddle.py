"""Saddle points: the operator, extragradient steps against numpy, theorems and structure."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms
from fcojax.problems import bilinear, saddle
from fcojax.theory.fco import Constants
from fcojax.theory.saddle import exact_gap_bound, extrapolated_average, gap_bound
from fcojax.transforms import euclidean, l1, with_box, zero

pytestmark = pytest.mark.gate

KEY, RATE = jax.random.key(2), 0.15
BOX = euclidean(with_box(l1(), -1.0, 1.0))
FREE = euclidean(zero())
START = {"x": np.array([1.0, -0.5]), "y": np.array([0.3, 0.8, -0.2])}


@functools.cache
def players():
    """f(x, y) = x'Px/2 + (Ax - b)'y - y'Qy/2, with different numbers for each client."""
    rng = np.random.default_rng(1)
    return [
        {
            "A": rng.standard_normal((1, 3, 2)),
            "b": rng.standard_normal((1, 3)),
            "p": rng.uniform(0.1, 0.5, 1),
            "q": rng.uniform(0.1, 0.5, 1),
        }
        for _ in range(4)
    ]


def payoff(z, rows):
    x, y = z["x"], z["y"]
    bilinear_part = jnp.einsum("nij,i,j->n", rows["A"], y, x) - rows["b"] @ y
    return bilinear_part + rows["p"] * jnp.sum(x**2) / 2 - rows["q"] * jnp.sum(y**2) / 2


PAYOFF = saddle(payoff)


def operator(x, y, client):
    matrix, target = client["A"][0], client["b"][0]
    ascent = matrix @ x - target - client["q"][0] * y
    return matrix.T @ y + client["p"][0] * x, -ascent


def models(factory, mirror, num_steps, num_rounds=6, server_lr=1.0, scale=0.1):
    start = jax.tree.map(jnp.asarray, START)
    hparams = factory.Hparams(client_lr=RATE, server_lr=server_lr, penalty_scale=scale)
    _, history = fcojax.run(
        factory(PAYOFF, mirror),
        hparams,
        start,
        fcojax.from_clients(players()),
        KEY,
        fcojax.local_steps(num_steps),
        num_rounds=num_rounds,
        observe=lambda h, z, _: dict(z),
    )
    return np.concatenate([history["x"], history["y"]], axis=1)


def read(z, elapsed, scale):
    shrunk = np.sign(z) * np.maximum(np.abs(z) - elapsed * scale, 0)
    return np.clip(shrunk, -1, 1)


def move(w, client):
    return RATE * np.concatenate(operator(w[:2], w[2:], client))


def dual_extrapolation(num_steps, num_rounds=6, server_lr=1.0, scale=0.1):
    """Return the models and averages of the printed algorithm, in a loop over clients."""
    dual, elapsed, found, ahead, averages = np.concatenate([*START.values()]), 0.0, [], [], []
    for _ in range(num_rounds):
        ends, halves = [], []
        for client in players():
            z, path = dual, []
            for k in range(num_steps):
                now, later = (elapsed + RATE * step for step in (k, k + 1))
                half = z - move(read(z, now, scale), client)
                path.append(half)
                z = z - move(read(half, later, scale), client)
            ends.append(z)
            halves.append(path)
        for k, half in enumerate(np.mean(halves, axis=0)):
            ahead.append(read(half, elapsed + RATE * (k + 1), scale))
        dual = dual + server_lr * (np.mean(ends, axis=0) - dual)
        elapsed += server_lr * RATE * num_steps
        found.append(read(dual, elapsed, scale))
        averages.append(np.mean(ahead, axis=0))
    return np.array(found), np.array(averages)


@pytest.mark.slow
def test_dual_extrapolation_is_as_printed():
    server_lr = 0.7
    expected, average = dual_extrapolation(3, server_lr=server_lr)
    found = models(algorithms.fe_dual_ex, BOX, 3, server_lr=server_lr)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
    found = models(extrapolated_average, BOX, 3, server_lr=server_lr)
    np.testing.assert_allclose(found, average, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_mirror_prox_is_as_printed():
    w, expected = np.concatenate([*START.values()]), []
    for _ in range(6):
        ends = []
        for client in players():
            z = w
            for _ in range(3):
                half = read(z - move(z, client), RATE, 0.1)
                z = read(z - move(half, client), RATE, 0.1)
            ends.append(z)
        w = read(w + 0.7 * (np.mean(ends, axis=0) - w), 0.7 * RATE * 3, 0.1)
        expected.append(w)
    found = models(algorithms.fed_mip, BOX, 3, server_lr=0.7)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_without_a_penalty_both_are_the_extra_gradient_method():
    both = algorithms.fe_dual_ex, algorithms.fed_mip
    dual, primal = (models(factory, FREE, 3, scale=0.0) for factory in both)
    np.testing.assert_allclose(dual, primal, rtol=0, atol=1e-13)


def test_every_algorithm_descends_in_x_and_ascends_in_y():
    w, expected = np.concatenate([*START.values()]), []
    for _ in range(4):
        w = w - np.mean([move(w, client) for client in players()], axis=0)
        expected.append(w)
    found = models(algorithms.fed_mid, FREE, 1, num_rounds=4)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


def small(noise_scale, num_clients=5, **options):
    return bilinear(
        num_clients=num_clients,
        num_examples=200,
        shape=(4, 5),
        bound=1.0,
        noise_scale=noise_scale,
        **options,
    )


def gaps(problem, factory, num_steps, num_rounds, client_lr, batch_size=None):
    start = {"x": jnp.zeros(5), "y": jnp.zeros(4)}
    _, history = fcojax.run(
        factory(problem.loss, BOX),
        factory.Hparams(client_lr, 1.0, 0.1),
        start,
        problem.train,
        KEY,
        fcojax.local_steps(num_steps, batch_size),
        num_rounds=num_rounds,
        observe=lambda h, z, _: {"gap": problem.measures(z)["gap"]},
    )
    return np.asarray(history["gap"])


def lipschitz():
    """Return the largest singular value of A, which bilinear draws first."""
    drawn = np.random.default_rng(0).uniform(-1, 1, (4, 5)).astype(np.float32)
    return np.linalg.norm(drawn, 2)


@pytest.mark.slow
def test_with_exact_gradients_the_gap_of_the_average_is_below_its_bound():
    """Descent-ascent of FedDualAvg does not satisfy it at the same rate."""
    problem, rate = small(0.0, num_clients=1), 1 / lipschitz()
    found = gaps(problem, extrapolated_average, 1, 400, rate, batch_size=1)
    # All points of the box are within 3 of the start at its centre: |z|^2 / 2 <= 9 / 2.
    bounds = np.array([exact_gap_bound(4.5, rate, steps) for steps in range(1, 401)])
    assert (found <= bounds).all()
    plain = gaps(problem, algorithms.fed_dual_avg, 1, 400, rate, batch_size=1)
    assert plain[-100:].max() > 5 * bounds[-1]


@pytest.mark.slow
def test_with_noise_and_local_steps_the_gap_of_the_average_is_below_its_bound():
    problem, num_steps = small(0.1), 4
    # Within the box, the diameter bounds every divergence, and |g| + five deviations the noise.
    gradient = lipschitz() * 3 + np.linalg.norm(np.ones(9)) + 0.1 * (3 + 5)
    constants = Constants(18.0, float(lipschitz()), 9 * 0.1**2, 5)
    for share in (1.0, 0.1):
        rate = share / (5**0.5 * lipschitz())
        found = gaps(problem, extrapolated_average, num_steps, 200, rate, batch_size=1)
        assert found[-1] <= gap_bound(constants, rate, num_steps, 200, gradient)
    with pytest.raises(ValueError, match="pass at most"):
        gap_bound(constants, 1.0, num_steps, 200, gradient)


def test_the_gap_is_what_the_players_best_answers_win():
    """They are corners: each entry is -D, 0 or D."""
    problem = small(0.0)
    rng = np.random.default_rng(0)
    matrix, target = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((4, 5), (4,)))
    z = {"x": rng.uniform(-1, 1, 5), "y": rng.uniform(-1, 1, 4)}

    def won(slope):
        return sum(max(s * c - 0.1 * abs(c) for c in (-1, 0, 1)) for s in slope)

    most = won(matrix @ z["x"] - target) + 0.1 * np.abs(z["x"]).sum()
    least = -won(-matrix.T @ z["y"]) - target @ z["y"] - 0.1 * np.abs(z["y"]).sum()
    found = problem.measures(jax.tree.map(jnp.asarray, z))["gap"]
    np.testing.assert_allclose(found, most - least, rtol=1e-6)


def test_the_gap_of_zero_is_what_is_won_of_a_target_of_rank_one():
    """The second half of the columns is a multiple of the first, so there is one singular value."""
    found = small(0.0, num_columns=2).measures({"x": jnp.zeros((5, 2)), "y": jnp.zeros((4, 2))})
    rng = np.random.default_rng(0)
    rng.uniform(-1, 1, (4, 5))
    target = rng.uniform(-1, 1, (4, 2)).astype(np.float32)
    target[:, 1:] = target[:, :1] * rng.uniform(-1, 1, (1, 1))
    np.testing.assert_allclose(found["gap"], np.linalg.norm(target) - 0.1, rtol=1e-5)
    assert float(found["density"]) == int(found["rank_x"]) == 0


@pytest.mark.slow
def test_noise_has_the_scale_it_is_said_to_have():
    problem = small(0.3, num_clients=2)
    z = {"x": jnp.zeros(5), "y": jnp.zeros(4)}
    slope = jax.vmap(jax.grad(lambda z, row: problem.loss(z, {"seed": row[None]})[0]), (None, 0))
    noise = slope(z, problem.train.examples["seed"])["x"]
    assert abs(np.std(noise) / 0.3 - 1) < 0.05
    assert np.abs(np.corrcoef(noise.T) - np.eye(5)).max() < 0.2
