"""Optimisers on clients and servers, against loops with optax and against special cases."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fcojax
from fcojax import algorithms
from tests.support import federations, oracles

KEY = jax.random.key(13)
WORK, COHORT, NUM_ROUNDS = fcojax.local_epochs(2, 3), fcojax.uniform_cohort(cohort_size=3), 6
RAGGED = {"num_rounds": NUM_ROUNDS, "work": WORK, "cohort": COHORT}
slow = pytest.mark.slow


class Numbers(NamedTuple):
    """The hyperparameters of the optimisers of these tests."""

    client_lr: float = 0.02
    server_lr: float = 0.05
    b1: float = 0.8
    b2: float = 0.95


@functools.cache
def population():
    """Clients of different sizes, hence different work, weighted by their examples."""
    return fcojax.from_clients(federations.clients(), "examples")


@functools.cache
def drawn_rounds():
    return federations.replay(population(), KEY, NUM_ROUNDS, WORK, COHORT)


def promoting(update):
    """Return the update under JAX's standard promotion, which users of optax have."""
    return jax.numpy_dtype_promotion("standard")(jax.jit(update))


def walked(cohort, w, stepper):
    """Return the mean displacement of a cohort, by a loop over its clients and their batches.

    ``stepper(member)`` gives the client's ``step(point, slope) -> point``.
    """
    moves, weights = [], []
    for member, weight, batches in cohort:
        rows, step, point = federations.clients()[member], stepper(member), w
        for indices, real in batches:
            if real.sum() > 0:
                slope = oracles.squared_gradient(
                    np.asarray(point), rows["x"][indices], rows["y"][indices], real
                )
                point = step(point, slope)
        moves.append(np.asarray(point - w))
        weights.append(weight)
    return np.average(moves, axis=0, weights=weights)


def by_hand(server_step, client, *, keep=False):
    """Return the models after each round, by loops over rounds and clients, with optax.

    ``server_step(w, mean displacement) -> w`` has its own state.
    """
    w = np.asarray(federations.as_vector(federations.start()))
    states, models, update = {}, [], promoting(client.update)

    def stepper(member):
        if not keep or member not in states:
            states[member] = client.init(w)

        def step(point, slope):
            updates, states[member] = update(slope, states[member], point)
            return optax.apply_updates(point, updates)

        return step

    for cohort in drawn_rounds():
        with jax.numpy_dtype_promotion("standard"):
            w = np.asarray(server_step(w, walked(cohort, w, stepper)))
        models.append(w)
    return np.array(models)


def optax_server(transformation):
    """Return a server step that passes minus the mean displacement to optax."""
    state, update = None, promoting(transformation.update)

    def step(w, displacement):
        nonlocal state
        state = transformation.init(w) if state is None else state
        updates, state = update(-displacement, state, w)
        return optax.apply_updates(w, updates)

    return step


def ours(algorithm, hparams, **options):
    return federations.models(algorithm, hparams, population(), KEY, **RAGGED | options)


def assert_moved_alike(found, expected):
    assert np.abs(np.diff(expected, axis=0)).max(axis=1).min() > 1e-4  # every round moves
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def decaying(h):
    """An optax schedule with a traced rate."""
    return optax.adam(optax.exponential_decay(h.server_lr, 3, 0.5), b1=h.b1, b2=h.b2)


SIDES = {
    "adam, and adam that is kept": (
        lambda h: optax.adam(h.server_lr, b1=h.b1, b2=h.b2),
        lambda h: optax.adam(h.client_lr, b1=h.b1),
        True,
    ),
    "adam on a schedule, and adam": (decaying, lambda h: optax.adam(h.client_lr, b1=h.b1), False),
    "yogi": (lambda h: optax.yogi(h.server_lr, b1=h.b1, b2=h.b2), None, False),
    "adagrad": (lambda h: optax.adagrad(h.server_lr), None, False),
    "nesterov, and momentum that is kept": (
        lambda h: optax.sgd(h.server_lr, momentum=h.b1, nesterov=True),
        lambda h: optax.sgd(h.client_lr, momentum=h.b1),
        True,
    ),
    "lion with weight decay": (lambda h: optax.lion(h.server_lr, weight_decay=0.1), None, False),
    "clipped": (
        lambda h: optax.chain(optax.clip_by_global_norm(0.3), optax.sgd(h.server_lr)),
        None,
        False,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SIDES)
def test_any_optimiser_equals_optax_driven_by_hand(name):
    """With minibatches, sampling and uneven work; kept states belong to their client."""
    server, client, keep = SIDES[name]
    sides = {"server": server, "keep_client_state": keep} | ({"client": client} if client else {})
    algorithm = algorithms.fed_opt(federations.loss, hparams_type=Numbers, **sides)
    numbers = Numbers(*map(jnp.float64, Numbers()))
    client = client(numbers) if client else optax.sgd(numbers.client_lr)
    expected = by_hand(optax_server(server(numbers)), client, keep=keep)
    assert_moved_alike(ours(algorithm, numbers), expected)


def test_an_optimiser_as_it_is_equals_a_function_that_returns_it():
    chosen = optax.adam(0.05, b1=0.8)
    w, upload = jnp.array([1.0, -2.0]), jnp.array([0.3, 0.1])
    moved = []
    for given in (chosen, lambda hparams: chosen):
        algorithm = algorithms.fed_opt(federations.loss, server=given, client=given)
        server, _ = algorithm.init(None, w)
        for _ in range(2):
            server = algorithm.server_update(None, server, upload, jnp.ones(()), KEY)
        moved.append(server.params)
    np.testing.assert_array_equal(*moved)
    assert np.abs(moved[0] - w).min() > 0.01


def noise(seed):
    """Noise from a key in the state; names and types of optax's own vary between its versions."""

    def update(slopes, key, params=None):
        key, draw = jax.random.split(key)
        added = jax.random.normal(draw)
        return jax.tree.map(lambda slope: slope + added.astype(slope.dtype), slopes), key

    return optax.GradientTransformation(lambda params: jax.random.key(seed), update)


@pytest.mark.parametrize(
    ("side", "optimiser", "said"),
    [
        ("server", optax.lookahead(optax.sgd(0.1), 2, 0.5), "no attribute 'fast'"),
        ("server", optax.MultiSteps(optax.sgd(0.1), 2), "pass one from optax"),
        ("server", optax.polyak_sgd(), "argument: 'value'"),
        ("server", optax.contrib.momo(), "argument: 'value'"),
        ("server", optax.lbfgs(), "'value_fn'"),
        ("client", optax.contrib.reduce_on_plateau(), "argument: 'value'"),
        (
            "client",
            optax.chain(noise(0), optax.sgd(0.1)),
            "which would be the same for all clients",
        ),
    ],
)
def test_optimisers_that_a_round_cannot_serve_are_refused(side, optimiser, said):
    """Noise of the clients was the same in every client, and in every round."""
    algorithm = algorithms.fed_opt(federations.loss, **{side: lambda hparams: optimiser})
    with pytest.raises((AttributeError, TypeError, ValueError), match=said):
        fcojax.run(
            algorithm,
            algorithm.hparams_type(),
            federations.start(),
            population(),
            KEY,
            fcojax.local_steps(1),
            num_rounds=1,
        )


def test_a_rate_that_no_optimiser_reads_is_no_hyperparameter():
    """A grid over it would have equal points."""
    fed_opt, loss = algorithms.fed_opt, federations.loss
    fixed = fed_opt(loss, client=optax.sgd(0.1)).hparams_type
    assert fixed._fields == ("server_lr",) and fixed().server_lr == 1.0
    assert fed_opt(loss, server=optax.adam(0.1)).hparams_type._fields[0] == "client_lr"
    of_rates = fed_opt(loss, client=lambda hparams: optax.sgd(hparams.client_lr))
    assert of_rates.hparams_type is fed_opt(loss).hparams_type is fed_opt.Hparams
    with pytest.raises(TypeError, match="client_lr"):
        fcojax.grid.product(fixed, client_lr=[0.1, 0.2])


SCALE = 5.0


def held(mu, scale, client_lr=0.02, server_lr=0.7):
    """FedProx in numpy."""
    w, models = np.asarray(federations.as_vector(federations.start())), []
    for cohort in drawn_rounds():

        def step(point, slope, w=w):
            moved = point - client_lr * (slope + mu * (point - w))
            return oracles.soft(moved, client_lr * scale)

        w = w + server_lr * walked(cohort, w, lambda member, step=step: step)
        models.append(w)
    return np.array(models)


@slow
def test_fed_prox_equals_its_oracle():
    chosen = algorithms.fed_prox(federations.loss, federations.kernel_l1())
    hparams = algorithms.fed_prox.Hparams(0.02, 0.7, prox_scale=3.0, penalty_scale=SCALE)
    found = ours(chosen, hparams)
    assert_moved_alike(found, held(3.0, SCALE))
    assert np.abs(found - held(0.0, SCALE)).max() > 1e-2  # the term has an effect
