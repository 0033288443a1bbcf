"""Compressed broadcasts: exact solutions, bytes, special cases, and refusals.

The heterogeneous lasso is that of ``test_heterogeneous_lasso``: eight clients in 20 dimensions.
``test_crossed_links`` tests that sweeps, streams, chunks and parts of runs agree.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms, uploads
from fcojax.problems import factored_loss, population_loss
from fcojax.transforms import euclidean, l1, named
from tests.laws.test_heterogeneous_lasso import K, corrected, distance, task
from tests.support import federations

KEY = jax.random.key(3)
TOP = uploads.top_k(2)
LOSSES = fcojax.dropout(0.3)
SOME = fcojax.uniform_cohort(cohort_size=3)
ALL = fcojax.everyone(), fcojax.dropout(0)
HALF_LOST = fcojax.uniform_cohort(cohort_size=4), LOSSES
plain_l1 = l1()


@functools.cache
def data():
    return fcojax.from_clients(federations.clients(), weights=(1.0, 2.0, 0.5, 3.0, 1.5))


def advanced(algorithm, compressor=None, cohort=SOME, num_rounds=6):
    broadcast = None if compressor is None else uploads.ef21p(compressor)
    plan = fcojax.Plan(fcojax.local_steps(2, 2), cohort, LOSSES, broadcast=broadcast)
    hparams = algorithm.hparams_type(client_lr=0.02)
    state = fcojax.start(algorithm, hparams, federations.start(), data(), KEY, plan)
    state, history = fcojax.advance(algorithm, hparams, state, data(), plan, num_rounds=num_rounds)
    return federations.as_vector(fcojax.read_model(algorithm, hparams, state)), history


def ended(algorithm, num_steps=1, drawn=ALL, num_rounds=4000, **rates):
    rates = {"client_lr": 0.5 / task().smoothness} | rates
    work = fcojax.local_steps(num_steps)
    plan = fcojax.Plan(work, *drawn, broadcast=uploads.ef21p(TOP))
    model, _ = fcojax.run(
        algorithm,
        algorithm.hparams_type(**rates),
        jnp.zeros(20),
        task().data,
        KEY,
        plan,
        num_rounds=num_rounds,
        eval_every=num_rounds,
    )
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fed_avg", "fed_dual_avg"])
def test_one_step_of_all_ends_where_the_gradient_vanishes(name):
    """The broadcasts send 2 of 20 entries; the clients' own solutions are far apart."""
    geometry = (euclidean(fcojax.transforms.zero()),) if name == "fed_dual_avg" else ()
    model = ended(getattr(algorithms, name)(factored_loss, *geometry))
    slope = jax.grad(lambda w: population_loss(factored_loss, w, task().data))(model)
    assert np.linalg.norm(model) > 0.1 and np.linalg.norm(slope) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("drawn", [ALL, HALF_LOST], ids=["everyone", "half, lost"])
def test_corrected_local_steps_are_exact(drawn):
    """SCAFFOLD for the smooth loss, and a composite method for the lasso."""
    safe = corrected()["client_lr"] / 2
    model = ended(algorithms.scaffold(factored_loss), K, drawn, client_lr=safe)
    slope = jax.grad(lambda w: population_loss(factored_loss, w, task().data))(model)
    assert np.linalg.norm(slope) < 1e-8
    composite = algorithms.composite_fl(factored_loss, plain_l1)
    found = ended(composite, K, drawn, client_lr=safe, penalty_scale=task().scale)
    assert distance(found) < 1e-10


@pytest.mark.slow
def test_a_prox_of_the_estimate_ends_at_the_solution_of_the_lasso():
    chosen = algorithms.fed_mid_osp(factored_loss, euclidean(plain_l1))
    assert distance(ended(chosen, penalty_scale=task().scale)) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("compressor", [uploads.identity(), uploads.top_k(1.0)])
def test_all_entries_are_the_plain_run(compressor):
    for name in ("fed_avg", "fed_dual_avg"):
        chosen = federations.algorithm(name)
        found, _ = advanced(chosen, compressor)
        np.testing.assert_allclose(found, advanced(chosen)[0], rtol=1e-11, atol=1e-13)


def test_a_point_of_a_sweep_is_its_run():
    chosen, grid_rates = federations.algorithm("fed_dual_avg"), [0.01, 0.02]
    plan = fcojax.Plan(fcojax.local_steps(2, 2), broadcast=uploads.ef21p(TOP))
    grid = fcojax.grid.product(chosen.hparams_type, client_lr=grid_rates)
    given = federations.start(), data(), KEY[None], plan
    models, history = fcojax.sweep(chosen, grid, *given, num_rounds=4)
    model, alone = fcojax.run(
        chosen, chosen.hparams_type(client_lr=0.02), *given[:2], KEY, plan, num_rounds=4
    )
    found = jax.tree.map(lambda leaf: leaf[1, 0], models)
    np.testing.assert_allclose(
        federations.as_vector(found), federations.as_vector(model), rtol=1e-12
    )
    np.testing.assert_array_equal(history["bytes_down"][1, 0], alone["bytes_down"])


def test_bytes_are_those_of_a_broadcast_to_all_clients():
    """The message has the encoded dual and the unencoded sum of step sizes."""
    cohort, chosen = fcojax.uniform_cohort(cohort_size=2), federations.algorithm("fed_dual_avg")
    _, plain = advanced(chosen, None, cohort, 1)
    _, history = advanced(chosen, TOP, cohort, 1)
    bias, others = 8, plain["bytes_down"][0] / 2 - 5 * 8  # single numbers are not encoded
    encoded = uploads.facts(TOP, jnp.zeros(federations.DIM)).num_bytes
    assert int(history["bytes_down"][0]) == 5 * (encoded + bias + others)
    assert history["bytes_up"][0] == plain["bytes_up"][0]


def test_bytes_of_a_personal_method_are_those_of_what_it_sends_and_known_parts_are_refused():
    """A wrapper of the message does not change what is counted."""
    cohort, plain = fcojax.uniform_cohort(cohort_size=2), algorithms.scaffold(federations.loss)
    for chosen in (plain, algorithms.ditto(federations.loss)):
        _, history = advanced(chosen, TOP, cohort, 2)
        hparams = chosen.hparams_type(client_lr=0.02)
        server = chosen.init(hparams, federations.start())[0]
        leaves = jax.tree.leaves(chosen.broadcast(hparams, server))
        encoded = uploads.facts(TOP, [leaf for leaf in leaves if leaf.size > 1]).num_bytes
        single = 8 * sum(leaf.size == 1 for leaf in leaves)
        assert history["bytes_down"].tolist() == [5 * (encoded + single)] * 2
    shared = algorithms.partial_sharing(algorithms.fed_avg, federations.loss, named("bias"))
    with pytest.raises(ValueError, match="without receiving it"):
        advanced(shared, TOP, cohort, 1)


def test_a_client_s_own_model_is_made_from_the_message_that_it_has():
    plain = algorithms.scaffold(federations.loss)
    chosen = plain._replace(client_model=lambda hparams, message, client: message)
    plan = fcojax.Plan(fcojax.local_steps(2), broadcast=uploads.ef21p(TOP))
    hparams = chosen.hparams_type(client_lr=0.02)
    state = fcojax.start(chosen, hparams, federations.start(), data(), KEY, plan)
    state, _ = fcojax.advance(chosen, hparams, state, data(), plan, num_rounds=3)
    models = fcojax.personal.read_models(chosen, hparams, state)
    estimate, whole = state.memory.broadcast.message, chosen.broadcast(hparams, state.server)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[0], b), models, estimate)
    pairs = zip(jax.tree.leaves(estimate), jax.tree.leaves(whole), strict=True)
    assert any(np.any(one != other) for one, other in pairs)


@pytest.mark.parametrize(
    ("compressor", "sentence"),
    [
        (uploads.rand_k(2), r"pass contractive\(rand_k\(2\)\)"),
        (uploads.top_k(lambda h: h.share), "depends on the hyperparameters"),
        (uploads.top_k(6), "k is 6"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(compressor, sentence):
    with pytest.raises(ValueError, match=sentence):
        advanced(federations.algorithm("fed_avg"), compressor)
