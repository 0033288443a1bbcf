"""Fast-FedDualAvg and C-/MC-FedDualAvg: the published form, identities, and limits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms, uploads
from fcojax.transforms import euclidean, l1, l1_ball
from tests.support import federations
from tests.support.composite_oracles import soft
from tests.support.federations import client_means, quadratic_clients

pytestmark = pytest.mark.gate

KEY, SCALE, START = jax.random.key(5), 0.1, np.array([1.0, -0.6, 0.3, 0.8])
MIRROR = euclidean(l1())
SAMPLED = (fcojax.local_epochs(2, 3), fcojax.uniform_cohort(cohort_size=3))
STEPS = (fcojax.local_steps(3, 2), fcojax.uniform_cohort(cohort_size=3))
ONE_STEP = (fcojax.local_steps(1, 2), fcojax.uniform_cohort(cohort_size=3))


@functools.cache
def population(weights="examples"):
    return fcojax.from_clients(quadratic_clients(), weights)


def whole_model(hparams, w, context):
    return {"w": w}


def models(name, setting, num_rounds=8, data=None, start=START, mirror=MIRROR, options=(), **rates):
    factory = getattr(algorithms, name)
    hparams = factory.Hparams(**{"penalty_scale": SCALE} | rates)
    chosen = factory(federations.quadratic, mirror, **dict(options))
    _, history = fcojax.run(
        chosen,
        hparams,
        jnp.asarray(start),
        data or population(),
        KEY,
        fcojax.Plan(*setting),
        num_rounds=num_rounds,
        observe=whole_model,
    )
    return np.asarray(history["w"])


def slope(w, member, rows, weights):
    """The gradient of a minibatch's mean quadratic."""
    client, shares = quadratic_clients()[member], weights / weights.sum()
    return np.einsum("n,nij,j->i", shares, client["A"][rows], w) - shares @ client["c"][rows]


def drawn(setting, num_rounds):
    return federations.replay(population(), KEY, num_rounds, *setting)


def fast_as_published(setting, mu, gamma, weight, end_points=False, num_rounds=8):
    """Separate sums of gradients G and of points W, and w the minimiser of the model."""

    def argmin(gradients, points, total):
        b = mu / 2 * total + gamma
        return soft((mu / 2 * points + gamma * START - gradients) / b, SCALE * total / b)

    gradients, points, total, t = np.zeros(4), np.zeros(4), 0.0, 0.0
    w, found = START, []
    for cohort in drawn(setting, num_rounds):
        ends, shares = [], []
        for member, share, batches in cohort:
            g, p, a, k, at = gradients, points, total, t, w
            for rows, real in batches:
                if real.sum():
                    g = g + weight(k) * slope(at, member, rows, real)
                    p, a, k = p + weight(k) * at, a + weight(k), k + 1
                    at = argmin(g, p, a)
            ends.append(np.concatenate([g, p + weight(k) * at * end_points, [a, k]]))
            shares.append(share)
        mean = np.average(ends, axis=0, weights=shares)
        gradients, points, (total, t) = mean[:4], mean[4:8], mean[8:]
        w = argmin(gradients, points, total)
        found.append(w)
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "power", "shift", "end_points"),
    [(STEPS, 2.0, 3.0, False), (SAMPLED, 0.0, 1.0, False), (STEPS, 0.0, 1.0, True)],
    ids=["steps", "epochs", "end points"],
)
def test_one_sum_equals_the_two_published_sums(setting, power, shift, end_points):
    ours = models(
        "fast_fed_dual_avg",
        setting,
        client_lr=0.05,
        strong_convexity=0.3,
        weight_power=power,
        weight_shift=shift,
        options=(("end_points", end_points),),
    )
    published = fast_as_published(setting, 0.3, 20.0, lambda t: (t + shift) ** power, end_points)
    assert np.abs(np.diff(published, axis=0)).max() > 1e-2
    np.testing.assert_allclose(ours, published, rtol=0, atol=1e-12)


def into_l1_ball(v, radius):
    """Return the projection by bisection of the threshold."""
    low, high = 0.0, np.abs(v).max()
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.abs(soft(v, middle)).sum() > radius else (low, middle)
    return soft(v, high) if np.abs(v).sum() > radius else v


def staged_as_published(
    radius, factors, stage_rounds, setting=STEPS, project=None, largest=np.inf, num_rounds=8
):
    """Weights r K that stand still in a round, and centres at the server's points only.

    With ``project`` psi is a set, whose radius takes the place of lambda. Uploads above ``largest``
    are left out, and a round without uploads does not count.
    """
    mu, gamma, num_steps = 0.3, 20.0, 3
    w, stage, counted, found = START, -1, 0, []

    def read(gradients, points, r):
        """The minimiser without the ball, and then its projection on the ball around the centre."""
        total, strength = r * num_steps, SCALE * factors[stage]
        b = mu / 2 * total + gamma
        v = (mu / 2 * num_steps * points + gamma * centre - gradients) / b
        v = project(v, strength) if project else soft(v, strength * total / b)
        return centre + into_l1_ball(v - centre, radius * 2 ** (len(factors) - 1 - stage))

    for cohort in [*drawn(setting, num_rounds), []]:
        due = min(counted // stage_rounds, len(factors) - 1)
        if due > stage:
            stage, centre, points, gradients, r = due, w, np.zeros(4), np.zeros(4), 0
            w = read(gradients, points, r)
        found.append(w)
        ends, shares = [], []
        for member, share, batches in cohort:
            g, x = gradients, w
            for rows, real in batches:
                g = g + slope(x, member, rows, real)
                x = read(g, points + w, r + 1)
            moved = (mu / 2 * num_steps * w + gradients - g) / gamma
            if share > 0 and np.linalg.norm(moved) <= largest:
                ends.append(g)
                shares.append(share)
        if ends:
            gradients = np.average(ends, axis=0, weights=shares)
            points, r, counted = points + w, r + 1, counted + 1
            w = read(gradients, points, r)
    return np.array(found[1:])


@pytest.mark.parametrize("rounds", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("radius", [0.05, pytest.param(50.0, marks=pytest.mark.slow)])
def test_stages_restart_as_published(radius, rounds):
    options = (("penalty_factors", (4.0, 2.0, 1.0)), ("ball", l1_ball()))
    rates = {"client_lr": 0.05, "strong_convexity": 0.3, "radius": radius}
    ours = models("mc_fed_dual_avg", STEPS, options=options, stage_rounds=float(rounds), **rates)
    published = staged_as_published(radius, (4.0, 2.0, 1.0), rounds)
    np.testing.assert_allclose(ours, published, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("radius", [0.05, 0.4])
def test_where_psi_is_a_set_a_stage_starts_at_the_projection_of_its_centre(radius):
    """The start is outside of the set, and so is the centre of each stage in the next, smaller one.

    Cohorts come from a trace, uploads are lost, and some are beyond a bound; a round has none.
    """
    cohort = fcojax.from_trace([[0, 2, 3], [1, 4], [0, 1, 2, 3, 4], [2], [0]])
    setting = (fcojax.local_steps(3, 2), cohort, fcojax.dropout(0.4))
    ours = models(
        "mc_fed_dual_avg",
        (*setting[:2], uploads.chain(fcojax.norm_bound(0.16), setting[2])),
        num_rounds=12,
        mirror=euclidean(l1_ball()),
        options=(("penalty_factors", (16.0, 8.0, 4.0)), ("ball", l1_ball())),
        client_lr=0.05,
        strong_convexity=0.3,
        radius=radius,
        stage_rounds=2.0,
    )
    published = staged_as_published(
        radius, (16.0, 8.0, 4.0), 2, setting, into_l1_ball, 0.16, num_rounds=12
    )
    assert np.any(np.all(np.diff(published, axis=0) == 0, axis=1))
    np.testing.assert_allclose(ours, published, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_without_strong_convexity_it_is_federated_dual_averaging():
    ours = models("fast_fed_dual_avg", SAMPLED, client_lr=0.2, strong_convexity=0.0)
    plain = models("fed_dual_avg", SAMPLED, client_lr=0.2, server_lr=1.0)
    np.testing.assert_allclose(ours, plain, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_with_one_local_step_there_is_one_way_to_weigh_a_round():
    rates = {"client_lr": 0.2, "strong_convexity": 0.3}
    fast, staged = (models(f"{kind}_fed_dual_avg", ONE_STEP, **rates) for kind in ("fast", "mc"))
    np.testing.assert_allclose(fast, staged, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_identical_clients_do_as_one_machine_does():
    """R rounds of K steps equal R K rounds of one step."""
    only = fcojax.from_clients(quadratic_clients()[:1] * 3, [1.0, 2.0, 0.5])
    rates = {"client_lr": 0.2, "strong_convexity": 0.3, "data": only}
    several = models("fast_fed_dual_avg", (fcojax.local_steps(3),), 6, **rates)
    single = models("fast_fed_dual_avg", (fcojax.local_steps(1),), 18, **rates)
    np.testing.assert_allclose(several, single[2::3], rtol=0, atol=1e-12)


@functools.cache
def solution(tilt=0.0):
    """The minimiser of F + psi - tilt |w|^2 / 2, by proximal gradient."""
    curvature, target = (part.mean(axis=0) for part in client_means(quadratic_clients()))
    w = np.zeros(4)
    for _ in range(3000):
        w = soft(w - 0.5 * (curvature @ w - tilt * w - target), 0.5 * SCALE)
    return w


def last(name, num_steps, num_rounds, **rates):
    setting, data = (fcojax.local_steps(num_steps),), population(None)
    ends = models(name, setting, num_rounds, data=data, strong_convexity=0.4, **rates)[[-1]]
    return ends[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fast_fed_dual_avg", "mc_fed_dual_avg"])
def test_the_limit_is_the_optimum_and_the_error_falls_like_one_over_the_rounds(name):
    near, far = (
        np.linalg.norm(last(name, 4, rounds, client_lr=0.1) - solution()) for rounds in (3000, 300)
    )
    assert near < 2e-3
    assert far / near == pytest.approx(10, rel=0.15)


@pytest.mark.slow
def test_counting_end_points_moves_the_limit_to_where_it_is_said_to():
    ends = last("fast_fed_dual_avg", 4, 3000, client_lr=0.1, options=(("end_points", True),))
    predicted = solution(tilt=0.4 / (2 * 4))
    assert np.linalg.norm(predicted - solution()) > 1e-2
    assert np.linalg.norm(ends - predicted) < 5e-4


@pytest.mark.slow
def test_growing_weights_with_one_local_step_forget_the_start_fast():
    """1e-10 in 150 rounds, where equal weights are still 1e-3 away."""
    growing = {"client_lr": 2e-4, "weight_power": 2.0, "weight_shift": 40.0}
    found, equal = (
        np.linalg.norm(last("fast_fed_dual_avg", 1, 150, **rates) - solution())
        for rates in (growing, {"client_lr": 0.1})
    )
    assert found < 1e-10 and equal > 1e-3
