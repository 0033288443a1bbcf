"""The limits of the algorithms, and their distance from the minimiser of F + psi.

F is the mean of heterogeneous quadratics with curvatures between 0.4 and 1.6, clients compute
exact gradients, and the reference is coordinate descent on F + lambda |w|_1, certified by its
optimality conditions.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import tree
from fcojax.transforms import Penalty, l1
from tests.support import federations
from tests.support.composite_oracles import soft
from tests.support.federations import client_means, quadratic, quadratic_clients

pytestmark = pytest.mark.gate

KEY = jax.random.key(0)
SMOOTHNESS = 1.6
SCALE = 0.2
plain_l1 = l1()


def clients():
    return quadratic_clients(sizes=(1,) * 5, dim=12, seed=3)


@functools.cache
def population():
    return fcojax.from_clients(clients())


@functools.cache
def pooled():
    curvatures, slopes = client_means(clients())
    return curvatures.mean(axis=0), slopes.mean(axis=0)


def gradient(w):
    curvature, slope = pooled()
    return curvature @ w - slope


def objective(w, scale=SCALE):
    curvature, slope = pooled()
    return 0.5 * w @ curvature @ w - slope @ w + scale * np.abs(w).sum()


def optimality_residual(w, scale=SCALE):
    return np.abs(w - soft(w - gradient(w), scale)).max()


@functools.cache
def solution(scale=SCALE):
    curvature, _ = pooled()
    w = np.zeros(len(curvature))
    for _ in range(200):
        for i, diagonal in enumerate(np.diag(curvature)):
            w[i] = soft(diagonal * w[i] - gradient(w)[i], scale) / diagonal
    assert optimality_residual(w, scale) < 1e-14
    return w


def build(name, penalty=plain_l1, **options):
    return federations.algorithm(name, penalty, loss=quadratic, **options)


def last_model(chosen, rates, num_steps, num_rounds, start=None, data=None):
    start = np.zeros(12) if start is None else start
    model, _ = fcojax.run(
        chosen,
        rates,
        jnp.asarray(start),
        data or population(),
        KEY,
        num_rounds=num_rounds,
        eval_every=num_rounds,
        plan=fcojax.local_steps(num_steps),
    )
    return np.asarray(model)


def distance(name, client_lr, num_steps, target, server_lr=1.0, **options):
    """Return the distance to ``target`` of the limit, started at the minimiser of F + psi."""
    rates = federations.hparams(name, client_lr, server_lr, SCALE)
    model = last_model(build(name, **options), rates, num_steps, 30_000, solution())
    return np.linalg.norm(model - target)


@pytest.mark.slow
@pytest.mark.parametrize("num_steps", [1, 4])
def test_mirror_descent_as_printed_solves_the_problem_with_twice_the_penalty(num_steps):
    """Each round applies psi on the clients and again on the server.

    Started at the minimiser, FedMiD moves to within O(eta_c) of argmin F + 2 psi: half the rate
    gives half the distance.
    """
    right, twice = solution(), solution(2 * SCALE)
    assert np.linalg.norm(right - twice) > 0.1
    for server_lr in (0.3, 1.0, 3.0):
        far, near = (
            distance("fed_mid", client_lr, num_steps, twice, server_lr)
            for client_lr in (0.004, 0.002)
        )
        assert near < 0.05 * np.linalg.norm(right - twice)
        assert far / near == pytest.approx(2, rel=0.1)


@pytest.mark.slow
def test_without_the_server_prox_mirror_descent_solves_the_problem_itself():
    """If applied once per round, psi has the right weight, up to a distance of order eta_c."""
    far, near = (
        distance("fed_mid", client_lr, 4, solution(), server_prox=False)
        for client_lr in (0.001, 0.0005)
    )
    assert near < 0.05 * np.linalg.norm(solution() - solution(2 * SCALE))
    assert far / near == pytest.approx(2, rel=0.1)


def test_the_doubled_ridge_has_a_closed_form():
    r"""For psi = lambda |w|^2 and M = K = eta_s = 1 the two shrinkage factors multiply.

    A fixed point of w -> (w - eta F'(w)) / (1 + 2 eta lambda)^2 minimises F + c |w|^2 / 2 with
    c = ((1 + 2 eta lambda)^2 - 1) / eta, which tends to 4 lambda and not to 2 lambda.
    """
    squared = Penalty(
        value=lambda w, scale: scale * tree.vdot(w, w),
        prox=lambda v, step, scale: v / (1 + 2 * step * scale),
    )
    a, b, scale = 0.8, 1.5, 0.3
    data = fcojax.from_clients([{"A": np.full((1, 1, 1), a), "c": np.full((1, 1), a * b)}])
    for client_lr in (0.5, 0.05):
        rates = federations.hparams("fed_mid", client_lr, 1.0, scale)
        model = last_model(build("fed_mid", squared), rates, 1, 1000, np.zeros(1), data)
        c = ((1 + 2 * client_lr * scale) ** 2 - 1) / client_lr
        assert model[0] == pytest.approx(a * b / (a + c), rel=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fed_mid_osp", "fed_dual_avg"])
def test_local_steps_cost_a_distance_in_proportion_to_rate_times_extra_steps(name):
    """The error of the limit is about a constant times eta_c (K - 1), and zero for K = 1."""
    at = {
        (num_steps, lr): distance(name, lr, num_steps, solution())
        for num_steps in (2, 4)
        for lr in (0.004, 0.002)
    }
    assert 0 < at[4, 0.002] < 0.05
    assert at[4, 0.004] / at[4, 0.002] == pytest.approx(2, rel=0.05)
    assert at[4, 0.002] / at[2, 0.002] == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize("name", ["fed_mid_osp", "fed_dual_avg"])
def test_one_local_step_ends_at_the_solution_to_machine_precision(name):
    """K = 1, exact gradients, eta_s eta_c below 1/L: optimality and the support are right."""
    rates = federations.hparams(name, 0.25, 2.0, SCALE)
    model = last_model(build(name), rates, 1, 400)
    assert optimality_residual(model) < 1e-12
    np.testing.assert_allclose(model, solution(), rtol=0, atol=1e-12)
    assert np.array_equal(model != 0, solution() != 0)
    assert 0 < np.count_nonzero(model) < len(model)


def test_dual_averaging_with_server_prox_only_ends_at_zero():
    """Its dual converges to FedAvg's limit while the threshold T lambda grows without bound.

    The model is exactly zero from the first round with T_r lambda >= max_i |z_i| on, and its
    support is {i: |z_i| > T_r lambda} before; z_r is FedAvg's model.
    """
    name, client_lr, server_lr, scale, num_rounds = "fed_dual_avg_osp", 0.1, 1.5, 0.05, 200
    options = {"num_rounds": num_rounds, "plan": fcojax.local_steps(2)}
    options |= {"observe": lambda hparams, model, _: {"model": model}}

    def models(name):
        rates = federations.hparams(name, client_lr, server_lr, scale)
        start = jnp.ones(12)
        return np.asarray(
            fcojax.run(build(name), rates, start, population(), KEY, **options)[1]["model"]
        )

    elapsed = server_lr * client_lr * 2 * np.arange(1, num_rounds + 1)
    duals = models("fed_avg")
    assert np.abs(np.diff(duals[-2:], axis=0)).max() < 1e-8
    ours = models(name)
    assert np.array_equal(ours != 0, np.abs(duals) > scale * elapsed[:, None])
    first = np.flatnonzero((ours == 0).all(axis=1))[0]
    assert 0 < first < num_rounds / 2
    assert (ours[first:] == 0).all()


@pytest.mark.slow
def test_averaging_sparse_models_fills_them_in_and_averaging_duals_does_not():
    """The support of the mean of the clients' models is within the union of their supports.

    It is denser than each of them and than the solution, whose support FedDualAvg finds.
    """
    name, work, scale = "fed_mid", fcojax.local_steps(20), 0.5
    chosen = build(name, server_prox=False)
    rates = federations.hparams(name, 0.3, 1.0, scale)
    server = jnp.asarray(last_model(chosen, rates, 20, 500))
    mean = np.asarray(federations.after_one_round(chosen, work, rates, population(), server))
    ends = np.stack(
        [
            federations.after_one_round(chosen, work, rates, fcojax.from_clients([one]), server)
            for one in clients()
        ]
    )
    assert not np.any(mean[(ends == 0).all(axis=0)])
    assert np.count_nonzero(mean) > np.count_nonzero(ends, axis=1).max()
    assert np.count_nonzero(mean) > np.count_nonzero(solution(scale)) > 0

    rates = federations.hparams("fed_dual_avg", 0.001, 1.0, scale)
    model = last_model(build("fed_dual_avg"), rates, 20, 5000)
    assert np.array_equal(model != 0, solution(scale) != 0)


def test_averaging_points_of_a_sphere_leaves_it_and_averaging_duals_does_not():
    """The optimum is on the unit sphere; FedMiD's mean of distinct points of it lies inside.

    FedDualAvg's model is a projection of a dual point that grows with time, so it stays on the
    sphere, and its gap is a small part of FedMiD's.
    """
    radius, num_steps = 1.0, 20
    ball = Penalty(
        value=lambda x, scale: jnp.where(tree.norm(x) <= scale, 0.0, jnp.inf),
        prox=lambda v, step, scale: v / jnp.maximum(tree.norm(v) / scale, 1.0),
    )
    curvature, slope = pooled()
    low, high = 0.0, 100.0
    for _ in range(100):  # the multiplier mu of |w| = radius, w = (A + mu I)^{-1} c
        mu = 0.5 * (low + high)
        best = np.linalg.solve(curvature + mu * np.eye(12), slope)
        low, high = (mu, high) if np.linalg.norm(best) > radius else (low, mu)
    assert mu > 0.01

    def end(name):
        rates = federations.hparams(name, 1 / (4 * SMOOTHNESS), 1.0, radius)
        return last_model(build(name, ball), rates, num_steps, 400)

    primal, dual = end("fed_mid"), end("fed_dual_avg")
    assert np.linalg.norm(primal) < 0.9 * radius
    assert np.linalg.norm(dual) == pytest.approx(radius, rel=1e-12)
    gap = objective(dual, 0) - objective(best, 0)
    assert gap >= -1e-12
    assert gap < 1e-3 * (objective(primal, 0) - objective(best, 0))


def test_the_averaged_iterate_has_the_guarantee_and_the_last_one_has_the_zeros():
    """K = 1, exact gradients: F + psi at the mean of w_1..w_R is within |w* - w_0|^2 / (2 gamma R).

    gamma = eta_s eta_c <= 1/(4L). The mean contains the supports of all models.
    """
    name, client_lr, server_lr = "fed_dual_avg", 0.1, 1.5
    gamma = client_lr * server_lr
    assert gamma <= 1 / (4 * SMOOTHNESS)
    rates = federations.hparams(name, client_lr, server_lr, SCALE)
    best, start = solution(), np.ones(12)
    _, history = fcojax.run(
        build(name),
        rates,
        jnp.asarray(start),
        population(),
        KEY,
        num_rounds=200,
        plan=fcojax.local_steps(1),
        observe=lambda hparams, model, _: {"model": model},
    )
    models = np.asarray(history["model"])
    counts = np.arange(1, 201)
    averages = np.cumsum(models, axis=0) / counts[:, None]
    gaps = np.array([objective(w) - objective(best) for w in averages])
    assert np.all(gaps <= 0.5 * np.sum((best - start) ** 2) / (gamma * counts))
    assert np.array_equal(models[-1] != 0, best != 0)
    assert np.count_nonzero(averages[-1]) == 12 > np.count_nonzero(best)
