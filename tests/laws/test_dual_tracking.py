"""FedDualAvg with control variates: its iterates, its limit, and the methods that it contains."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms
from fcojax.transforms import (
    Mirror,
    box,
    entropic_simplex,
    euclidean,
    group_l2,
    l1,
    nuclear,
    p_norm,
)
from tests.support import federations

pytestmark = pytest.mark.gate

KEY = jax.random.key(5)
LOSSY = fcojax.dropout(fcojax.uniform_cohort(cohort_size=3), 0.3)
plain_l1 = euclidean(l1())


def least_squares(w, rows):
    return (rows["x"] @ w - rows["y"]) ** 2 / 2


def logistic(w, rows):
    return jnp.logaddexp(0, -rows["y"] * (rows["x"] @ w))


@functools.cache
def unlike_clients(seed=0, dim=12, num_clients=5):
    """Rows with their own scales and their own truth at each client."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(num_clients):
        x = rng.standard_normal((15, dim)) * rng.uniform(0.3, 1.5, dim)
        truth = rng.standard_normal(dim) * (rng.random(dim) < 0.5)
        found.append({"x": x, "y": x @ truth + 0.1 * rng.standard_normal(15)})
    return found


def signs(clients):
    return [client | {"y": np.where(client["y"] > 0, 1.0, -1.0)} for client in clients]


def steepest(clients):
    """The largest eigenvalue of a client's Hessian."""
    return max(np.linalg.eigvalsh(c["x"].T @ c["x"] / len(c["y"]))[-1] for c in clients)


def soft(v, threshold):
    return np.sign(v) * np.maximum(np.abs(v) - threshold, 0)


def printed(clients, drawn, eta, eta_s, scale):
    """The algorithm in numpy: the model after every round of ``federations.replay``."""
    weights = np.full(len(clients), 1 / len(clients))
    z, elapsed, common = np.zeros(clients[0]["x"].shape[1]), 0.0, 0.0
    controls = np.zeros((len(clients), len(z)))
    for members in drawn:
        total = sum(weight for _, weight, _ in members)
        direction, num_steps, changes = 0, 0.0, {}
        for m, weight, batches in members:
            y, t, slopes = z.copy(), elapsed, []
            for indices, counts in batches:
                if not counts.any():
                    continue
                x, labels = clients[m]["x"][indices], clients[m]["y"][indices]
                w = soft(y, t * scale)
                slopes.append(x.T @ (counts * (x @ w - labels)) / counts.sum())
                y, t = y - eta * (slopes[-1] + common - controls[m]), t + eta
            if weight > 0:
                changes[m] = np.mean(slopes, axis=0) - controls[m]
                direction = direction + weight / total * changes[m]
                num_steps += weight / total * len(slopes)
        if changes:
            z = z - eta_s * eta * num_steps * (common + direction)
            elapsed += eta_s * eta * num_steps
        for m, change in changes.items():
            common = common + weights[m] * change
            controls[m] += change
        yield soft(z, elapsed * scale)


SETTINGS = {
    "everyone, full batches": (fcojax.local_steps(3), fcojax.everyone()),
    "absent and lost, minibatches": (fcojax.local_steps(4, 3), LOSSY),
    "absent and lost, unequal steps": (fcojax.local_steps([1, 5, 2, 3, 4]), LOSSY),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_round_is_the_printed_one(setting):
    work, cohort = SETTINGS[setting]
    data, num_rounds = fcojax.from_clients(unlike_clients()), 50
    algorithm = algorithms.fed_dual_avg_tracking(least_squares, plain_l1)
    hparams = algorithm.hparams_type(client_lr=0.05, server_lr=0.9, penalty_scale=0.2)
    observe = fcojax.StateObserver(
        lambda hparams, state, context: {"w": algorithm.model(hparams, state.server)}
    )
    start, plan = jnp.zeros(12), fcojax.Plan(work, cohort)
    _, history = fcojax.run(
        algorithm, hparams, start, data, KEY, plan, num_rounds=num_rounds, observe=observe
    )
    drawn = federations.replay(data, KEY, num_rounds, work, cohort)
    expected = np.array(list(printed(unlike_clients(), drawn, 0.05, 0.9, 0.2)))
    np.testing.assert_allclose(history["w"], expected, atol=1e-12)
    assert 0 < np.count_nonzero(expected[-1]) < 12


@pytest.mark.parametrize("cohort", [fcojax.everyone(), LOSSY], ids=["everyone", "absent and lost"])
def test_the_server_control_is_the_mean_of_all_controls(cohort):
    algorithm = algorithms.fed_dual_avg_tracking(least_squares, plain_l1)
    hparams, data = algorithm.hparams_type(0.05, 1.0, 0.2), fcojax.from_clients(unlike_clients())
    plan = fcojax.Plan(fcojax.local_steps(5), cohort)
    state = fcojax.start(algorithm, hparams, jnp.zeros(12), data, KEY, plan)
    state, _ = fcojax.advance(algorithm, hparams, state, data, plan, num_rounds=40)
    assert np.abs(state.clients).max() > 0.1
    np.testing.assert_allclose(state.server.sums.control, state.clients.mean(axis=0), atol=1e-12)


LIMITS = {
    "lasso": (least_squares, l1(), 0.2, False),
    "logistic": (logistic, l1(), 0.05, True),
}


@pytest.mark.slow
@pytest.mark.parametrize("num_steps", [1, 10, 50])
@pytest.mark.parametrize("problem", LIMITS)
def test_the_limit_is_the_minimiser_with_its_zeros(problem, num_steps):
    """With half of the clients in a round and 30 per cent of the uploads lost too."""
    loss, penalty, scale, is_logistic = LIMITS[problem]
    algorithm = algorithms.fed_dual_avg_tracking(loss, euclidean(penalty))
    for seed in range(3):
        clients = unlike_clients(seed)
        clients = signs(clients) if is_logistic else clients
        data, rate = fcojax.from_clients(clients), 1 / (num_steps * steepest(clients))
        hparams = algorithm.hparams_type(client_lr=rate, penalty_scale=scale)
        w, outcome = fcojax.solve(
            algorithm,
            hparams,
            jnp.zeros(12),
            data,
            KEY,
            fcojax.Plan(fcojax.local_steps(num_steps), LOSSY),
            certificate=fcojax.kkt(loss, penalty),
            tolerance=1e-11,
            eval_every=500,
            max_rounds=60_000,
        )
        assert outcome.solved, (seed, outcome)
        exact = fcojax.path(
            fcojax.problems.Problem(loss, data, None, lambda key: jnp.zeros(12)),
            penalty,
            strengths=[scale],
            tolerance=1e-12,
            max_rounds=100_000,
        ).models[0]
        np.testing.assert_allclose(w, exact, atol=1e-10)
        assert np.array_equal(w == 0, exact == 0)


@pytest.mark.slow
def test_only_with_a_curved_penalty_is_the_rate_sublinear():
    """P_T shrinks steps along a level set of the group norm by 1/T, and l1 has flat level sets."""
    clients, rounds = unlike_clients(), (5_000, 10_000, 20_000, 40_000)
    data, rate = fcojax.from_clients(clients), 1 / (10 * steepest(clients))
    found = {}
    for name, penalty in (("l1", l1()), ("group", group_l2(labels=np.repeat(np.arange(4), 3)))):
        algorithm = algorithms.fed_dual_avg_tracking(least_squares, euclidean(penalty))
        hparams = algorithm.hparams_type(client_lr=rate, penalty_scale=0.3)
        found[name] = [
            float(fcojax.kkt_violation(least_squares, penalty, 0.3, w, data))
            for num_rounds in rounds
            for w in [
                ends(algorithm, hparams, fcojax.local_steps(10), jnp.zeros(12), data, num_rounds)
            ]
        ]
    assert max(found["l1"]) < 1e-10  # linear: all at rounding
    # A linear rate would square the violation when the rounds double.
    for less, more in itertools.pairwise(found["group"]):
        assert 10 * less**2 < more < less


def test_without_tracking_the_limit_is_elsewhere():
    clients = unlike_clients()
    data, rate = fcojax.from_clients(clients), 1 / (10 * steepest(clients))
    violations = {}
    for factory in (algorithms.fed_dual_avg, algorithms.fed_dual_avg_tracking):
        algorithm = factory(least_squares, plain_l1)
        hparams = algorithm.hparams_type(client_lr=rate, penalty_scale=0.2)
        w, _ = fcojax.run(
            algorithm, hparams, jnp.zeros(12), data, KEY, fcojax.local_steps(10), num_rounds=8000
        )
        violations[factory] = float(fcojax.kkt_violation(least_squares, l1(), 0.2, w, data))
    assert violations[algorithms.fed_dual_avg] > 1e-2
    assert violations[algorithms.fed_dual_avg_tracking] < 1e-11


def ends(algorithm, hparams, plan, start, loss_data, num_rounds=30):
    return fcojax.run(algorithm, hparams, start, loss_data, KEY, plan, num_rounds=num_rounds)[0]


def test_one_step_of_everyone_is_dual_averaging():
    data = fcojax.from_clients(unlike_clients())
    found = []
    for factory in (algorithms.fed_dual_avg, algorithms.fed_dual_avg_tracking):
        algorithm = factory(least_squares, plain_l1)
        hparams = algorithm.hparams_type(0.1, 1.3, 0.2)
        found.append(ends(algorithm, hparams, fcojax.local_steps(1), jnp.ones(12), data))
    np.testing.assert_allclose(found[0], found[1], atol=1e-13)


@pytest.mark.parametrize("cohort", [fcojax.everyone(), LOSSY], ids=["everyone", "absent and lost"])
def test_without_a_penalty_it_is_scaffold(cohort):
    data, plan = fcojax.from_clients(unlike_clients()), fcojax.Plan(fcojax.local_steps(4), cohort)
    tracking = algorithms.fed_dual_avg_tracking(least_squares, plain_l1)
    scaffold = algorithms.scaffold(least_squares)
    found = [
        ends(algorithm, algorithm.hparams_type(0.05, 0.8, 0.0), plan, jnp.ones(12), data)
        for algorithm in (tracking, scaffold)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-12)


def test_equal_clients_follow_dual_averaging():
    """Each control is the mean of all, so no step is corrected."""
    data = fcojax.from_clients([unlike_clients()[0]] * 4)
    found = []
    for factory in (algorithms.fed_dual_avg, algorithms.fed_dual_avg_tracking):
        algorithm = factory(least_squares, plain_l1)
        hparams = algorithm.hparams_type(0.05, 1.0, 0.2)
        found.append(ends(algorithm, hparams, fcojax.local_steps(5), jnp.ones(12), data))
    np.testing.assert_allclose(found[0], found[1], atol=1e-12)


def quadratic_of_matrix(w, rows):
    return ((w[None] - rows["a"]) ** 2 * rows["h"]).sum(axis=(1, 2)) / 2


GEOMETRIES: dict[str, tuple[Mirror, float]] = {
    "nuclear norm": (euclidean(nuclear()), 0.4),
    "box": (euclidean(box(-0.2, 0.3)), 1.0),
    "p-norm": (p_norm(1.5), 0.1),
    "simplex": (entropic_simplex(), 1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_limit_is_that_of_one_step_in_every_geometry(geometry):
    mirror, scale = GEOMETRIES[geometry]
    rng = np.random.default_rng(3)
    shape = (4, 3)
    data = fcojax.from_clients(
        [
            {"a": rng.standard_normal((1, *shape)), "h": rng.uniform(0.5, 1.5, (1, *shape))}
            for _ in range(4)
        ]
    )
    start = jnp.full(shape, 1 / 12)
    found = []
    for num_steps, cohort in ((1, fcojax.everyone()), (5, fcojax.uniform_cohort(cohort_size=2))):
        algorithm = algorithms.fed_dual_avg_tracking(quadratic_of_matrix, mirror)
        hparams = algorithm.hparams_type(0.4 / num_steps, 1.0, scale)
        plan = fcojax.Plan(fcojax.local_steps(num_steps), cohort)
        found.append(ends(algorithm, hparams, plan, start, data, 4000))
    # The nuclear norm is curved, so its iterates approach the limit more slowly.
    np.testing.assert_allclose(
        found[0], found[1], atol=1e-6 if geometry == "nuclear norm" else 1e-9
    )


@pytest.mark.slow
def test_single_precision_errs_by_the_rounding_of_the_dual_point():
    """z is about lambda T, and the model is what the penalty leaves of it."""
    scale, rate = 0.2, 1 / (5 * steepest(unlike_clients()))
    with jax.enable_x64(False):
        data = fcojax.from_clients(
            [{k: v.astype(np.float32) for k, v in client.items()} for client in unlike_clients()]
        )
        algorithm = algorithms.fed_dual_avg_tracking(least_squares, plain_l1)
        hparams = algorithm.hparams_type(client_lr=rate, penalty_scale=scale)
        for num_rounds in (5_000, 80_000):
            plan = fcojax.local_steps(5)
            w = ends(algorithm, hparams, plan, jnp.zeros(12), data, num_rounds)
            violation = float(fcojax.kkt_violation(least_squares, l1(), scale, w, data))
            rounding = np.finfo(np.float32).eps * scale * num_rounds * 5 * rate
            assert violation < 5e-6 + 4 * steepest(unlike_clients()) * rounding
