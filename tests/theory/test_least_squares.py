"""FedGD on least squares: the closed form against runs, exact arithmetic and other closed forms."""

import decimal
import functools
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.algorithms import fed_gd
from fcojax.grid import product
from fcojax.theory import least_squares

pytestmark = pytest.mark.gate

KEY = jax.random.key(0)
SIZES, DIM = (12, 20, 9, 15), 6
STEPS = (0.5, 1.5)  # over the largest curvature


@functools.cache
def instance():
    """Return heterogeneous clients, each with its own truth and scale."""
    rng = np.random.default_rng(0)
    features = [rng.standard_normal((m, DIM)) * (1 + 0.5 * k) for k, m in enumerate(SIZES)]
    targets = [a @ rng.standard_normal(DIM) + 0.1 * rng.standard_normal(len(a)) for a in features]
    return features, targets


@functools.cache
def factored(reading="sum", ridge=0.0):
    return least_squares.least_squares_clients(*instance(), reading=reading, ridge=ridge)


def direct(step_size, num_steps):
    """Return (M, C) of clients whose losses are sums, by repeated multiplication."""
    matrix, offset = np.zeros((DIM, DIM)), np.zeros(DIM)
    for a, b in zip(*instance(), strict=True):
        once = np.eye(DIM) - step_size * a.T @ a
        for e in range(num_steps):
            offset += step_size * np.linalg.matrix_power(once, e) @ a.T @ b / len(SIZES)
        matrix += np.linalg.matrix_power(once, num_steps) / len(SIZES)
    return matrix, offset


def relative(x, reference):
    return np.linalg.norm(x - reference) / np.linalg.norm(reference)


# The engine averages over a client's examples; the factor ``count`` makes it a sum.
def loss(x, rows):
    squares = (rows["a"] @ x - rows["b"]) ** 2
    return rows["count"] * squares / 2 + rows["ridge"] / 2 * jnp.sum(x**2)


fed_gd_here = fed_gd(loss)


def whole_model(hparams, params, context):
    return {"model": params}


@functools.cache
def population(reading, ridge):
    clients = [
        {
            "a": a,
            "b": b,
            "count": np.full(len(b), float(len(b) if reading == "sum" else 1)),
            "ridge": np.full(len(b), ridge),
        }
        for a, b in zip(*instance(), strict=True)
    ]
    return fcojax.from_clients(clients, None if reading == "sum" else "examples")


@functools.cache
def runs(num_steps, reading="sum", ridge=0.0):
    """Return the models of a hundred rounds for both step sizes, [step sizes, rounds + 1, dim]."""
    rates = [step / factored(reading, ridge).smoothness for step in STEPS]
    grid, data = product(fed_gd.Hparams, client_lr=rates), population(reading, ridge)
    given = fed_gd_here, grid, jnp.zeros(DIM), data, KEY[None], fcojax.local_steps(num_steps)
    _, history = fcojax.sweep(*given, num_rounds=100, observe=whole_model)
    return rates, np.pad(history["model"][:, 0], ((0, 0), (1, 0), (0, 0)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_steps", "reading", "ridge"),
    [
        *((num_steps, "sum", 0.0) for num_steps in (1, 2, 5, 20, 100)),
        (5, "mean", 0.0),
        (5, "mean", 0.5),
    ],
)
def test_a_hundred_rounds_equal_the_closed_form(num_steps, reading, ridge):
    for rate, models in zip(*runs(num_steps, reading, ridge), strict=True):
        exact = least_squares.round_map(factored(reading, ridge), rate, num_steps)
        expected = [exact.after(np.zeros(DIM), num_rounds) for num_rounds in range(101)]
        assert np.abs(np.diff(models[:5], axis=0)).max(axis=1).min() > 1e-4
        np.testing.assert_allclose(models, expected, rtol=0, atol=1e-12)


def test_errors_of_successive_rounds_shrink_by_the_spectral_radius():
    for rate, models, closest in zip(*runs(1), (2e-3, 2e-7), strict=True):
        exact = least_squares.round_map(factored(), rate, 1)
        errors = np.linalg.norm(models - exact.fixed_point, axis=1)
        assert (errors[1:] <= exact.spectral_radius * errors[:-1] + 1e-15).all()
        # Power iteration: the ratios increase to the largest eigenvalue, more and more slowly.
        missing = exact.spectral_radius - errors[1:] / errors[:-1]
        assert (np.diff(missing[[0, 20, 50, 99]]) < 0).all()
        assert 0 < missing[99] < closest


@pytest.mark.parametrize("num_steps", [1, 5, 20])
@pytest.mark.parametrize("step", STEPS)
def test_four_forms_of_the_fixed_point_agree(step, num_steps):
    step_size = step / factored().smoothness
    largest = max(np.linalg.norm(a, 2) ** 2 for a in instance()[0])
    assert factored().smoothness == pytest.approx(largest, rel=1e-13)
    exact = least_squares.round_map(factored(), step_size, num_steps)
    matrix, offset = direct(step_size, num_steps)
    np.testing.assert_allclose(exact.matrix, matrix, rtol=0, atol=1e-14)
    np.testing.assert_allclose(exact.offset, offset, rtol=0, atol=1e-13)
    assert exact.spectral_radius == pytest.approx(np.linalg.norm(matrix, 2), rel=1e-13)
    assert relative(exact.fixed_point, np.linalg.solve(np.eye(DIM) - matrix, offset)) < 1e-13
    hessian, slope = np.zeros((DIM, DIM)), np.zeros(DIM)
    rows, right = [], []
    for a, b in zip(*instance(), strict=True):
        once, beside = np.eye(DIM) - step_size * a.T @ a, np.eye(len(a)) - step_size * a @ a.T
        total = sum(np.linalg.matrix_power(once, e) for e in range(num_steps))
        weights = sum(np.linalg.matrix_power(beside, e) for e in range(num_steps))
        hessian += a.T @ a @ total
        slope += total @ a.T @ b
        root = np.linalg.cholesky(weights)
        rows.append(root.T @ a)
        right.append(root.T @ b)
    assert relative(exact.fixed_point, np.linalg.solve(hessian, slope)) < 1e-13
    weighted = np.linalg.lstsq(np.concatenate(rows), np.concatenate(right))[0]
    assert relative(exact.fixed_point, weighted) < 1e-13


def test_the_two_readings_share_a_minimiser_but_no_limit():
    a, b = map(np.concatenate, instance())
    pooled, limits = np.linalg.lstsq(a, b)[0], []
    for reading in ("sum", "mean"):
        clients = factored(reading)
        assert relative(least_squares.minimiser(clients), pooled) < 1e-13
        limits.append(least_squares.round_map(clients, 0.5 / clients.smoothness, 5).fixed_point)
        assert relative(limits[-1], pooled) > 0.05
    assert relative(*limits) > 0.05


def test_one_local_step_has_no_bias_and_more_steps_have_one():
    reference = least_squares.minimiser(factored())
    for step in STEPS:
        biases = [
            relative(
                least_squares.round_map(
                    factored(), step / factored().smoothness, num_steps
                ).fixed_point,
                reference,
            )
            for num_steps in (1, 2, 5, 20, 100)
        ]
        assert biases[0] < 1e-13
        assert biases[1] > 0.05 and (np.diff(biases) > 0).all()


def rotated(seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((DIM, DIM)))[0]


def test_equal_hessians_shared_minimisers_and_single_clients_have_no_bias():
    rng = np.random.default_rng(1)
    hessians = [(q * rng.uniform(0.5, 2, DIM)) @ q.T for q in map(rotated, range(3))]
    minimisers = rng.standard_normal((3, DIM))
    cases = {
        "different": (hessians, minimisers),
        "equal Hessians": ([hessians[0]] * 3, minimisers),
        "shared minimiser": (hessians, minimisers[:1].repeat(3, axis=0)),
        "one client": (hessians[:1], minimisers[:1]),
    }
    biases = {}
    for name, (curved, at) in cases.items():
        slopes = [h @ x for h, x in zip(curved, at, strict=True)]
        clients = least_squares.quadratic_clients(curved, slopes)
        limit = least_squares.round_map(clients, 0.4, 7).fixed_point
        expected = np.linalg.solve(np.sum(curved, axis=0), np.sum(slopes, axis=0))
        assert relative(least_squares.minimiser(clients), expected) < 1e-13
        biases[name] = relative(limit, expected)
    assert biases.pop("different") > 0.05
    assert max(biases.values()) < 1e-13


def test_many_steps_lead_to_the_mean_of_the_local_minimisers():
    alone = [np.linalg.lstsq(a, b)[0] for a, b in zip(*instance(), strict=True)]
    for reading, weights in (("sum", None), ("mean", SIZES)):
        clients, expected = factored(reading), np.average(alone, axis=0, weights=weights)
        assert relative(least_squares.many_steps_limit(clients), expected) < 1e-13
        limit = least_squares.round_map(clients, 1 / clients.smoothness, 10**7).fixed_point
        assert relative(limit, expected) < 1e-13


def test_many_steps_of_clients_with_few_examples():
    """With three examples in six dimensions each the projectors determine the limit."""
    features, targets = [a[:3] for a in instance()[0]], [b[:3] for b in instance()[1]]
    inverses = [np.linalg.pinv(a) for a in features]
    projectors = sum(inverse @ a for inverse, a in zip(inverses, features, strict=True))
    slopes_sum = sum(inverse @ b for inverse, b in zip(inverses, targets, strict=True))
    clients = least_squares.least_squares_clients(features, targets, reading="sum")
    expected = np.linalg.solve(projectors, slopes_sum)
    assert relative(least_squares.many_steps_limit(clients), expected) < 1e-12
    limit = least_squares.round_map(clients, 1 / clients.smoothness, 10**7).fixed_point
    assert relative(limit, expected) < 1e-12


def test_directions_in_which_nobody_curves_stay_as_they_were():
    features = [a[:, :DIM] * (np.arange(DIM) < 4) for a in instance()[0]]
    clients = least_squares.least_squares_clients(features, instance()[1], reading="mean")
    exact = least_squares.round_map(clients, 1 / clients.smoothness, 3)
    end = exact.after(np.ones(DIM), 10**6)
    np.testing.assert_allclose(end[4:], 1, rtol=1e-8)
    np.testing.assert_allclose(end[:4], exact.fixed_point[:4], rtol=1e-9)
    assert exact.spectral_radius == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize("num_steps", [2, 5, 10])
def test_the_leading_term_of_the_bias(num_steps):
    """The expression is exact to first order: its relative error is proportional to s."""
    reference, errors = least_squares.minimiser(factored()), []
    for step in (1e-2, 1e-3, 1e-4):
        step_size = step / factored().smoothness
        limit = least_squares.round_map(factored(), step_size, num_steps).fixed_point
        expected = least_squares.first_order_bias(factored(), step_size, num_steps)
        errors.append(relative(expected, limit - reference))
    ratios = np.divide(errors[:-1], errors[1:])
    assert errors[0] < 0.005 * num_steps
    np.testing.assert_allclose(ratios, 10, rtol=0.1)


def test_powers_equal_exact_arithmetic():
    """On both sides of z = 1 and beyond 2, odd and even, and as far as E = 1e8."""
    for z in (1e-9, 3e-8, 0.3, 0.4999999, 0.5, 0.97, 1.0, 1.03, 1.5, 1.9999999, 2.0, 2.0000001):
        for num_times in (1, 2, 3, 10, 101, 10**4 + 1, 10**8):
            with decimal.localcontext(prec=60):
                power = (1 - Decimal(z)) ** num_times
                exact = [float(x) for x in (power, 1 - power, (1 - power) / Decimal(z))]
            # The exponent E log|1 - z| has a rounding error, which the power inherits.
            exponent = num_times * abs(np.log(max(abs(1 - z), 1e-16)))
            ours = least_squares.powers(z, num_times)
            np.testing.assert_allclose(ours, exact, rtol=1e-15 * (1 + exponent), atol=1e-300)


def test_powers_at_the_edges():
    assert least_squares.powers(0.0, 10**8) == (1.0, 0.0, 1e8)
    assert least_squares.powers(1e-300, 10**8) == (1.0, 1e8 * 1e-300, 1e8)
    assert least_squares.powers(0.7, 0) == (1.0, 0.0, 0.0)
    spread = least_squares.powers(np.linspace(0, 2, 401), 10**8)
    assert all(np.isfinite(part).all() for part in spread)


def exactly(x):
    return np.vectorize(Decimal, otypes=[object])(x)


def solve_exactly(matrix, right):
    """Gaussian elimination on arrays of ``Decimal``."""
    table = np.concatenate([matrix, right[:, None]], axis=1)
    size = len(right)
    for i in range(size):
        pivot = i + int(np.argmax(np.abs(table[i:, i])))
        table[[i, pivot]] = table[[pivot, i]]
        table[i] = table[i] / table[i, i]
        for other in range(size):
            if other != i:
                table[other] = table[other] - table[other, i] * table[i]
    return table[:, -1]


@pytest.mark.parametrize("num_steps", [1, 10, 10**4, 10**8])
def test_the_fixed_point_of_ill_conditioned_clients_is_accurate(num_steps):
    """Condition numbers of 1e6, which normal equations square, against 60 digits."""
    rng, dim = np.random.default_rng(3), 5
    features = [
        np.linalg.qr(rng.standard_normal((8, dim)))[0]
        * np.logspace(0, -6, dim)
        @ np.linalg.qr(rng.standard_normal((dim, dim)))[0].T
        for _ in range(3)
    ]
    targets = [rng.standard_normal(8) for _ in features]
    clients = least_squares.least_squares_clients(features, targets, reading="sum")
    step_size = 1 / clients.smoothness
    with decimal.localcontext(prec=60):
        hessian, slope = exactly(np.zeros((dim, dim))), exactly(np.zeros(dim))
        for a, b in zip(map(exactly, features), map(exactly, targets), strict=True):
            once = exactly(np.eye(dim)) - Decimal(step_size) * a.T.dot(a)
            # S_{2e} = S_e + G^e S_e and S_{e+1} = S_e + G^e, along the binary digits of E.
            power, total = exactly(np.eye(dim)), exactly(np.zeros((dim, dim)))
            for digit in f"{num_steps:b}":
                power, total = power.dot(power), total + power.dot(total)
                if digit == "1":
                    power, total = power.dot(once), total + power
            hessian = hessian + a.T.dot(a).dot(total)
            slope = slope + total.dot(a.T.dot(b))
        expected = solve_exactly(hessian, slope).astype(float)
    ours = least_squares.round_map(clients, step_size, num_steps).fixed_point
    assert relative(ours, expected) < (1e-13 if num_steps <= 10**4 else 5e-12)


def test_beyond_two_over_the_smoothness_the_map_is_still_right():
    """With an even number of overshooting steps the round map holds, convergent or not."""
    step_size = 2.05 / factored().smoothness
    exact = least_squares.round_map(factored(), step_size, 4)
    matrix, offset = direct(step_size, 4)
    np.testing.assert_allclose(exact.matrix, matrix, rtol=0, atol=1e-13)
    assert relative(exact.fixed_point, np.linalg.solve(np.eye(DIM) - matrix, offset)) < 1e-12
