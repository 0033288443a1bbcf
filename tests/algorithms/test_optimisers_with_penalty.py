"""FedMiD and FedDualAvg with optimisers: their rounds, their fixed points, and special cases."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fcojax
from fcojax.algorithms import fed_dual_avg, fed_dual_avg_opt, fed_mid_opt
from fcojax.problems import population_loss
from fcojax.reference import fista
from fcojax.transforms import euclidean, group_l2, l1
from tests.support.composite_oracles import soft

pytestmark = pytest.mark.gate

OPTIMISERS = {
    "adagrad": optax.adagrad(1.0, eps=1e-3),
    "adam": optax.adam(1.0, b2=0.99, eps=1e-3),
    "yogi": optax.yogi(1.0, b2=0.99, eps=1e-3),
    "lamb": optax.lamb(1.0, b2=0.99, eps=1e-3),
    "lars": optax.lars(1.0, trust_coefficient=0.1),
}
METHODS = {
    "fed_dual_avg": fed_dual_avg_opt,
    "fed_mid_osp": functools.partial(fed_mid_opt, client_prox=False),
}
RATE, SCALE, STEPS, ROUNDS = 0.05, 0.2, 3, 6
RNG = np.random.default_rng(0)
CENTRES, CURVATURES = RNG.normal(size=(3, 4)), RNG.uniform(0.5, 2, (3, 4))
START = np.array([0.4, -0.1, 0.02, 0.9])


def loss(w, rows):
    return (rows["curvature"] * (w[None] - rows["centre"]) ** 2).sum(axis=-1) / 2


def population():
    return fcojax.from_rows({"centre": CENTRES, "curvature": CURVATURES}, [1, 1, 1])


def after(algorithm, num_rounds, num_steps=STEPS, server_lr: Any = 0.3, scale=SCALE):
    hparams = algorithm.hparams_type(RATE, server_lr, scale)
    given = jnp.asarray(START), population(), jax.random.key(0), fcojax.local_steps(num_steps)
    return np.asarray(fcojax.run(algorithm, hparams, *given, num_rounds=num_rounds)[0])


class ByHand:
    """An optimiser of optax, eagerly, that corrects slopes: g + s is optimised, s is not."""

    def __init__(self, optimiser):
        self.optimiser, self.state = optimiser, optimiser.init(jnp.zeros(4))

    def __call__(self, slope, subgradient, w):
        with jax.numpy_dtype_promotion("standard"):
            updates, self.state = self.optimiser.update(
                jnp.asarray(slope + subgradient), self.state, jnp.asarray(w)
            )
        pace = np.linalg.norm(updates) / np.linalg.norm(slope + subgradient)
        return -np.asarray(updates) - pace * subgradient, pace


def by_hand(method, side, optimiser):
    """The last model, with one optimiser for the server, or a new one for each client's round."""
    dual, server = method == "fed_dual_avg", ByHand(optimiser)
    w, z, elapsed, s = START.copy(), START.copy(), 0.0, np.zeros(4)
    for _ in range(ROUNDS):
        moved = []
        for centre, curvature in zip(CENTRES, CURVATURES, strict=True):
            own, client, spent = z.copy(), ByHand(optimiser), 0.0
            for _ in range(STEPS):
                at = soft(own, (elapsed + spent) * SCALE) if dual else own
                slope, pace = curvature * (at - centre), 1.0
                if side == "client":
                    slope, pace = client(slope, s, at)
                own, spent = own - RATE * slope, spent + RATE * pace
            moved.append([own - z, spent])
        change, spent = (sum(parts) / 3 for parts in zip(*moved, strict=True))
        if side == "server":
            slope, pace = server(-change, spent * s, w)
            change, spent = -slope, pace * spent
        z, elapsed = z + 0.3 * change, elapsed + 0.3 * spent
        weight = elapsed if dual else 0.3 * spent
        w = soft(z, weight * SCALE)
        s, z = (z - w) / weight, z if dual else w
    return w


FAST = {("lamb", "fed_dual_avg", "server"), ("adagrad", "fed_mid_osp", "client")}


@pytest.mark.parametrize(
    ("optimiser", "method", "side"),
    [
        pytest.param(*case, marks=() if case in FAST else pytest.mark.slow)
        for i, case in enumerate(itertools.product(OPTIMISERS, METHODS, ("server", "client")))
        if i.bit_count() % 2 == 0  # all pairs
    ],
)
def test_rounds_are_those_of_optax_by_hand(method, optimiser, side):
    chosen = OPTIMISERS[optimiser]
    algorithm = METHODS[method](loss, euclidean(l1()), **{side: chosen})
    found = after(algorithm, ROUNDS)
    np.testing.assert_allclose(found, by_hand(method, side, chosen), atol=1e-10)


def minimiser(penalty, data, scale):
    objective = functools.partial(population_loss, loss)
    return fista(objective, penalty, scale, jnp.zeros(4), data, tolerance=1e-13).params


GROUPS = group_l2(labels=np.array([0, 0, 1, 1], np.int32))


@pytest.mark.slow
@pytest.mark.parametrize(("optimiser", "rate"), [("adagrad", 0.3), ("adam", 0.02), ("yogi", 0.02)])
@pytest.mark.parametrize("method", METHODS)
def test_with_one_step_of_everyone_the_server_ends_at_the_minimiser(method, optimiser, rate):
    """Clients are unlike; a prox in the optimiser's metric would need a penalty per entry."""
    # With unbounded T a penalty that is curved along its manifold makes the rate sublinear.
    groups = [] if method == "fed_dual_avg" else [(GROUPS, 0.5)]
    for penalty, scale in [(l1(), SCALE), *groups]:
        algorithm = METHODS[method](loss, euclidean(penalty), server=OPTIMISERS[optimiser])
        found = after(algorithm, 4000, 1, rate, scale)
        exact = minimiser(penalty, population(), scale)
        np.testing.assert_allclose(found, exact, atol=1e-8)
        assert np.array_equal(found == 0, exact == 0) and (exact == 0).any() and exact.any()


def test_numbers_of_an_optimiser_are_swept():
    numbers = fcojax.extended(fed_dual_avg.Hparams, "Numbers", b1=0.9)
    algorithm = fed_dual_avg_opt(
        loss, euclidean(l1()), server=lambda h: optax.adam(1.0, b1=h.b1, eps=1e-3)
    )
    grid = fcojax.grid.product(numbers, client_lr=[RATE], server_lr=[0.3], b1=[0.5, 0.9])
    given = jnp.asarray(START), population(), jax.random.key(0)[None], fcojax.local_steps(STEPS)
    found, _ = fcojax.sweep(algorithm, grid, *given, num_rounds=ROUNDS)
    assert np.abs(found[0] - found[1]).max() > 1e-3


def test_a_local_prox_beside_an_optimiser_of_clients_is_refused():
    with pytest.raises(ValueError, match="pass client_prox=False, or use fed_dual_avg_opt"):
        fed_mid_opt(loss, euclidean(l1()), client=optax.adam(1.0))
