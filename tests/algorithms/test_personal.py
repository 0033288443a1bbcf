"""Personalised methods: their special cases, and their limits against minimisers."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms
from fcojax.personal import by_client, read_models
from fcojax.transforms import l1, named
from tests.support import federations


def in_gate(test):
    return pytest.mark.slow(pytest.mark.gate(test))


CLIENTS = federations.quadratic_clients(sizes=(3, 3, 3, 3))
DATA = fcojax.from_clients(CLIENTS)
MATRICES, VECTORS = federations.client_means(CLIENTS)
PLAN = fcojax.Plan(fcojax.local_steps(3), fcojax.uniform_cohort(cohort_size=2), fcojax.dropout(0.3))
LASSO, STRENGTH = l1(), 0.05
START = jnp.zeros(4)


def loss(w, rows):
    return federations.quadratic(w, rows)


def parts_loss(parts, rows):
    return federations.quadratic(jnp.concatenate([parts["body"], parts["head"]]), rows)


@functools.cache
def built(name, penalty=LASSO, **options):
    return getattr(algorithms, name)(loss, penalty, **options)


def ended(algorithm, num_rounds=20, start: Any = START, plan=PLAN, **numbers):
    """Return the state and the model after some rounds, and the arguments of ``read_models``.

    By default half of the clients take part in each round, and 30 per cent of their uploads are
    lost.
    """
    defaults = {"client_lr": 0.3, "penalty_scale": STRENGTH}
    fields = algorithm.hparams_type._fields
    hparams = algorithm.hparams_type(
        **{name: value for name, value in (defaults | numbers).items() if name in fields}
    )
    state = fcojax.start(algorithm, hparams, start, DATA, jax.random.key(1), plan)
    state, _ = fcojax.advance(
        algorithm, hparams, state, DATA, plan, num_rounds=num_rounds, eval_every=num_rounds
    )
    return state, fcojax.read_model(algorithm, hparams, state), (algorithm, hparams, state)


def minimiser(matrix, vector, strength=STRENGTH):
    """Return the minimiser of w'Aw/2 - c'w + strength |w|_1."""
    w, step = np.zeros(len(vector)), 1 / np.linalg.eigvalsh(matrix).max()
    for _ in range(3000):
        w = w - step * (matrix @ w - vector)
        w = np.sign(w) * np.maximum(np.abs(w) - step * strength, 0)
    return w


ALONE = np.stack([minimiser(a, c) for a, c in zip(MATRICES, VECTORS, strict=True)])


@in_gate
def test_without_a_pull_clients_learn_alone():
    *_, run = ended(built("ditto"), num_rounds=500, prox_scale=0.0)
    np.testing.assert_allclose(read_models(*run), ALONE, rtol=0, atol=1e-10)


@in_gate
def test_under_an_infinite_pull_all_use_the_common_model_of_scaffold():
    state, model, run = ended(built("ditto"), num_rounds=500, prox_scale=1e14)
    expected, _, _ = ended(built("scaffold", prox="feedback"), num_rounds=500)
    jax.tree.map(np.testing.assert_array_equal, state.server, expected.server)
    optimum = minimiser(MATRICES.mean(axis=0), VECTORS.mean(axis=0))
    np.testing.assert_allclose(model, optimum, rtol=0, atol=1e-10)
    np.testing.assert_allclose(read_models(*run), np.tile(model, (4, 1)), rtol=0, atol=1e-10)


@in_gate
def test_ditto_ends_at_the_minimisers_of_its_personal_problems():
    _, model, run = ended(built("ditto"), num_rounds=500, prox_scale=0.7)
    for own, matrix, vector in zip(read_models(*run), MATRICES, VECTORS, strict=True):
        expected = minimiser(matrix + 0.7 * np.eye(4), vector + 0.7 * np.asarray(model))
        np.testing.assert_allclose(own, expected, rtol=0, atol=1e-10)


PARTS = {"body": jnp.zeros(2), "head": jnp.zeros(2)}


def shared_by(name, *kept, **options):
    def base(loss):
        return getattr(algorithms, name)(loss, LASSO, **options)

    return algorithms.partial_sharing(base, parts_loss, named(*kept), penalty=LASSO)


@in_gate
def test_if_nothing_stays_at_the_clients_partial_sharing_is_its_base():
    _, model, run = ended(shared_by("prox_skip", "neither"), start=PARTS)
    _, expected, _ = ended(algorithms.prox_skip(parts_loss, LASSO), start=PARTS)
    for part in PARTS:
        np.testing.assert_array_equal(model[part], expected[part])
        np.testing.assert_array_equal(read_models(*run)[part], np.tile(expected[part], (4, 1)))


@in_gate
def test_if_everything_stays_clients_learn_alone():
    *_, run = ended(shared_by("prox_skip", "body", "head"), num_rounds=500, start=PARTS)
    found = np.concatenate(list(read_models(*run).values()), axis=1)
    np.testing.assert_allclose(found, ALONE, rtol=0, atol=1e-10)


@in_gate
def test_partial_sharing_ends_at_the_joint_minimiser_and_sends_the_shared_part_alone():
    algorithm = shared_by("prox_skip", "head")
    _, _, run = ended(algorithm, num_rounds=600, start=PARTS)
    found = np.concatenate(list(read_models(*run).values()), axis=1)
    # The stacked problem in (u, v_1, ..., v_4), each v_i with the weight 1/4 of its client.
    matrix, vector, weights = np.zeros((10, 10)), np.zeros(10), np.r_[1.0, 1.0, [0.25] * 8]
    for m, (own, c) in enumerate(zip(MATRICES, VECTORS, strict=True)):
        at = np.r_[0, 1, 2 + 2 * m, 3 + 2 * m]
        matrix[np.ix_(at, at)] += own / 4
        vector[at] += c / 4
    stacked = minimiser(matrix, vector, STRENGTH * weights)
    expected = np.concatenate([np.tile(stacked[:2], (4, 1)), stacked[2:].reshape(4, 2)], axis=1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
    _, history = fcojax.run(algorithm, run[1], PARTS, DATA, jax.random.key(0), PLAN, num_rounds=1)
    assert float(history["bytes_down"][0]) == 2 * 2 * 8  # two clients, two numbers


def test_a_common_model_is_not_read_as_personal_models():
    _, _, run = ended(built("prox_skip"))
    with pytest.raises(ValueError, match="no models of their own"):
        read_models(*run)


RAGGED = fcojax.from_clients(federations.quadratic_clients(sizes=(5, 2, 7, 3, 6)))


def test_each_client_is_measured_at_its_own_model():
    algorithm = built("ditto")
    hparams, plan = algorithm.hparams_type(client_lr=0.3), fcojax.local_steps(3)
    state = fcojax.start(algorithm, hparams, START, RAGGED, jax.random.key(0), plan)
    state, _ = fcojax.advance(algorithm, hparams, state, RAGGED, plan, num_rounds=3)
    models, common = (read(algorithm, hparams, state) for read in (read_models, fcojax.read_model))
    rows = [RAGGED.select([m]).examples for m in range(5)]
    expected = np.array([loss(w, own).mean() for w, own in zip(models, rows, strict=True)])
    shared = np.array([loss(common, own).mean() for own in rows])
    alone = expected + np.array([1.0, -1.0, 1.0, 1.0, 1.0])
    observe = by_client(algorithm, RAGGED, loss, vectors=True, block=2, alone=alone)
    everyone = fcojax.look(algorithm, hparams, state, observe)
    np.testing.assert_allclose(everyone["loss_by_client"], expected, rtol=1e-12)
    np.testing.assert_allclose(everyone["loss_worst"], expected.max(), rtol=1e-12)
    np.testing.assert_allclose(everyone["loss_p90"], np.quantile(expected, 0.9), rtol=1e-12)
    assert everyone["loss_gain"] == np.mean(expected < shared)
    assert everyone["loss_gain_alone"] == 0.8


def test_a_population_of_more_clients_than_the_run_is_refused():
    algorithm = built("ditto")
    hparams = algorithm.hparams_type()
    state = fcojax.start(algorithm, hparams, START, DATA, jax.random.key(0), PLAN)
    with pytest.raises(ValueError, match="data has 5 clients but the state 4"):
        fcojax.look(algorithm, hparams, state, by_client(algorithm, RAGGED, loss))
