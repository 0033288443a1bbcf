"""FedDualAvg with control variates: its iterates, its limit, and the methods that it contains."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms
from fcojax.problems import population_loss
from fcojax.reference import fista
from fcojax.transforms import (
    Mirror,
    box,
    entropic_simplex,
    entropy,
    euclidean,
    group_l2,
    l1,
    l2_ball,
    nuclear,
    p_norm,
)
from tests.support import federations
from tests.support.composite_oracles import soft

pytestmark = pytest.mark.gate

KEY = jax.random.key(5)
LOSSY = (fcojax.uniform_cohort(cohort_size=3), fcojax.dropout(0.3))
slow = functools.partial(pytest.param, marks=pytest.mark.slow)
WHO = pytest.mark.parametrize(
    "who",
    [slow((), id="everyone"), pytest.param(LOSSY, id="absent and lost")],
)
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


def printed(clients, drawn, eta, eta_s, scale, memory):
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
        w = soft(z, elapsed * scale)
        if changes:
            z, elapsed = w + memory * (z - w), memory * elapsed
        yield w


SETTINGS = {
    "everyone, full batches": (fcojax.local_steps(3), fcojax.everyone()),
    "absent and lost, minibatches": (fcojax.local_steps(4, 3), *LOSSY),
    "absent and lost, unequal steps": (fcojax.local_steps([1, 5, 2, 3, 4]), *LOSSY),
}


LASSO = algorithms.fed_dual_avg_tracking(least_squares, plain_l1)
# One observer, so that equal plans are one program.
MODEL = fcojax.StateObserver(
    lambda hparams, state, context: {"w": LASSO.model(hparams, state.server)}
)


@pytest.mark.parametrize("memory", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("setting", SETTINGS)
def test_every_round_is_the_printed_one(setting, memory):
    data, num_rounds = fcojax.from_clients(unlike_clients()), 20
    hparams = LASSO.hparams_type(0.05, 0.9, penalty_scale=0.2, memory=memory)
    start, plan = jnp.zeros(12), fcojax.Plan(*SETTINGS[setting])
    _, history = fcojax.run(
        LASSO, hparams, start, data, KEY, plan, num_rounds=num_rounds, observe=MODEL
    )
    drawn = federations.replay(data, KEY, num_rounds, *SETTINGS[setting])
    expected = np.array(list(printed(unlike_clients(), drawn, 0.05, 0.9, 0.2, memory)))
    np.testing.assert_allclose(history["w"], expected, atol=1e-12)
    late = expected[10:]
    assert np.any(late == 0) and np.all(np.any(late, axis=1))


GROUPS = group_l2(labels=np.repeat(np.arange(4, dtype=np.int32), 3))
LIMITS = {
    "lasso": (least_squares, l1(), 0.2, False),
    "group lasso": (least_squares, GROUPS, 0.7, False),
    "logistic": (logistic, l1(), 0.05, True),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "num_steps", "num_problems"),
    [
        ("group lasso", 10, 1),
        *(slow(name, num_steps, 20) for name in LIMITS for num_steps in (1, 10, 50)),
    ],
)
def test_the_limit_is_the_minimiser_with_its_zeros(problem, num_steps, num_problems):
    """With three of five clients in a round and 30 per cent of the uploads lost too."""
    loss, penalty, scale, is_logistic = LIMITS[problem]
    algorithm = algorithms.fed_dual_avg_tracking(loss, euclidean(penalty))
    objective, num_zeros = functools.partial(population_loss, loss), 0
    for seed in range(num_problems):
        clients = unlike_clients(seed)
        clients = signs(clients) if is_logistic else clients
        data, rate = fcojax.from_clients(clients), 1 / (num_steps * steepest(clients))
        w, outcome = fcojax.solve(
            algorithm,
            algorithm.hparams_type(client_lr=rate, penalty_scale=scale),
            jnp.zeros(12),
            data,
            KEY,
            fcojax.Plan(fcojax.local_steps(num_steps), *LOSSY),
            certificate=fcojax.kkt(loss, penalty),
            tolerance=1e-12,
            eval_every=500,
            max_rounds=60_000,
        )
        assert outcome.solved, (seed, outcome)
        exact = fista(objective, penalty, scale, jnp.zeros(12), data, tolerance=1e-13).params
        np.testing.assert_allclose(w, exact, atol=1e-10)
        assert np.array_equal(w == 0, exact == 0)
        num_zeros += np.sum(exact == 0)
    assert num_zeros > 0


@functools.cache
def violation(penalty):
    def observe(hparams, w, data):
        scale = hparams.penalty_scale
        return {"violation": fcojax.kkt_violation(least_squares, penalty, scale, w, data)}

    return observe


def violations(penalty, memory, rounds, num_steps=10, scale=0.3):
    """The violation of the optimality conditions after each number of rounds, with everyone."""
    clients = unlike_clients()
    data, rate = fcojax.from_clients(clients), 1 / (num_steps * steepest(clients))
    algorithm = algorithms.fed_dual_avg_tracking(least_squares, euclidean(penalty))
    hparams = algorithm.hparams_type(client_lr=rate, penalty_scale=scale, memory=memory)
    _, history = fcojax.run(
        algorithm,
        hparams,
        jnp.zeros(12),
        data,
        KEY,
        fcojax.local_steps(num_steps),
        num_rounds=max(rounds),
        eval_every=min(rounds),
        observe=violation(penalty),
        context=data,
    )
    return np.array([history["violation"][r // min(rounds) - 1] for r in rounds])


@pytest.mark.slow
def test_the_rate_is_linear_unless_memory_is_full_and_the_penalty_curved():
    """P_T shrinks steps along a level set of the group norm by 1/T; T is bounded for memory < 1."""
    for memory in (0.0, 0.9):
        found = violations(GROUPS, memory, (50, 100, 150, 200))
        assert max(found[1:] / found[:-1]) < 0.1, (memory, found)
    rounds = (5_000, 10_000, 20_000)
    assert max(violations(l1(), 1.0, rounds)) < 1e-10  # linear, as level sets of l1 are flat
    found = violations(GROUPS, 1.0, rounds)
    # A linear rate would square the violation when the rounds double.
    assert (10 * found[:-1] ** 2 < found[1:]).all() and (found[1:] < found[:-1]).all()


@pytest.mark.slow
def test_without_tracking_the_limit_is_elsewhere():
    clients = unlike_clients()
    data, rate = fcojax.from_clients(clients), 1 / (10 * steepest(clients))
    algorithm = algorithms.fed_dual_avg(least_squares, plain_l1)
    hparams = algorithm.hparams_type(client_lr=rate, penalty_scale=0.3)
    w = ends(algorithm, hparams, fcojax.local_steps(10), jnp.zeros(12), data, 2000)
    assert fcojax.kkt_violation(least_squares, l1(), 0.3, w, data) > 1e-2
    assert violations(l1(), 0.9, [2000]) < 1e-11


def ends(algorithm, hparams, plan, start, loss_data, num_rounds=30):
    return fcojax.run(algorithm, hparams, start, loss_data, KEY, plan, num_rounds=num_rounds)[0]


@pytest.mark.slow
@WHO
@pytest.mark.parametrize(("penalty", "scale"), [(GROUPS, 0.7), (l1(), 0.0)])
def test_without_memory_it_is_composite_fl_and_without_a_penalty_scaffold(penalty, scale, who):
    data, plan = fcojax.from_clients(unlike_clients()), fcojax.Plan(fcojax.local_steps(4), *who)
    tracking = algorithms.fed_dual_avg_tracking(least_squares, euclidean(penalty))
    if scale:
        other = algorithms.composite_fl(least_squares, penalty)
        rates, theirs = (0.05, 0.8, scale, 0.0), (0.05, 0.8, scale)
    else:
        other = algorithms.scaffold(least_squares)
        rates = theirs = (0.05, 0.8, 0.0)
    found = ends(tracking, tracking.hparams_type(*rates), plan, jnp.ones(12), data)
    expected = ends(other, other.hparams_type(*theirs), plan, jnp.ones(12), data)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert not scale or 0 < np.count_nonzero(found) < 12


@pytest.mark.slow
@pytest.mark.parametrize("num_steps", [1, 5])
def test_one_step_or_equal_clients_are_dual_averaging(num_steps):
    """With full memory each step differs by the rounding of q - c_m."""
    clients = unlike_clients() if num_steps == 1 else unlike_clients()[:1] * 3
    data, found = fcojax.from_clients(clients), []
    for factory, memory in (
        (algorithms.fed_dual_avg, ()),
        (algorithms.fed_dual_avg_tracking, (1.0,)),
    ):
        chosen = factory(least_squares, plain_l1)
        rates, plan = chosen.hparams_type(0.05, 1.3, 0.2, *memory), fcojax.local_steps(num_steps)
        found.append(ends(chosen, rates, plan, jnp.zeros(12), data))
    np.testing.assert_allclose(*found, atol=1e-12)
    assert 0 < np.count_nonzero(found[0]) < 12


def quadratic_of_matrix(w, rows):
    return ((w[None] - rows["a"]) ** 2 * rows["h"]).sum(axis=(1, 2)) / 2


GEOMETRIES: dict[str, tuple[Mirror, float]] = {
    "nuclear norm": (euclidean(nuclear()), 0.4),
    "box": (euclidean(box(-0.2, 0.3)), 1.0),
    "ball": (euclidean(l2_ball()), 0.7),
    "entropy": (entropy(), 0.1),
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
    np.testing.assert_allclose(found[0], found[1], atol=1e-10)
