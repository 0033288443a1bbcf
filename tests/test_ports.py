"""Methods of docs/ports: each obeys the laws of `fcojax check` and its source's identities."""

import importlib.util
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.linear_model import Lasso

import fcojax
from fcojax import algorithms, check, uploads
from fcojax.transforms import l1
from tests.support.composite_oracles import soft

PORTS = pathlib.Path(__file__).parent.parent / "docs" / "ports"
KEY, DIM, NUM_CLIENTS = jax.random.key(0), 3, 4


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def port(name):
    return getattr(loaded(PORTS / f"{name}.py"), name)


def loss(w, rows):
    return 0.5 * (rows["x"] @ w - rows["y"]) ** 2


def least_squares():
    """Return clients, their Hessians, and their linear terms."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((NUM_CLIENTS, 6, DIM))
    y = rng.standard_normal((NUM_CLIENTS, 6))
    data = fcojax.from_clients([{"x": a, "y": b} for a, b in zip(x, y, strict=True)])
    return data, np.swapaxes(x, 1, 2) @ x / 6, np.einsum("mnd,mn->md", x, y) / 6


@pytest.mark.slow
@pytest.mark.parametrize("name", [path.stem for path in sorted(PORTS.glob("*.py"))])
def test_a_port_obeys_the_laws_and_is_at_most_seventy_lines(name):
    factory = port(name)
    if name == "tamuna":  # it has no default for the number of clients, and laws have up to eight
        made = {"num_clients": 8, "num_owners": 2}
        factory = algorithms.takes(factory.Hparams)(
            lambda loss: port(name)(loss, **made)._replace(facts=algorithms.Facts())
        )
    subject = check.subject_of(factory)
    failing = {law for law, holds in check.LAWS.items() if holds(subject).holds is False}
    # The owners of TAMUNA are drawn by the clients' indices.
    by_index = {"order", "identical clients", "weights", "differences"}
    assert failing == (by_index if name == "tamuna" else set())
    text = (PORTS / f"{name}.py").read_text("utf-8").split('"""', 2)[2]
    code = [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(code) <= 70


def ran(algorithm, hparams, data, cohort, num_steps, num_rounds, *losses):
    plan = fcojax.Plan(fcojax.local_steps(num_steps), cohort, *losses)
    given = algorithm, hparams, jnp.zeros(DIM), data, KEY, plan
    return fcojax.run(*given, num_rounds=num_rounds, eval_every=num_rounds)


def test_s_dane_with_exact_solutions_is_its_recursion_on_quadratics():
    data, hessians, terms = least_squares()
    algorithm, strength, convexity = port("s_dane"), 2.0, 0.05
    algorithm = algorithm(loss)
    hparams = algorithm.hparams_type(0.3, 1 / strength, convexity, accuracy=1e-13)
    w, _ = ran(algorithm, hparams, data, fcojax.everyone(), 100, 10)
    centre = np.zeros(DIM)
    for _ in range(5):
        slope = np.mean(hessians @ centre - terms, axis=0)
        pulled = hessians + strength * np.eye(DIM)
        x = centre - np.linalg.solve(pulled, np.tile(slope[:, None], (NUM_CLIENTS, 1, 1)))[..., 0]
        slope = np.mean(np.einsum("mij,mj->mi", hessians, x) - terms, axis=0)
        centre = (convexity * x.mean(0) + strength * centre - slope) / (convexity + strength)
    assert np.allclose(w, x.mean(0), rtol=0, atol=1e-13)


def test_de_com_fl_sends_one_number_a_direction_and_descends():
    data, hessians, terms = least_squares()
    algorithm = port("de_com_fl")(loss, num_directions=2)
    hparams = algorithm.hparams_type(client_lr=0.1, smoothing=1e-6)
    w, history = ran(algorithm, hparams, data, fcojax.everyone(), 1, 400)
    assert history["bytes_up"].tolist() == [400 * NUM_CLIENTS * 2 * 8]
    assert history["bytes_down"].tolist() == [400 * NUM_CLIENTS * (2 * 8 + 8)]
    assert np.allclose(w, np.linalg.solve(hessians.mean(0), terms.mean(0)), rtol=0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["s_dane", "de_com_fl", "fed_mls", "averaged_descent"])
def test_the_page_gives_the_verdicts_of_the_figures(name):
    script = loaded(PORTS.parent / "port_figures.py")
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        figure, claims = script.FIGURES[name]()
    script.plt.close(figure)
    require_on_page(claims)


def require_on_page(claims):
    lines = (PORTS / "index.md").read_text("utf-8").splitlines()
    for claim in claims:
        (line,) = [line for line in lines if line.startswith(f"| {claim.name} |")]
        assert line.endswith("| yes |" if claim.holds else "| **no** |")
        assert f"{claim.needed:g} |" in line


def ran_fed_mls(loss, rows, sizes, client_lr, num_rounds):
    """Return the models after each round with t local steps in round t."""
    algorithm, data = port("fed_mls")(loss), fcojax.from_rows(rows, sizes)
    hparams = algorithm.hparams_type(client_lr=client_lr)
    work = fcojax.local_steps(num_rounds, by_round=list(range(1, num_rounds + 1)))
    observe = lambda hparams, w, context: {"model": w}  # noqa: E731
    given = algorithm, hparams, jnp.zeros(DIM), data, KEY, work
    return np.asarray(fcojax.run(*given, num_rounds=num_rounds, observe=observe)[1]["model"])


def absolute(w, rows):
    return jnp.abs(rows["x"] @ w - rows["y"])


def hinge(w, rows):
    return jnp.maximum(0, 1 - rows["y"] * (rows["x"] @ w))


def test_fed_mls_is_the_recursion_of_its_source():
    rng, n, size, lambda_0, rounds = np.random.default_rng(0), 3, 4, 2.0, 4
    x, y = rng.standard_normal((n, size, DIM)), rng.standard_normal((n, size))
    rows = {"x": x.reshape(-1, DIM), "y": y.ravel()}
    found = ran_fed_mls(absolute, rows, [size] * n, lambda_0 / (4 * n), rounds)
    w, y_mean, z = np.zeros((3, DIM))
    w_i, y_i, z_i = np.zeros((3, n, DIM))
    for t in range(1, rounds + 1):
        c, c_next, strength = 2 / (t + 1), 2 / (t + 2), lambda_0 / t
        beta, beta_next = 4 / (strength * t), 4 / (strength * (t + 1))
        v = z_i - (y_i - y_mean) / (beta * strength)
        u, u_mean = z_i, z_i
        for k in range(1, t + 1):
            left = np.einsum("nsd,nd->ns", x, u) - y
            slope = np.einsum("nsd,ns->nd", x, np.sign(left)) / size
            u = u - 2 / (k + 2) * (slope / (n * beta) + u - v)
            theta = (2 * k + 2) / (k**2 + 3 * k)
            u_mean = (1 - theta) * u_mean + theta * u
        z_i, w_i = u, (1 - c) * w_i + c * u_mean
        y_i = (1 - c_next) * w_i + c_next * z_i
        w = (1 - c) * w + c * z
        y_mean = (1 - c_next) * w + c_next * z
        z = z - (y_mean - y_i.mean(axis=0)) / (beta_next * strength)
        np.testing.assert_allclose(found[t - 1], w, rtol=0, atol=1e-13)
    assert np.abs(w).max() > 0.01


@pytest.mark.slow
@pytest.mark.gate
@pytest.mark.parametrize("loss", [absolute, hinge])
def test_the_gap_of_fed_mls_to_a_linear_program_falls_as_one_over_the_rounds(loss):
    """With t local steps in round t, its theorem; a slope of -1 up to a margin of a quarter."""
    rng, sizes = np.random.default_rng(1), [12, 8, 4]
    x, y = rng.standard_normal((24, DIM)), rng.standard_normal(24)
    weights = np.repeat([1 / (3 * size) for size in sizes], sizes)  # of rows, in the mean of means
    if loss is absolute:  # s >= |x w - y|
        left, right = np.vstack([x, -x]), np.concatenate([y, -y])
        bound = (None, None)
    else:  # s >= 0 and s >= 1 - y x w
        y = np.where(rng.random(24) < 0.2, -1, 1) * np.sign(x.sum(axis=1))
        left, right, bound = -y[:, None] * x, -np.ones(24), (0, None)
    slack = -np.tile(np.eye(24), (len(left) // 24, 1))
    best = linprog(
        np.concatenate([np.zeros(DIM), weights]),
        np.hstack([left, slack]),
        right,
        bounds=[(None, None)] * DIM + [bound] * 24,
    ).fun
    models = ran_fed_mls(loss, {"x": x, "y": y}, sizes, 0.3, 128)
    values = jax.vmap(lambda w: weights @ loss(w, {"x": x, "y": y}))(models)
    gaps = np.asarray(values) - best
    assert (gaps > -1e-12).all()
    times = np.arange(1, 129)
    assert (times * gaps)[32:].max() <= 1.25 * (times * gaps)[:32].max()
    assert gaps[127] <= 1.25 / 16 * gaps[7]


def descended(data, strength, num_sweeps, num_rounds):
    algorithm = port("averaged_descent")(loss, l1())
    hparams = algorithm.hparams_type(penalty_scale=strength)
    return ran(algorithm, hparams, data, fcojax.everyone(), num_sweeps, num_rounds)[0]


def test_averaged_descent_ends_at_the_mean_of_soft_thresholds_on_orthogonal_designs():
    rng, sizes = np.random.default_rng(0), [6, 4]
    x = [np.linalg.qr(rng.standard_normal((n, DIM)))[0] * np.sqrt(n) for n in sizes]
    y = [2 * rng.standard_normal(n) for n in sizes]
    rows = {"x": np.concatenate(x), "y": np.concatenate(y)}
    data = fcojax.from_rows(rows, sizes, "examples")
    z = np.array([a.T @ b / len(b) for a, b in zip(x, y, strict=True)])
    limit = np.average(soft(z, 0.4), axis=0, weights=sizes)
    for num_sweeps, num_rounds in ((1, 1), (3, 2)):
        w = descended(data, 0.4, num_sweeps, num_rounds)
        np.testing.assert_allclose(w, limit, rtol=0, atol=1e-14)
    pooled = soft(np.average(z, axis=0, weights=sizes), 0.4)
    w = descended(fcojax.from_rows(rows, [10]), 0.4, 1, 1)  # one site with all rows is exact
    np.testing.assert_allclose(w, pooled, rtol=0, atol=1e-14)
    assert np.abs(limit - pooled).max() > 0.05
    assert {*np.flatnonzero(pooled)} < {*np.flatnonzero(limit)}


def test_averaged_descent_with_one_site_is_the_lasso_of_scikit_learn():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((8, DIM)), rng.standard_normal(8)
    x[:, 1] = 0  # a feature that the site does not have
    expected = Lasso(0.1, fit_intercept=False, tol=1e-14).fit(x, y).coef_
    w = descended(fcojax.from_rows({"x": x, "y": y}, [8]), 0.1, 60, 1)
    np.testing.assert_allclose(w, expected, rtol=0, atol=1e-10)
    assert np.count_nonzero(expected)


def local_ends(x, hessians, terms, rate, controls: Any = 0.0, seen=lambda x: x):
    """Return the clients' points after three gradient steps, less their controls."""
    for _ in range(3):
        slopes = np.einsum("mij,mj->mi", hessians, seen(x)) - terms
        x = x - rate * (slopes - controls)
    return x


def test_fed_exp_is_the_recursion_of_its_source():
    data, hessians, terms = least_squares()
    algorithm = port("fed_exp")(loss, l1())
    hparams = algorithm.hparams_type(client_lr=0.1, epsilon=1e-3, penalty_scale=0.05)
    found, _ = ran(algorithm, hparams, data, fcojax.everyone(), 3, 4)
    w = before = np.zeros(DIM)
    for _ in range(4):
        moves = local_ends(np.tile(w, (NUM_CLIENTS, 1)), hessians, terms, 0.1) - w
        mean = moves.mean(axis=0)
        rate = max(1, (moves**2).sum(axis=1).mean() / (2 * (mean @ mean + 1e-3)))
        before, w = w, soft(w + rate * mean, rate * 0.3 * 0.05)
    assert rate > 1
    np.testing.assert_allclose(found, (w + before) / 2, rtol=0, atol=1e-13)


def test_fed_fw_is_the_recursion_of_its_source():
    data, hessians, terms = least_squares()
    algorithm = port("fed_fw")(loss)
    hparams = algorithm.hparams_type(pull_scale=0.5, penalty_scale=0.7)
    found, _ = ran(algorithm, hparams, data, fcojax.everyone(), 1, 9)
    x, points = np.zeros(DIM), np.zeros((NUM_CLIENTS, DIM))
    for t in range(1, 10):
        g = np.einsum("mij,mj->mi", hessians, points) - terms
        g = g + 0.5 * np.sqrt(t + 1) * (points - x)
        largest = np.abs(g) == np.abs(g).max(axis=1, keepdims=True)
        vertices = -0.7 * np.where(largest, np.sign(g), 0)
        points = points + 2 / (t + 1) * (vertices - points)
        x = x + 2 / (t + 1) * (vertices.mean(axis=0) - x)
    np.testing.assert_allclose(found, x, rtol=0, atol=1e-13)
    np.testing.assert_allclose(points.mean(axis=0), x, rtol=0, atol=1e-13)


@pytest.mark.parametrize("place", ["upload", "gradient", "broadcast"])
def test_fed_com_loc_is_the_loop_of_its_source(place):
    def largest(x):
        return np.where(np.abs(x) >= np.sort(np.abs(x), axis=-1)[..., -2:-1], x, 0)

    def through(x, here):
        return largest(x) if here == place else x

    data, hessians, terms = least_squares()
    algorithm = port("fed_com_loc")(loss, compressor=uploads.top_k(2), compresses=place)
    hparams = algorithm.hparams_type(client_lr=0.1)
    found, history = ran(algorithm, hparams, data, fcojax.everyone(), 3, 9)
    w, controls = np.zeros(DIM), np.zeros((NUM_CLIENTS, DIM))
    for _ in range(9):
        x, start = np.tile(w, (NUM_CLIENTS, 1)), (hessians, terms, 0.1, controls)
        x = through(local_ends(x, *start, lambda x: through(x, "gradient")), "upload")
        w = through(np.mean(x - 0.3 * controls, axis=0), "broadcast")
        controls = controls + (w - x) / 0.3
    np.testing.assert_allclose(found, w, rtol=0, atol=1e-13)
    whole = history["bytes_down"] if place == "upload" else history["bytes_up"]
    assert whole.tolist() == [9 * NUM_CLIENTS * DIM * 8]


@pytest.mark.slow
def test_tamuna_ends_at_the_minimiser_and_sends_the_share_of_its_owners():
    data, hessians, terms = least_squares()
    best = np.linalg.solve(hessians.mean(0), terms.mean(0))
    cohort, losses = fcojax.uniform_cohort(cohort_size=2), fcojax.dropout(0.3)
    algorithm = port("tamuna")(loss, num_clients=NUM_CLIENTS, num_owners=2)
    hparams = algorithm.hparams_type(client_lr=0.3)
    w, history = ran(algorithm, hparams, data, cohort, 3, 1500, losses)
    np.testing.assert_allclose(w, best, rtol=0, atol=1e-10)
    assert history["bytes_up"].tolist() == [1500 * 2 * DIM * 8 / 2]
    plain = algorithms.prox_skip(loss)
    all_own = port("tamuna")(loss, num_clients=NUM_CLIENTS, num_owners=NUM_CLIENTS)
    given = data, fcojax.everyone(), 3, 9
    expected, _ = ran(plain, plain.hparams_type(client_lr=0.3), *given)
    found, _ = ran(all_own, hparams, *given)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
