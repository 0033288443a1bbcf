"""FedComLoc: equal to Scaffnew without compression, against a numpy loop, and its bytes."""

import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import uploads
from fcojax.algorithms import fed_com_loc, prox_skip
from tests.algorithms.test_tamuna import CLIENTS, DIM, KEY, LOSSY, STEPS, clients, data, loss

RATES = fed_com_loc.Hparams(client_lr=0.05)
PLACES = ("upload", "gradient", "broadcast")
TOP, START = uploads.top_k(3), np.linspace(1, 2, DIM)


def run(algorithm, num_rounds=9, cohort=None):
    plan = fcojax.Plan(fcojax.local_steps(STEPS), cohort or fcojax.everyone())
    hparams = algorithm.hparams_type(client_lr=0.05)
    return fcojax.run(
        algorithm,
        hparams,
        jnp.asarray(START),
        data(),
        KEY,
        plan,
        num_rounds=num_rounds,
        eval_every=num_rounds,
    )


@pytest.mark.slow
@pytest.mark.parametrize("compresses", PLACES)
def test_without_compression_it_is_scaffnew_bit_for_bit(compresses):
    """This holds with absent clients and lost uploads, for bytes, and leaf by leaf."""
    expected, plain = run(prox_skip(loss), cohort=LOSSY)
    for whole in (
        None,
        uploads.identity(),
        uploads.top_k(1.0),
        uploads.leafwise(uploads.identity()),
    ):
        found, history = run(
            fed_com_loc(loss, compressor=whole, compresses=compresses), cohort=LOSSY
        )
        np.testing.assert_array_equal(found, expected)
    # Plain uploads also have a number of steps.
    assert history["bytes_up"][0] == plain["bytes_up"][0] - 9 * 3 * 8


def largest(x, k=3):
    return np.where(np.abs(x) >= np.sort(np.abs(x))[-k], x, 0)


@pytest.mark.slow
@pytest.mark.parametrize("compresses", PLACES)
def test_it_is_the_printed_loop(compresses):
    """With control variates h instead of b = w - K gamma h, and full participation."""
    hessians, slopes = (np.stack([client[name] for client in clients()]) for name in "Ac")
    delta = RATES.client_lr * STEPS
    model, control, left_out = START, np.zeros((CLIENTS, DIM)), 0.0
    for _ in range(9):
        x = np.tile(model, (CLIENTS, 1))
        for _ in range(STEPS):
            seen = np.array([largest(row) for row in x]) if compresses == "gradient" else x
            gradients = np.einsum("mij,mj->mi", hessians, seen) - slopes
            x = x - RATES.client_lr * (gradients - control)
        if compresses == "upload":
            x = np.array([largest(row) for row in x])
        target = np.mean(x - delta * control, axis=0)
        model = largest(target) if compresses == "broadcast" else target
        control = control + (model - x) / delta
        left_out = np.abs(control.mean(axis=0)).max()
        assert (left_out > 1e-6) == (compresses == "broadcast")
    found, _ = run(fed_com_loc(loss, compressor=TOP, compresses=compresses))
    np.testing.assert_allclose(found, model, rtol=1e-11, atol=1e-13)


@pytest.mark.slow
def test_every_step_has_draws_of_its_own():
    """Then E x_K = (1 - s)^K x_0 on |x|^2 / 2, as C is unbiased; with one draw it would differ.

    An entry is (1 - s d / k)^n after n draws of it, which bounds the error of the mean.
    """
    share, step, steps, number = 1 / 4, 0.1, 8, 400
    many = fcojax.from_clients([{"zero": np.zeros((1, 4))}] * number)
    algorithm = fed_com_loc(
        lambda x, rows: jnp.sum((x[None] - rows["zero"]) ** 2, axis=1) / 2,
        compressor=uploads.rand_k(share),
        compresses="gradient",
    )
    found, _ = fcojax.run(
        algorithm,
        algorithm.hparams_type(client_lr=step),
        jnp.ones(4),
        many,
        KEY,
        fcojax.local_steps(steps),
        num_rounds=1,
    )
    expected = (1 - step) ** steps
    square = (1 - share + share * (1 - step / share) ** 2) ** steps
    error = 4 * np.sqrt((square - expected**2) / number)
    assert error < (1 - share + share * (1 - step / share) ** steps - expected) / 5
    np.testing.assert_allclose(found, expected, atol=error)


@pytest.mark.slow
def test_compressed_models_end_elsewhere_and_bytes_are_counted():
    hessians, slopes = (np.mean([client[name] for client in clients()], axis=0) for name in "Ac")
    best = np.linalg.solve(hessians, slopes)
    each = uploads.facts(TOP, jnp.zeros(DIM)).num_bytes
    whole = 600 * CLIENTS * DIM * 8
    for compresses, down, up in (
        ("upload", whole, 600 * CLIENTS * each),
        ("gradient", whole, whole),
        ("broadcast", 600 * CLIENTS * each, whole),
    ):
        model, history = run(fed_com_loc(loss, compressor=TOP, compresses=compresses), 600)
        assert np.linalg.norm(model - best) > 1e-2 * np.linalg.norm(best)
        assert float(history["bytes_down"][0]) == pytest.approx(down)
        assert float(history["bytes_up"][0]) == pytest.approx(up)
        assert compresses != "broadcast" or np.count_nonzero(model) == 3
