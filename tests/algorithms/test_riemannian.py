"""RFedAvg, RFedProx and RFedSVRG against numpy, their floors, and their traffic."""

import functools

import jax
import numpy as np
import pytest

import fcojax
from fcojax.transforms import product_manifold, sphere
from tests.support import federations, subspaces
from tests.support.subspaces import SMALL_WEIGHTS, slope, small_clients

pytestmark = pytest.mark.gate

NAMES = ("r_fed_avg", "r_fed_prox", "r_fed_svrg")
unit_sphere = sphere()
TEN_STEPS = fcojax.local_steps(10)


def rates(name, client_lr, prox_scale=1.0):
    kind = getattr(fcojax.algorithms, name).Hparams
    values = {"client_lr": client_lr, "server_lr": 1.0, "prox_scale": prox_scale}
    return kind(**{field: values[field] for field in kind._fields})


def models(name, hparams, num_rounds, manifold=subspaces.svd_stiefel, maps="retraction", **options):
    """Return the model after every round; one round of RFedSVRG takes two of the engine."""
    exchanges = 2 if name == "r_fed_svrg" else 1
    chosen = subspaces.algorithm(name, manifold, maps=maps)
    seen, _ = subspaces.states(chosen, hparams, num_rounds * exchanges, every=exchanges, **options)
    return seen.server.point if name == "r_fed_svrg" else seen.server


@functools.cache
def on_stiefel(name, client_lr=0.02, prox_scale=1.0, at_optimum=False):
    params = subspaces.optimum()[1] if at_optimum else subspaces.start()
    hparams = rates(name, client_lr, prox_scale)
    return models(name, hparams, 100, params=params, work=TEN_STEPS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("r_fed_avg", (1.304860, 0.7432627, 2.430336e-2, 2.419183e-2)),
        ("r_fed_prox", (1.296556, 0.8048956, 2.396203e-2, 2.373512e-2)),
        ("r_fed_svrg", (1.303275, 0.7472210, 6.922090e-4, 5.215201e-7)),
    ],
)
def test_gradient_norms_are_those_of_an_independent_implementation(name, expected):
    found = subspaces.slope_norms(on_stiefel(name)[[0, 9, 49, 99]])
    np.testing.assert_allclose(found, expected, rtol=2e-6)
    assert subspaces.feasibility(on_stiefel(name)) <= 1e-12


@pytest.mark.slow
def test_the_proximal_term_lowers_the_floor():
    """mu eta K = 4 halves it; with the opposite sign the ratio would be 1.26."""
    strong = on_stiefel("r_fed_prox", prox_scale=20.0, at_optimum=True)
    assert subspaces.slope_norms(strong)[-1] == pytest.approx(0.0124, abs=5e-5)


@pytest.mark.slow
def test_the_floor_of_averaging_is_proportional_to_the_rate():
    """From the optimum it moves to a distance of eta (K - 1) times a constant, 0.13293."""
    long, short = (
        subspaces.slope_norms(on_stiefel("r_fed_avg", lr, at_optimum=True))[-1] / (9 * lr)
        for lr in (0.02, 0.01)
    )
    assert long == pytest.approx(0.1344, rel=1e-3)
    assert 2 * short - long == pytest.approx(0.13293, rel=2e-3)


def exp(x, u):
    length = np.linalg.norm(u)
    return x if length == 0 else np.cos(length) * x + np.sin(length) * u / length


def log(x, y):
    across = y - x * np.sum(x * y)
    sine = np.linalg.norm(across)
    return across if sine == 0 else np.arctan2(sine, np.sum(x * y)) * across / sine


def retract(x, u):
    return (x + u) / np.linalg.norm(x + u)


MAPS = {
    "geodesic": (exp, log),
    "retraction": (retract, lambda x, y: y / np.sum(x * y) - x),
    "projection": (retract, lambda x, y: (y - x) - x * np.sum(x * (y - x))),
}


def oracle(name, maps, x, rounds, client_lr, prox_scale):
    """Return models on the sphere after each round; exchanges of gradients are not counted."""
    move, back = MAPS[maps]
    clients = small_clients()

    def gradient(z, rows, counts):
        return slope(z, (rows.T * (counts / counts.sum())) @ rows)

    result = []
    for cohort in rounds:
        everything = [gradient(x, rows, np.ones(len(rows))) for rows in clients]
        mean = np.average(everything, axis=0, weights=SMALL_WEIGHTS)
        tangents, shares = [], []
        for member, weight, batches in cohort:
            z = x
            for indices, counts in batches:
                rows = clients[member][indices]
                direction = gradient(z, rows, counts)
                if name == "r_fed_prox":
                    direction = direction - prox_scale * back(z, x)
                if name == "r_fed_svrg":
                    excess = gradient(x, rows, counts) - mean
                    direction = direction - (excess - z * np.sum(z * excess))
                z = move(z, -client_lr * direction)
            tangents.append(back(x, z))
            shares.append(weight)
        x = move(x, np.average(tangents, axis=0, weights=shares))
        result.append(x)
    return np.array(result)


@functools.cache
def minibatches():
    """The run has ten rounds of three steps with two examples each."""
    data = fcojax.from_clients(small_clients(), SMALL_WEIGHTS)
    work, cohort = fcojax.local_steps(3, 2), fcojax.everyone()
    return data, work, federations.replay(data, jax.random.key(0), 10, work, cohort)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "maps"),
    [("r_fed_avg", "geodesic"), ("r_fed_prox", "projection"), ("r_fed_svrg", "retraction")],
)
def test_minibatches_and_weights_are_those_of_the_oracle(name, maps):
    data, work, rounds = minibatches()
    start = subspaces.SMALL_START[:, :1]
    found = models(
        name, rates(name, 0.1, 2.0), 5, unit_sphere, maps, params=start, population=data, work=work
    )
    stepping = rounds[1::2] if name == "r_fed_svrg" else rounds[:5]
    expected = oracle(name, maps, start, stepping, 0.1, 2.0)
    assert np.abs(np.diff(expected, axis=0)).max(axis=(1, 2)).min() > 1e-3
    np.testing.assert_allclose(found, expected, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("manifold", [unit_sphere, subspaces.svd_stiefel])
def test_with_one_full_step_all_four_methods_are_the_same(manifold):
    """Use a retraction by projection, its exact inverse, and server_lr = 1."""
    start = subspaces.SMALL_START[:, : 1 if manifold is unit_sphere else 2]
    data = fcojax.from_clients(small_clients(), SMALL_WEIGHTS)
    options = {"params": start, "population": data, "work": fcojax.local_steps(1)}
    chosen = subspaces.algorithm("fed_manifold", manifold)
    hparams = fcojax.algorithms.fed_manifold.Hparams(0.1)
    expected = subspaces.states(chosen, hparams, 20, **options)[0].server.point
    for name in NAMES:
        found = models(name, rates(name, 0.1, 3.0), 20, manifold, **options)
        np.testing.assert_allclose(found, expected, atol=1e-14, err_msg=name)


def two_directions(params, rows):
    return subspaces.pca(params["a"], rows) + subspaces.pca(params["b"], rows)


def test_a_product_takes_its_factors_maps():
    """Averaging on a product of two spheres equals averaging on each."""
    options = {
        "population": fcojax.from_clients(small_clients()),
        "work": fcojax.local_steps(2),
    }
    both = product_manifold({"a": unit_sphere, "b": unit_sphere})
    chosen = subspaces.algorithm("r_fed_avg", both, two_directions)
    hparams = rates("r_fed_avg", 0.1)
    params = {"a": subspaces.SMALL_START[:, :1], "b": subspaces.SMALL_START[:, 1:]}
    seen, _ = subspaces.states(chosen, hparams, 5, params=params, **options)
    for part, column in params.items():
        alone = models("r_fed_avg", hparams, 5, unit_sphere, params=column, **options)
        np.testing.assert_allclose(seen.server[part], alone, atol=1e-14)
