"""The theorem of Local SGD, its lemmas and the sharp limits, against runs of the engine."""

import functools
import itertools

import numpy as np
import pytest

import fcojax
from fcojax.theory import local_sgd as theory
from fcojax.theory.linear_models import ridge_regression
from tests.theory import instances
from tests.theory.runs import last_gaps, step_sizes, visited

pytestmark = pytest.mark.gate

# The problem, E, examples of a gradient (None: all), seeds, steps.
SHORT = [
    ("ridge", 1, 1, 16, 400),
    ("ridge", 5, 1, 16, 400),
    ("ridge", 20, 1, 16, 400),
    ("ridge", 5, None, 1, 400),
    ("ridge", 20, None, 1, 400),
    ("logistic", 5, 1, 16, 400),
]
LONG = [
    ("ridge", 20, 1, 50, 4000),
    ("ridge", 5, None, 1, 4000),
    ("logistic", 10, 1, 50, 3000),
]
RUNS = [*SHORT, *(pytest.param(*run, marks=pytest.mark.slow) for run in LONG)]
over_runs = pytest.mark.parametrize(
    ("name", "num_steps", "batch_size", "num_seeds", "total_steps"), RUNS
)


# Successive tests use one run; all runs together would not fit in memory.
@functools.lru_cache(maxsize=len(SHORT))
def bounded(name, num_steps, batch_size, num_seeds, total_steps):
    """Return the points of a run, its step sizes, and the theorem with its observed constants."""
    points = visited(name, num_steps, batch_size, num_seeds, total_steps)
    model, constants = instances.model(name), instances.constants(name)
    bound = theory.a_posteriori(model, constants, points, num_steps, batch_size)
    return points, step_sizes(constants, num_steps, total_steps), bound


def holds(sides):
    """Up to rounding errors, including those of points that should coincide."""
    assert sides.left.shape == sides.right.shape
    return (sides.left <= sides.right * (1 + 1e-12) + 1e-28).all()


def mean_over_seeds(sides):
    return theory.Sides(sides.left.mean(axis=0), sides.right.mean(axis=0))


@pytest.mark.slow
@over_runs
def test_the_lemmas_hold_along_runs(name, num_steps, batch_size, num_seeds, total_steps):
    """Two hold at every state of every seed, two in the mean, and exactly for full gradients."""
    points, sizes, bound = bounded(name, num_steps, batch_size, num_seeds, total_steps)
    model, constants = instances.model(name), instances.constants(name)
    assert sizes[0] <= 1 / (4 * constants.smoothness)
    assert (sizes[:-num_steps] <= 2 * sizes[num_steps:]).all()
    contraction = theory.contraction_lemma(model, constants, points, sizes)
    assert contraction.left.shape == (num_seeds, total_steps)
    assert holds(contraction)
    assert holds(theory.noise_lemma(model, points, bound.noise, batch_size))
    drift = mean_over_seeds(theory.drift_lemma(model, bound, points, sizes))
    assert holds(drift)
    # With one step per round, or just after a round, there is no drift.
    assert np.abs(drift.left[::num_steps]).max() < 1e-28
    assert num_steps == 1 or drift.left.max() > 1e-4
    assert holds(mean_over_seeds(theory.one_step(model, bound, points, sizes, batch_size)))


@pytest.mark.slow
@over_runs
def test_the_bound_is_above_the_measured_curve(name, num_steps, batch_size, num_seeds, total_steps):
    points, _, bound = bounded(name, num_steps, batch_size, num_seeds, total_steps)
    model, constants = instances.model(name), instances.constants(name)
    means = np.einsum("k,...ki->...i", model.weights, points)
    gaps = (model.objective(means) - constants.minimum).mean(axis=0)
    distances = np.sum((means - constants.optimum) ** 2, axis=-1).mean(axis=0)
    steps = np.arange(total_steps)
    assert (gaps <= bound.gap(steps)).all()
    assert (distances <= bound.distance(steps) * (1 + 1e-12)).all()
    assert distances[0] == pytest.approx(bound.start_distance, rel=1e-12)
    # The theorem bounds one by beta / 2 times the other.
    assert (bound.gap(steps) >= constants.smoothness / 2 * bound.distance(steps)).all()
    # The same bound with gamma + T - 1, as printed, is weaker.
    assert (bound.gap(steps[1:] - 1) > bound.gap(steps[1:])).all()


@pytest.mark.slow
def test_the_reference_run():
    """Figures of five full steps a round from an independent run."""
    _, _, ours = bounded("ridge", 5, None, 1, 4000)
    found = ours.second_moment, ours.step_error, ours.gap(4000)
    assert found == pytest.approx((17.3, 2.2e3, 7.5), rel=0.02)
    assert last_gaps("ridge", 5, None, 1, 4000) == pytest.approx(6.67e-7, rel=0.01)


def enumerated(model, points, step_size):
    """Return moments of the mean stochastic step over all draws of one example per client."""
    mean, choices = model.weights @ points, [range(len(b)) for b in model.targets]
    slopes = []
    for drawn in itertools.product(*choices):
        each = [
            (a[j] @ x - b[j]) * a[j] + model.ridge * x
            for a, b, j, x in zip(model.features, model.targets, drawn, points, strict=True)
        ]
        slopes.append(model.weights @ np.array(each))
    return mean - step_size * np.array(slopes), np.array(slopes)


def test_expectations_over_a_draw_are_exact():
    """Return the left sides of the noise and one-step lemmas, by enumeration of all draws."""
    rng = np.random.default_rng(4)
    features = [rng.standard_normal((m, 3)) for m in (4, 3, 5)]
    targets = [rng.standard_normal(m) for m in (4, 3, 5)]
    model, points = ridge_regression(features, targets, ridge=0.3), rng.standard_normal((3, 3))
    constants, step_size = model.constants(), 0.01
    bound = theory.a_posteriori(model, constants, points[None], 5)
    ends, slopes = enumerated(model, points, step_size)
    variance = np.mean(np.sum((slopes - slopes.mean(axis=0)) ** 2, axis=1))
    noise = theory.noise_lemma(model, points, bound.noise)
    assert noise.left == pytest.approx(variance, rel=1e-12)
    assert noise.right == pytest.approx(variance, rel=1e-12)  # these are all points
    distance = np.mean(np.sum((ends - constants.optimum) ** 2, axis=1))
    assert theory.one_step(model, bound, points, step_size).left == pytest.approx(distance)
    full = theory.one_step(model, bound, points, step_size, None).left
    moved = ends.mean(axis=0) - constants.optimum
    assert full == pytest.approx(moved @ moved)
    assert theory.contraction_lemma(model, constants, points, step_size).left == pytest.approx(full)


@pytest.mark.slow
def test_the_bound_follows_from_its_recursion():
    """nu / (gamma + t) satisfies the one-step inequality strictly, for any noise and start."""
    constants = instances.constants("ridge")
    for step_error, distance in itertools.product((0.01, 1.0, 100.0), (0.01, 1.0, 100.0)):
        homogeneous = constants._replace(heterogeneity=0.0)
        bound = theory.Bound(homogeneous, 5, step_error, 0.0, distance)
        sizes = step_sizes(constants, 5, 2000)
        worst = distance
        for t, size in enumerate(sizes):
            assert worst <= bound.distance(t) * (1 + 1e-12)
            assert constants.smoothness / 2 * worst <= bound.gap(t)
            worst = (1 - size * constants.strong_convexity) * worst + size**2 * step_error


def test_the_step_sizes_are_those_of_the_theorem():
    constants = instances.constants("ridge")
    assert theory.offset(constants, 5) == pytest.approx(34.8305479, abs=1e-6)
    assert theory.offset(constants, 50) == 50
    t = np.arange(100)
    expected = 2 / (constants.strong_convexity * (theory.offset(constants, 5) + t))
    np.testing.assert_allclose(step_sizes(constants, 5, 100), expected, rtol=1e-14)


def test_the_best_number_of_local_steps_needs_the_fewest_rounds():
    """Return the first round at which the bound is below a number, by trying all E."""
    constants, knee = instances.constants("ridge"), 8 * instances.constants("ridge").condition
    for noise, second_moment, distance in ((50.0, 2.0, 1.0), (1e4, 1.0, 1.0), (1.0, 0.05, 1e4)):
        bound = theory.Bound(constants, 1, noise, second_moment, distance)
        tries = np.arange(1.0, 400.0)
        # gap = c / (gamma + T), so T = c / eps up to a constant.
        rounds = [
            bound._replace(num_steps=e).gap(0) * theory.offset(constants, e) / e for e in tries
        ]
        best = bound.best_num_steps
        assert abs(tries[np.argmin(rounds)] - best) <= 1
        assert best > 2 and (best > knee) == (noise == 1e4)


def test_a_priori_moments_of_logistic_regression_hold_along_runs():
    num_steps = 5
    points, _, seen = bounded("logistic", num_steps, 1, 16, 400)
    model, constants = instances.model("logistic"), instances.constants("logistic")
    prior = theory.a_priori(model, constants, num_steps)
    longest = max(np.linalg.norm(a, axis=1).max() for a in model.features)
    assert np.linalg.norm(points, axis=-1).max() <= longest / model.ridge
    assert prior.second_moment == pytest.approx((2 * longest) ** 2, rel=1e-12)
    mean_squares = np.array([np.mean(np.sum(a**2, axis=1)) for a in model.features])
    # Derivatives are below 1, and well below it for short rows, as the ball is near zero.
    assert 0.99 < prior.noise / (model.weights**2 @ mean_squares) <= 1
    assert seen.noise <= prior.noise and seen.second_moment <= prior.second_moment
    assert prior.start_distance == seen.start_distance
    assert seen.gap(400) < prior.gap(400)
    assert theory.a_priori(model, constants, num_steps, None).noise == 0
    pairs = theory.a_priori(model, constants, num_steps, 2)
    assert pairs.noise == pytest.approx(prior.noise / 2)


def test_a_priori_moments_of_ridge_regression_hold_along_runs():
    """With small features and a dominating ridge the iterates cannot leave a ball."""
    model = instances.model("ridge")
    short = [0.3 * a for a in model.features]
    model = ridge_regression(short, model.targets, ridge=0.5)
    constants, data = model.constants(), instances.population("ridge")
    examples = data.examples | {"a": 0.3 * data.examples["a"]}
    data = fcojax.from_rows(examples, np.asarray(data.sizes), np.asarray(data.weights))
    points = visited("ridge", 5, 1, 16, 400, (constants, data))
    seen = theory.a_posteriori(model, constants, points, 5)
    prior = theory.a_priori(model, constants, 5)
    radius = max(
        (np.linalg.norm(a, axis=1) * np.abs(b)).max() / 0.5
        for a, b in zip(short, model.targets, strict=True)
    )
    assert 0.05 * radius < np.linalg.norm(points, axis=-1).max() <= radius
    largest_slope = max(
        np.max(np.sum(a**2, axis=1) * radius + np.linalg.norm(a, axis=1) * np.abs(b))
        for a, b in zip(short, model.targets, strict=True)
    )
    assert prior.second_moment == pytest.approx((largest_slope + 0.5 * radius) ** 2, rel=1e-12)
    assert seen.noise <= prior.noise and seen.second_moment <= prior.second_moment


def lyapunov_limit(model, constants, batch_size=1):
    """Return tr(H V) / 2 with V from the Lyapunov equation as one linear system."""
    c, dim = 2 / constants.strong_convexity, model.dim
    hessian = np.tensordot(model.weights, model.hessians(constants.optimum), axes=1)
    right = np.zeros((dim, dim))
    for p, a, b in zip(model.weights, model.features, model.targets, strict=True):
        each = model.link.slope(a @ constants.optimum, b)[:, None] * a
        right += p**2 * c**2 * np.cov(each.T, bias=True) / batch_size
    drift = c * hessian - np.eye(dim) / 2
    system = np.kron(drift, np.eye(dim)) + np.kron(np.eye(dim), drift)
    return np.trace(hessian @ np.linalg.solve(system, right.ravel()).reshape(dim, dim)) / 2


@pytest.mark.parametrize("name", ["ridge", "logistic"])
def test_the_stochastic_limit_solves_its_lyapunov_equation(name):
    model, constants = instances.model(name), instances.constants(name)
    limit = theory.noise_limit(model, constants)
    assert limit == pytest.approx(lyapunov_limit(model, constants), rel=1e-12)
    assert theory.noise_limit(model, constants, 4) == pytest.approx(limit / 4, rel=1e-12)
    if name == "ridge":
        assert limit == pytest.approx(3.6464, abs=5e-5)  # computed independently of this library


@functools.cache
def expected_gaps(num_steps, total_steps):
    """Return E f(x_t) - f* after every single-example step on the ridge problem, without sampling.

    In homogeneous coordinates (x, 1) a step on one example is linear, so the second moments of all
    pairs of clients follow a linear recursion; only pairs of the same client share an example.
    """
    model, constants = instances.model("ridge"), instances.constants("ridge")
    num_clients, dim, p = len(model.weights), model.dim, model.weights
    slopes = []
    for a, b in zip(model.features, model.targets, strict=True):
        each = np.zeros((len(b), dim + 1, dim + 1))
        each[:, :dim, :dim] = a[:, :, None] * a[:, None] + model.ridge * np.eye(dim)
        each[:, :dim, dim] = -a * b[:, None]
        slopes.append(each)
    origin = np.eye(dim + 1)[dim]
    moments = np.tile(np.outer(origin, origin), (num_clients, num_clients, 1, 1))
    away = np.concatenate([np.eye(dim), -constants.optimum[:, None]], axis=1)
    hessian = np.tensordot(p, model.hessians(constants.optimum), axes=1)
    gaps = []
    for t, size in enumerate(step_sizes(constants, num_steps, total_steps)):
        maps = [np.eye(dim + 1) - size * each for each in slopes]
        means = np.stack([each.mean(axis=0) for each in maps])
        own = [
            (each @ moments[k, k] @ each.swapaxes(1, 2)).mean(axis=0) for k, each in enumerate(maps)
        ]
        moments = means[:, None] @ moments @ means[None].swapaxes(2, 3)
        moments[range(num_clients), range(num_clients)] = own
        mean = np.einsum("k,l,klij->ij", p, p, moments)
        if (t + 1) % num_steps == 0:
            moments = np.tile(mean, (num_clients, num_clients, 1, 1))
        gaps.append(np.sum(hessian * (away @ mean @ away.T)) / 2)
    return np.array(gaps)


@pytest.mark.parametrize("num_steps", [1, 5, 20])
def test_expected_gaps_tend_to_their_limit_whatever_the_local_steps(num_steps):
    """The distance of (gamma + T) gap from its limit falls as 1 / T, so two values give it."""
    constants = instances.constants("ridge")
    totals, gamma = np.array([1000, 2000]), theory.offset(constants, num_steps)
    near, far = (gamma + totals) * expected_gaps(num_steps, 2000)[totals - 1]
    limit = theory.noise_limit(instances.model("ridge"), constants)
    assert abs(far - limit) < 0.6 * abs(near - limit) < 0.01 * limit
    assert 2 * far - near == pytest.approx(limit, rel=1.5e-3)


@pytest.mark.parametrize(
    ("num_steps", "num_seeds", "total_steps"),
    [(5, 400, 500), pytest.param(20, 4000, 500, marks=pytest.mark.slow)],
)
def test_measured_gaps_equal_their_expectation(num_steps, num_seeds, total_steps):
    gaps = last_gaps("ridge", num_steps, 1, num_seeds, total_steps)
    expected = expected_gaps(num_steps, total_steps)[-1]
    error = gaps.std() / num_seeds**0.5
    assert error < 0.05 * expected
    assert abs(gaps.mean() - expected) < 3 * error


@pytest.mark.slow
def test_gaps_of_logistic_regression_tend_to_their_limit():
    num_steps, constants = 5, instances.constants("logistic")
    scale = theory.offset(constants, num_steps) + 2000
    scaled = scale * last_gaps("logistic", num_steps, 1, 2000, 2000)
    limit = theory.noise_limit(instances.model("logistic"), constants)
    error = scaled.std() / 2000**0.5
    assert error < 0.02 * limit
    assert abs(scaled.mean() - limit) < 3 * error


@pytest.mark.parametrize(("num_steps", "expected"), [(5, 10.8522), (20, 244.852)])
def test_full_gradients_tend_to_their_limit(num_steps, expected):
    model, constants = instances.model("ridge"), instances.constants("ridge")
    limit = theory.drift_limit(model, constants, num_steps)
    assert limit == pytest.approx(expected, rel=1e-5)  # computed independently of this library
    total_steps = 40_000
    [gap] = last_gaps("ridge", num_steps, None, 1, total_steps)
    scaled = (theory.offset(constants, num_steps) + total_steps) ** 2 * gap
    assert scaled == pytest.approx(limit, rel=1e-3)
    assert theory.drift_limit(model, constants, 1) == 0


def test_messages_are_an_upload_and_a_download_a_round():
    assert [theory.num_messages(100, e) for e in (1, 5, 20, 100)] == [200, 40, 10, 2]
    with pytest.raises(ValueError, match="total_steps is 10"):
        theory.num_messages(10, 4)
