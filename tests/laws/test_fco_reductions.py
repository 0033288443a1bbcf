"""Exact identities between the algorithms, and with their classical versions.

Clients hold quadratics, so gradients are one line of numpy: f(w) = w'Aw/2 - c'w for each example.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms, tree
from fcojax.algorithms.dual_averages import DualPoint, DualSums
from fcojax.engine.nonfinite import warn_of_nonfinite
from fcojax.transforms import Penalty, entropic_simplex, euclidean, l0_ball, l1, zero
from fcojax.transforms import quadratic as quadratic_mirror
from tests.support import federations
from tests.support.composite_oracles import soft
from tests.support.federations import DIM, client_means, quadratic, quadratic_clients

pytestmark = pytest.mark.gate

KEY = jax.random.key(5)
DUAL = ("fed_dual_avg", "fed_dual_avg_osp")
SAMPLED = {
    "num_rounds": 6,
    "work": fcojax.local_epochs(2, 3),
    "cohort": fcojax.uniform_cohort(cohort_size=3),
}
THREE_STEPS = {"num_rounds": 6, "work": fcojax.local_steps(3)}
ONE_STEP = {"num_rounds": 8, "work": fcojax.local_steps(1)}
RADIUS = 0.5
START = np.array([1.0, -0.6, 0.3, 0.8])
plain_l1, nothing = l1(), zero()


@functools.cache
def population(weights="examples"):
    return fcojax.from_clients(quadratic_clients(), weights)


def pooled_gradient(w):
    """Return results for the population with clients weighted by their examples."""
    rows = quadratic_clients()
    curvature = np.concatenate([client["A"] for client in rows]).mean(axis=0)
    return curvature @ w - np.concatenate([client["c"] for client in rows]).mean(axis=0)


def build(name, penalty=plain_l1, **options):
    return federations.algorithm(name, penalty, loss=quadratic, **options)


def servers(name, rates, data, setting, start=START, **options):
    """The server's state after every round."""
    return federations.servers(
        build(name, **options), rates, jnp.asarray(start), data, KEY, **setting
    )


def points(name, *args, **kwargs):
    """Return the model or the dual point to which the server adds uploads, after every round."""
    server = servers(name, *args, **kwargs)
    return server.dual if name in DUAL else server


def models(chosen, rates, server):
    """Return the models of a sequence of server states."""
    return np.asarray(jax.vmap(lambda now: chosen.model(rates, now))(server))


def assert_same(ours, expected, tolerance=1e-12):
    expected = np.asarray(expected)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@functools.cache
def fed_avg_on_samples():
    rates = federations.hparams("fed_avg", client_lr=0.2, server_lr=1.3)
    result = points("fed_avg", rates, population(), SAMPLED)
    assert np.abs(np.diff(result, axis=0)).max(axis=1).min() > 1e-3
    return result


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in federations.NAMES if name != "fed_avg"])
def test_without_a_penalty_all_six_are_fed_avg(name):
    """Every round, with partial cohorts, minibatches, weights and unequal numbers of steps."""
    rates = federations.hparams(name, client_lr=0.2, server_lr=1.3, penalty_scale=0.0)
    assert_same(points(name, rates, population(), SAMPLED), fed_avg_on_samples())


@pytest.mark.slow
def test_dual_averaging_with_server_prox_only_is_fed_avg_read_through_the_mirror():
    """z_r is FedAvg's w_r for any penalty, and the model is P_T(z_r), T the elapsed time."""
    name, scale = "fed_dual_avg_osp", 0.05
    rates = federations.hparams(name, client_lr=0.2, server_lr=1.3, penalty_scale=scale)
    server = servers(name, rates, population(), SAMPLED)
    assert_same(server.dual, fed_avg_on_samples())
    expected = soft(fed_avg_on_samples(), server.elapsed[:, None] * scale)
    assert np.ptp(np.count_nonzero(expected, axis=1)) > 0
    assert_same(models(build(name), rates, server), expected)


@pytest.mark.parametrize(("client_lr", "server_lr"), [(0.3, 0.5), (0.05, 3.0)])
def test_one_local_step_of_dual_averaging_is_dual_averaging(client_lr, server_lr):
    """w_r = P_{gamma r}(z_r), z_{r+1} = z_r - gamma grad F(w_r), gamma the product of the rates."""
    name, scale, gamma = "fed_dual_avg", 0.2, client_lr * server_lr
    rates = federations.hparams(name, client_lr, server_lr, scale)
    z, expected = START, []
    for r in range(8):
        z = z - gamma * pooled_gradient(soft(z, gamma * r * scale))
        expected.append(z)
    assert_same(points(name, rates, population(), ONE_STEP), expected)


@pytest.mark.parametrize(("client_lr", "server_lr"), [(0.3, 0.5), (0.05, 3.0)])
def test_one_local_step_with_server_prox_only_is_proximal_gradient(client_lr, server_lr):
    """w_{r+1} = prox_{gamma psi}(w_r - gamma grad F(w_r)), gamma the product of the rates."""
    name, scale, gamma = "fed_mid_osp", 0.2, client_lr * server_lr
    rates = federations.hparams(name, client_lr, server_lr, scale)
    w, expected = START, []
    for _ in range(8):
        w = soft(w - gamma * pooled_gradient(w), gamma * scale)
        expected.append(w)
    assert_same(points(name, rates, population(), ONE_STEP), expected)


def test_identical_clients_do_centralised_dual_averaging():
    """With eta_s = 1 the R rounds of K steps equal R K centralised steps."""
    name, client_lr, scale = "fed_dual_avg", 0.2, 0.3
    only = quadratic_clients()[0]
    rates = federations.hparams(name, client_lr, 1.0, scale)
    (curvature,), (slope,) = client_means([only])
    z, expected = START, []
    for step in range(18):
        w = soft(z, client_lr * step * scale)
        z = z - client_lr * (curvature @ w - slope)
        expected.append(z)
    ours = points(name, rates, fcojax.from_clients([only] * 3, [1.0, 2.0, 0.5]), THREE_STEPS)
    assert_same(ours, expected[2::3])


def into_ball(v, radius):
    return v / max(np.linalg.norm(v) / radius, 1.0)


def l2_ball():
    def value(x, scale):
        return jnp.where(tree.norm(x) <= scale, 0.0, jnp.inf)

    def prox(v, step, scale):
        return v / jnp.maximum(tree.norm(v) / scale, 1.0)

    return Penalty(value, prox)


ball = l2_ball()


def pulled_outward():
    """Return the clients with a common linear term that moves the optimum to the sphere."""
    return [client | {"c": client["c"] + 1.0} for client in quadratic_clients()]


def test_on_a_convex_set_small_server_steps_need_no_server_projection():
    """For 0 < eta_s <= 1 the server moves inside the set, where the projection does nothing.

    With eta_s = 1 this is projected gradient descent on every client, averaged every K steps;
    with a longer server step the projection has an effect.
    """
    start = np.array([0.3, -0.1, 0.0, 0.2])
    data = fcojax.from_clients(pulled_outward(), "examples")

    def both(server_lr):
        rates = federations.hparams("fed_mid", 0.2, server_lr, RADIUS)
        return [
            points("fed_mid", rates, data, THREE_STEPS, start, penalty=ball, server_prox=prox)
            for prox in (True, False)
        ]

    for server_lr in (0.3, 1.0):
        assert_same(*both(server_lr))
    assert np.abs(np.subtract(*both(3.0))).max() > 1e-2

    w, expected = start, []
    weights = np.array(federations.RAGGED) / sum(federations.RAGGED)
    touched = False
    for _ in range(6):
        ends = []
        for curvature, slope in zip(*client_means(pulled_outward()), strict=True):
            end = w
            for _ in range(3):
                moved = end - 0.2 * (curvature @ end - slope)
                end = into_ball(moved, RADIUS)
                touched |= np.linalg.norm(moved) > RADIUS
            ends.append(end)
        w = weights @ np.array(ends)
        expected.append(w)
    assert touched
    assert_same(both(1.0)[0], expected)


@pytest.mark.slow
def test_the_mean_dual_point_follows_the_mean_gradient():
    """With eta_s = 1 the server's dual is the mean of the clients' duals after each local step.

    The mean moves by zbar_{k+1} = zbar_k - eta_c sum_m p_m grad F_m(P_{T + eta_c k}(z^m_k)), each
    client's z^m_k being what it would reach were it alone in the federation.
    """
    name, client_lr, scale, elapsed = "fed_dual_avg", 0.2, 0.3, 0.7
    rates = federations.hparams(name, client_lr, 1.0, scale)
    chosen, clients = build(name), quadratic_clients(sizes=(1, 1, 1))
    weights = np.array([0.5, 0.2, 0.3])
    everybody = fcojax.from_clients(clients, weights)
    point = DualPoint(jnp.asarray(START), jnp.asarray(elapsed))
    server = DualSums(*point, tree.zeros_like(point))

    def dual_after(num_steps, data):
        if num_steps == 0:
            return START
        work = fcojax.local_steps(num_steps)
        return np.asarray(federations.after_one_round(chosen, work, rates, data, server).dual)

    curvatures, slopes = client_means(clients)
    for k in range(3):
        alone = np.stack([dual_after(k, fcojax.from_clients([client])) for client in clients])
        mean = dual_after(k, everybody)
        assert_same(mean, weights @ alone)
        read = soft(alone, (elapsed + client_lr * k) * scale)
        gradients = np.einsum("mij,mj->mi", curvatures, read) - slopes
        assert_same(dual_after(k + 1, everybody), mean - client_lr * weights @ gradients)


def test_one_client_and_one_step_of_mirror_descent_doubles_the_penalty():
    """Soft thresholds add up: S(S(v, a), a) = S(v, 2a), so this is proximal gradient at 2 psi."""
    client_lr, scale = 0.2, 0.15
    only = quadratic_clients()[0]
    (curvature,), (slope,) = client_means([only])
    w, expected = START, []
    for _ in range(8):
        w = soft(w - client_lr * (curvature @ w - slope), client_lr * 2 * scale)
        expected.append(w)
    rates = federations.hparams("fed_mid", client_lr, 1.0, scale)
    assert_same(points("fed_mid", rates, fcojax.from_clients([only]), ONE_STEP), expected)


@pytest.mark.parametrize("name", ["fed_avg", "fed_mid", "fed_dual_avg"])
def test_on_quadratics_a_round_is_a_matrix_power(name):
    """w_{r+1} = w_r + eta_s mean_m[((I - eta_c A_m)^K - I)(w_r - w_m)], w_m client m's optimum."""
    client_lr, server_lr = 0.3, 1.2
    curvatures, slopes = client_means(quadratic_clients())
    optima = np.linalg.solve(curvatures, slopes[..., None])[..., 0]
    shrinkage = np.linalg.matrix_power(np.eye(DIM) - client_lr * curvatures, 3) - np.eye(DIM)
    w, expected = START, []
    for _ in range(6):
        w = w + server_lr * np.einsum("mij,mj->mi", shrinkage, w - optima).mean(axis=0)
        expected.append(w)
    rates = federations.hparams(name, client_lr, server_lr)
    assert_same(points(name, rates, population(None), THREE_STEPS, penalty=nothing), expected)


def test_local_steps_bias_fed_avg_unless_there_is_one_or_curvatures_agree():
    """The limit solves sum_m (I - (I - eta_c A_m)^K)(w - w_m) = 0, which is not grad F(w) = 0."""
    client_lr = 0.3
    unequal = quadratic_clients(sizes=(1,) * 4)
    alike = [client | {"A": unequal[0]["A"]} for client in unequal]

    def limit(clients, num_steps):
        setting = {"num_rounds": 200, "eval_every": 200, "work": fcojax.local_steps(num_steps)}
        rates = federations.hparams("fed_avg", client_lr)
        return points("fed_avg", rates, fcojax.from_clients(clients), setting)[-1]

    def solution(clients, num_steps):
        curvatures, slopes = client_means(clients)
        optima = np.linalg.solve(curvatures, slopes[..., None])[..., 0]
        shrinkage = np.linalg.matrix_power(np.eye(DIM) - client_lr * curvatures, num_steps)
        moves = np.eye(DIM) - shrinkage
        return np.linalg.solve(moves.sum(axis=0), np.einsum("mij,mj->i", moves, optima))

    def optimum(clients):
        curvatures, slopes = client_means(clients)
        return np.linalg.solve(curvatures.sum(axis=0), slopes.sum(axis=0))

    assert_same(limit(unequal, 3), solution(unequal, 3))
    assert np.abs(limit(unequal, 3) - optimum(unequal)).max() > 1e-2
    assert_same(limit(alike, 3), optimum(alike))
    assert_same(limit(unequal, 1), optimum(unequal))


SIMPLEX = entropic_simplex()


def test_on_the_simplex_dual_averaging_is_exponentiated_gradient():
    """w_{r+1} is proportional to w_r exp(-gamma grad F(w_r)); adding a constant to z has no effect.

    Since z_0 = 1 + log w_0, the constant is a factor of w_0.
    """
    name, client_lr, server_lr = "fed_dual_avg", 0.4, 1.5
    start = np.array([0.4, 0.3, 0.2, 0.1])
    rates = federations.hparams(name, client_lr, server_lr, 1.0)

    def iterates(start):
        server = servers(name, rates, population(), ONE_STEP, start, mirror=SIMPLEX)
        return models(build(name, mirror=SIMPLEX), rates, server)

    w, expected = start, []
    for _ in range(8):
        w = w * np.exp(-client_lr * server_lr * pooled_gradient(w))
        w = w / w.sum()
        expected.append(w)
    assert_same(iterates(start), expected)
    assert_same(iterates(7.0 * start), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*DUAL, "fast_fed_dual_avg", "mc_fed_dual_avg"])
def test_a_quadratic_mirror_is_a_change_of_variables(name):
    """h = w'Qw/2 is the Euclidean h on f o Q^{-1/2}, where u = Q^{1/2} w."""
    root = np.linalg.qr(np.random.default_rng(3).standard_normal((4, 4)))[0] * [0.8, 1.0, 1.3, 1.6]
    root = root @ root.T
    inverse, kind = np.linalg.inv(root), getattr(algorithms, name).Hparams
    more = {} if name in DUAL else {"strong_convexity": 0.3}
    rates = kind(client_lr=0.1, penalty_scale=0.0, **more)
    moved = [{"A": inverse @ c["A"] @ inverse, "c": c["c"] @ inverse} for c in quadratic_clients()]

    def iterates(mirror, data, start):
        server = servers(name, rates, data, THREE_STEPS, start, mirror=mirror)
        return models(build(name, mirror=mirror), rates, server)

    w = iterates(quadratic_mirror(root @ root), population(), START)
    u = iterates(euclidean(nothing), fcojax.from_clients(moved, "examples"), root @ START)
    assert_same(w @ root, u)


@pytest.mark.parametrize("name", ["fed_mid", "fed_dual_avg"])
def test_zero_stays_put_if_the_penalty_outweighs_every_client(name):
    """With lambda >= max_m |grad F_m(0)|_inf no local step leaves zero, not even by a bit."""
    strongest = np.abs(client_means(quadratic_clients())[1]).max()
    zeros = np.zeros(DIM)

    def visited(scale):
        rates = federations.hparams(name, 0.2, 1.3, scale)
        server = servers(name, rates, population(), THREE_STEPS, zeros)
        return models(build(name), rates, server)

    # The sums of z and T have different rounding errors, hence the margin.
    assert np.all(visited(strongest * (1 + 1e-9)) == 0)
    assert np.any(visited(0.1 * strongest) != 0)


@pytest.mark.parametrize(("factor", "leaves"), [(1 + 1e-9, False), (1 - 1e-9, True)])
def test_one_step_of_dual_averaging_leaves_zero_when_the_optimum_does(factor, leaves):
    """With K = 1 the least lambda that keeps the model at zero is |grad F(0)|_inf."""
    name, zeros = "fed_dual_avg", np.zeros(DIM)
    rates = federations.hparams(name, 0.3, 0.5, factor * np.abs(pooled_gradient(zeros)).max())
    server = servers(name, rates, population(), ONE_STEP, zeros)
    assert np.any(models(build(name), rates, server) != 0) == leaves


def fenced(w, rows):
    """``quadratic``, with a gradient that is NaN outside the ball."""
    inside = jnp.sqrt(w @ w) <= RADIUS * (1 + 1e-12)
    return quadratic(w, rows) + jnp.where(inside, 0.0, jnp.nan) * jnp.sum(w)


@pytest.mark.parametrize(
    ("name", "stays_inside"),
    [("fed_mid", True), ("fed_dual_avg", True), ("fed_dual_avg_osp", False)],
)
def test_clients_with_a_projection_take_no_gradient_outside_the_set(name, stays_inside):
    """All client points and models are feasible; without the client prox they leave the set.

    A gradient outside the set is NaN here, and a client whose upload is NaN is counted.
    """
    chosen = federations.algorithm(name, ball, loss=fenced)
    rates = federations.hparams(name, 0.4, 1.3, RADIUS)
    start = jnp.array([0.3, -0.1, 0.0, 0.2])
    data = fcojax.from_clients(pulled_outward(), "examples")
    run = functools.partial(
        fcojax.run,
        chosen,
        rates,
        start,
        data,
        KEY,
        observe=lambda hparams, w, _: {"norm": tree.norm(w)},
        **federations.planned(THREE_STEPS),
    )
    if stays_inside:
        _, history = run()
    else:
        with pytest.warns(UserWarning, match="the run became non-finite"):
            _, history = run()
            warn_of_nonfinite(wait=True)
    assert (history["dropped"].sum() == 0) == stays_inside
    assert np.all(history["norm"] <= RADIUS * (1 + 1e-12))
    assert not stays_inside or history["norm"].max() > 0.9 * RADIUS


def linear(w, rows):
    """An example whose gradient is the same everywhere."""
    return rows["a"] @ w


@pytest.mark.slow
def test_with_constant_gradients_the_server_adds_up_rates_times_gradients():
    """z_r = w_0 - eta_s eta_c sum of p-weighted gradients, T_r = eta_s sum of p_m eta_c K_m.

    Client m takes K_m = ceil(2 n_m / 3) steps. FedMiD-OSP subtracts the same, and its prox of a
    round has the weight that this round added to T.
    """
    rng = np.random.default_rng(2)
    clients = [{"a": rng.standard_normal((n, DIM))} for n in federations.RAGGED]
    data = fcojax.from_clients(clients, "examples")
    num_steps = np.array([-(-2 * n // 3) for n in federations.RAGGED])
    z, w, elapsed, duals, times, primals = START, START, 0.0, [], [], []
    for cohort in federations.replay(data, KEY, **SAMPLED):
        members, weights = [m for m, _, _ in cohort], [weight for _, weight, _ in cohort]
        sums = [
            sum(np.average(clients[m]["a"][rows], axis=0, weights=real) for rows, real in batches)
            for m, batches in ((m, batches[: num_steps[m]]) for m, _, batches in cohort)
        ]
        step = 1.7 * 0.2 * np.average(sums, axis=0, weights=weights)
        time = 1.7 * 0.2 * np.average(num_steps[members], weights=weights)
        z, elapsed, w = z - step, elapsed + time, soft(w - step, time * 0.1)
        duals.append(z), times.append(elapsed), primals.append(w)

    def ours(name):
        chosen = federations.algorithm(name, plain_l1, loss=linear)
        rates = federations.hparams(name, 0.2, 1.7, 0.1)
        return federations.servers(chosen, rates, jnp.asarray(START), data, KEY, **SAMPLED)

    server = ours("fed_dual_avg")
    assert_same(server.dual, duals)
    assert_same(server.elapsed, times)
    assert_same(ours("fed_mid_osp"), primals)


SPARSE = l0_ball(2)


def largest(x):
    """Return x with only its two entries of largest magnitude."""
    return np.where(np.argsort(np.argsort(-np.abs(x))) < 2, x, 0)


@pytest.mark.parametrize(
    ("name", "each_step"),
    [("fed_mid_osp", False), pytest.param("fed_mid", True, marks=pytest.mark.slow)],
    ids=["Fed-HT", "Fed-IterHT"],
)
def test_mirror_descent_on_sparse_vectors_is_hard_thresholding(name, each_step):
    """Tong, Liang, Zhu and Bi, "Federated nonconvex sparse learning", 2020 (arXiv 2101.00052).

    K local steps, an average, and the projection on tau nonzeros; in Fed-IterHT after each step.
    """
    weights, w, expected = np.array([1.0, 2.0, 0.5, 1.0, 1.5]), START, []
    for _ in range(6):
        ends = []
        for curvature, slope in zip(*client_means(quadratic_clients()), strict=True):
            end = w
            for _ in range(3):
                end = end - 0.2 * (curvature @ end - slope)
                end = largest(end) if each_step else end
            ends.append(end)
        w = largest(np.average(ends, axis=0, weights=weights))
        expected.append(w)
    data = fcojax.from_clients(quadratic_clients(), weights)
    found = points(name, federations.hparams(name, 0.2), data, THREE_STEPS, penalty=SPARSE)
    assert (np.count_nonzero(expected, axis=1) == 2).all()
    assert np.array_equal(found != 0, np.array(expected) != 0)
    assert_same(found, expected)
