"""RFedAGS of docs/ports: FedAvg in flat space, gradient descent, and its limits on manifolds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import fractional_matrix_power as power

import fcojax
from fcojax import uploads
from fcojax.transforms import flat, hyperbolic, spd
from tests.support import frechet
from tests.test_ports import DIM, KEY, PORTS, least_squares, loaded, loss, port, require_on_page

R_FED_AGS = port("r_fed_ags")
# Client 1 is in one of four rounds, and has three times the weight of client 0.
TRACE, WEIGHTS = fcojax.from_trace([[0, 1], [0], [0], [0]]), np.array([1.0, 3.0])
KNOWN = uploads.inverse_probability("known")
PAIRS = {
    "spd": (spd(), np.diag([1.0, 2.0]), np.array([[3.0, 1.0], [1.0, 0.5]])),
    "hyperbolic": (hyperbolic(), np.array([1.0, -0.5]), np.array([-2.0, 1.5])),
}


def between(name, a, b, t):
    """Return the point at the share t of the geodesic from a to b, in closed form."""
    if name == "spd":
        root, back = power(a, 0.5), power(a, -0.5)
        return root @ power(back @ b @ back, t) @ root
    far = np.arccosh(np.sqrt(1 + a @ a) * np.sqrt(1 + b @ b) - a @ b)
    return (np.sinh((1 - t) * far) * a + np.sinh(t * far) * b) / np.sinh(far)


def on_pair(name, client_lr):
    manifold, a, b = PAIRS[name]
    algorithm = R_FED_AGS(frechet.loss_on(manifold), manifold)
    data = fcojax.from_clients([a[None], b[None]], weights=WEIGHTS)
    return algorithm, algorithm.hparams_type(client_lr), data


def test_in_flat_space_it_is_fed_avg_with_corrected_weights():
    data, *_ = least_squares()
    work, cohort = fcojax.local_steps(3, batch_size=2), fcojax.coin_flips([0.9, 0.3, 0.5, 0.7])
    plan = fcojax.Plan(work, cohort, uploads.inverse_probability("estimated"))
    ends = [
        frechet.ran(made, made.hparams_type(0.1), jnp.ones(DIM), data, plan, 10)
        for made in (R_FED_AGS(loss, flat()), fcojax.algorithms.fed_avg(loss))
    ]
    assert np.allclose(*ends, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [pytest.param("spd", marks=pytest.mark.slow), "hyperbolic"])
def test_one_step_of_everyone_is_riemannian_gradient_descent(name):
    manifold, a, b = PAIRS[name]
    algorithm, hparams, data = on_pair(name, 0.3)
    found = frechet.ran(algorithm, hparams, jnp.asarray(a), data, fcojax.local_steps(1), 10)
    # It moves along the geodesic: in its length, from 0 towards the weighted mean of 0 and 1.
    share = 0.75 * (1 - 0.7**10)
    np.testing.assert_allclose(found, between(name, a, b, share), rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.gate
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("chain", [uploads.chain(), KNOWN], ids=["plain", "known"])
def test_limits_with_and_without_correction_have_their_closed_forms(name, chain):
    manifold, a, b = PAIRS[name]
    algorithm, hparams, data = on_pair(name, 0.2)
    plan = fcojax.Plan(fcojax.local_steps(3), TRACE, chain)
    first = fcojax.start(algorithm, hparams, jnp.asarray(a), data, KEY, plan)

    def mean_step(_, x):
        def tangent(index):
            state = first._replace(server=x, round=index)
            after = fcojax.advance(algorithm, hparams, state, data, plan, num_rounds=1)[0]
            return manifold.log(x, after.server)

        steps = jax.vmap(tangent)(jnp.arange(4, dtype=jnp.int32))
        return manifold.exp(x, jnp.mean(steps, axis=0))

    found = jax.jit(lambda x: jax.lax.fori_loop(0, 200, mean_step, x))(first.server)
    # Without correction client 1 has 3/4 of the mean in a quarter of the rounds.
    share = 0.75 if chain is KNOWN else 0.25 * 0.75
    np.testing.assert_allclose(found, between(name, a, b, share), rtol=0, atol=1e-11)


@pytest.mark.slow
def test_with_estimated_frequencies_the_error_goes_to_zero():
    manifold, a, b = PAIRS["hyperbolic"]
    algorithm, _, data = on_pair("hyperbolic", 0.1)
    right, biased = (between("hyperbolic", a, b, share) for share in (0.75, 0.25))
    far = float(jnp.sum(jnp.square(right - biased)))
    rates = fcojax.schedule(1 / (10 + np.arange(6400)))
    grid = fcojax.grid.product(algorithm.hparams_type, client_lr=[rates])
    errors = {}
    estimated = uploads.inverse_probability("estimated")
    for name, chain in (("plain", uploads.chain()), ("estimated", estimated)):
        plan = fcojax.Plan(fcojax.local_steps(1), fcojax.coin_flips([0.9, 0.3]), chain)
        _, seen = fcojax.sweep(
            algorithm,
            grid,
            jnp.asarray(a),
            data,
            jax.random.split(KEY, 8),
            plan,
            num_rounds=6400,
            eval_every=400,
            observe=lambda hparams, x, context: {"square": jnp.sum(jnp.square(x - right))},
        )
        errors[name] = np.mean(np.asarray(seen["square"]), axis=(0, 1))
    first, last = errors["estimated"][[0, -1]]
    assert errors["plain"][-1] == pytest.approx(far, rel=0.02)
    assert last < first / 10 and last < far / 10_000


@pytest.mark.slow
def test_the_page_gives_the_verdicts_of_the_figure(monkeypatch):
    monkeypatch.syspath_prepend(PORTS.parent)
    script = loaded(PORTS.parent / "r_fed_ags_figure.py")
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        for space in ((spd(), jnp.eye(3)), (hyperbolic(), jnp.zeros(3))):
            require_on_page(script.claims(*script.measured(*space)))
