"""Stopping when solved: equal to separate solves, with no extra round, and all bytes counted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.algorithms import fed_mid_osp
from fcojax.transforms import euclidean, l1
from fcojax.uploads.transform import NOTHING

pytestmark = pytest.mark.gate

PLAN = fcojax.local_steps(1)


def loss(w, rows):
    return 0.5 * (rows["x"] @ w - rows["y"]) ** 2


def population(num_clients=4, size=6, dim=3):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_clients * size, dim))
    y = x @ np.array([1.0, -1.0, 0.0]) + 0.1 * rng.normal(size=num_clients * size)
    return fcojax.from_rows({"x": x, "y": y}, [size] * num_clients)


DATA = population()
FED_MID = fed_mid_osp(loss, euclidean(l1()))
KKT = fcojax.kkt(loss, l1())
KEY = jax.random.key(0)


def rates(client_lr=0.5, penalty_scale=0.1):
    return FED_MID.hparams_type(client_lr=client_lr, penalty_scale=penalty_scale)


def solve(hparams, params=(0.0, 0.0, 0.0), key=KEY, plan=PLAN, **more):
    more = {"certificate": KKT, "tolerance": 1e-9, "eval_every": 5, "max_rounds": 200} | more
    return fcojax.solve(FED_MID, hparams, jnp.asarray(params), DATA, key, plan, **more)


def test_the_model_is_the_optimum_and_a_start_there_costs_no_round():
    model, outcome = solve(rates())
    found = fcojax.reference.fista(
        lambda w, rows: jnp.mean(loss(w, rows)),
        l1(),
        0.1,
        jnp.zeros(3),
        DATA.examples,
        tolerance=1e-12,
    )
    np.testing.assert_allclose(model, found.params, atol=1e-8)
    assert outcome.solved and 0 < outcome.rounds < 200 and outcome.violation <= 1e-9
    again, at_once = solve(rates(), model)
    assert at_once.rounds == 0 and at_once.checks == 1
    np.testing.assert_array_equal(again, model)
    # Each client receives a model of 3 floats in each round and each check, and sends as much, with
    # one more number in a round: the total step size.
    exchanges = outcome.rounds + outcome.checks
    np.testing.assert_array_equal(outcome.bytes_down, np.full(4, 24 * exchanges))
    np.testing.assert_array_equal(outcome.bytes_up, np.full(4, 24 * exchanges + 8 * outcome.rounds))


@pytest.mark.parametrize(
    "uploads", [NOTHING, pytest.param(fcojax.norm_bound(10.0), marks=pytest.mark.slow)]
)
def test_a_sweep_ends_where_its_points_end_alone(uploads):
    """Each point may have its own bound on uploads."""
    plan = fcojax.Plan(PLAN, uploads=uploads)
    points = [(0.5, scale) for scale in (0.01, 0.5, 5.0)]
    grid = fcojax.grid.product(
        FED_MID.hparams_type, client_lr=[0.5], penalty_scale=[0.01, 0.5, 5.0]
    )
    models, outcome = solve(grid, key=KEY[None], plan=plan, max_rounds=400)
    assert models.shape == (3, 1, 3) and outcome.bytes_up.shape == (3, 1, 4)
    for point, rates_of in enumerate(points):
        model, alone = solve(rates(*rates_of), plan=plan, max_rounds=400)
        assert alone.rounds == outcome.rounds[point, 0]
        np.testing.assert_allclose(models[point, 0], model, atol=1e-12)
        np.testing.assert_array_equal(alone.bytes_up, outcome.bytes_up[point, 0])
    # Half of the points stop before the others.
    assert 2 * np.sum(outcome.rounds < outcome.rounds.max()) > len(points)


@pytest.mark.slow
def test_bytes_of_all_clients_are_those_of_the_rounds_and_the_certificates():
    plan = fcojax.Plan(PLAN, fcojax.uniform_cohort(cohort_size=2))
    _, outcome = solve(rates(), plan=plan, max_rounds=20, tolerance=0.0)
    _, history = fcojax.run(FED_MID, rates(), jnp.zeros(3), DATA, KEY, plan, num_rounds=20)
    checks = 24 * 4 * int(outcome.checks)
    assert jnp.sum(outcome.bytes_up) - checks == jnp.sum(history["bytes_up"])
    assert jnp.sum(outcome.bytes_down) - checks == jnp.sum(history["bytes_down"])
    assert len(set(outcome.bytes_up.tolist())) == 1  # in equal shares


@pytest.mark.slow
def test_a_run_has_the_verdict_of_its_curve():
    grid = fcojax.grid.product(
        FED_MID.hparams_type, client_lr=[0.5, 0.001, 50.0], penalty_scale=[0.1]
    )
    _, outcome = solve(grid, key=KEY[None], max_rounds=50, tolerance=1e-3)
    words = [sentence.split(" ")[0] for sentence in outcome.verdicts()]
    assert words == ["solved", "not", "diverged"]
    with pytest.raises(ValueError, match="tolerance"):
        solve(rates(), tolerance=-1)


@pytest.mark.slow
def test_equal_certificates_are_one_function():
    """Equal certificates compile a program once."""
    assert fcojax.kkt(loss, l1()) is KKT
    found = KKT(rates(), jnp.zeros(3), DATA)["violation"]
    assert found == fcojax.kkt_violation(loss, l1(), 0.1, jnp.zeros(3), DATA)
