"""Methods of docs/ports: each obeys the laws of `fcojax check` and its source's identities."""

import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import check

PORTS = pathlib.Path(__file__).parent.parent / "docs" / "ports"
KEY, DIM, NUM_CLIENTS = jax.random.key(0), 3, 4


def port(name):
    spec = importlib.util.spec_from_file_location(name, PORTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def loss(w, rows):
    return 0.5 * (rows["x"] @ w - rows["y"]) ** 2


def least_squares(shared=False):
    """Return clients, their Hessians, and their linear terms."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((NUM_CLIENTS, 6, DIM))
    y = x @ np.ones(DIM) if shared else rng.standard_normal((NUM_CLIENTS, 6))
    data = fcojax.from_clients([{"x": a, "y": b} for a, b in zip(x, y, strict=True)])
    return data, np.swapaxes(x, 1, 2) @ x / 6, np.einsum("mnd,mn->md", x, y) / 6


@pytest.mark.slow
@pytest.mark.parametrize("name", [path.stem for path in sorted(PORTS.glob("*.py"))])
def test_a_port_obeys_the_laws_and_is_at_most_seventy_lines(name):
    subject = check.subject_of(port(name))
    assert not [law for law, holds in check.LAWS.items() if holds(subject).holds is False]
    text = (PORTS / f"{name}.py").read_text("utf-8").split('"""', 2)[2]
    code = [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(code) <= 70


def ran(algorithm, hparams, data, cohort, num_steps, num_rounds):
    plan = fcojax.Plan(fcojax.local_steps(num_steps), cohort)
    return fcojax.run(
        algorithm,
        hparams,
        jnp.zeros(DIM),
        data,
        KEY,
        plan,
        num_rounds=num_rounds,
        eval_every=num_rounds,
    )


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


@pytest.mark.slow
def test_s_dane_is_exact_and_with_held_cohorts_where_the_minimiser_is_shared():
    algorithm = port("s_dane")(loss)
    hparams = algorithm.hparams_type(client_lr=0.3, prox_step=0.5)
    data, hessians, terms = least_squares()
    w, _ = ran(algorithm, hparams, data, fcojax.everyone(), 20, 400)
    assert np.allclose(w, np.linalg.solve(hessians.mean(0), terms.mean(0)), rtol=0, atol=1e-10)
    cohort = fcojax.held(fcojax.uniform_cohort(cohort_size=2), rounds=2)
    w, _ = ran(algorithm, hparams, least_squares(shared=True)[0], cohort, 20, 800)
    assert np.allclose(w, 1, rtol=0, atol=1e-10)


def test_de_com_fl_sends_one_number_a_direction_and_descends():
    data, hessians, terms = least_squares()
    algorithm = port("de_com_fl")(loss, num_directions=2)
    hparams = algorithm.hparams_type(client_lr=0.1, smoothing=1e-6)
    w, history = ran(algorithm, hparams, data, fcojax.everyone(), 1, 400)
    assert history["bytes_up"].tolist() == [400 * NUM_CLIENTS * 2 * 8]
    assert history["bytes_down"].tolist() == [400 * NUM_CLIENTS * (2 * 8 + 8)]
    assert np.allclose(w, np.linalg.solve(hessians.mean(0), terms.mean(0)), rtol=0, atol=1e-4)
