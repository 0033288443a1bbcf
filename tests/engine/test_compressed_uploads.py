"""Compressed broadcasts: exact solutions and bytes. What uploads do is in ``tests/laws``.

The heterogeneous lasso is that of ``test_heterogeneous_lasso``: eight clients in 20 dimensions.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms, uploads
from fcojax.problems import factored_loss, population_loss
from fcojax.transforms import euclidean, l1, zero
from tests.laws.test_heterogeneous_lasso import K, corrected, distance, task
from tests.support import federations

KEY = jax.random.key(3)
TOP = uploads.top_k(2)
GEOMETRY = {"composite_fl": [l1()], "fed_mid_osp": [euclidean(l1())]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "half"),
    [
        *itertools.product(["fed_avg", "fed_dual_avg", "fed_mid_osp"], [False]),
        *itertools.product(["scaffold", "composite_fl"], [False, True]),
    ],
)
def test_methods_end_at_the_solution_with_messages_of_a_tenth_of_the_entries(name, half):
    """Smooth or composite; with local steps also with half of the clients and lost uploads."""
    is_local, is_smooth = name in ("scaffold", "composite_fl"), name not in GEOMETRY
    geometry = {"fed_dual_avg": [euclidean(zero())]} | GEOMETRY
    chosen = getattr(algorithms, name)(factored_loss, *geometry.get(name, []))
    rates = {"client_lr": (corrected()["client_lr"] if is_local else 1 / task().smoothness) / 2}
    rates |= {} if is_smooth else {"penalty_scale": task().scale}
    drawn = (fcojax.everyone(), uploads.chain())
    if half:
        drawn = fcojax.uniform_cohort(cohort_size=4), fcojax.dropout(0.3)
    plan = fcojax.Plan(
        fcojax.local_steps(K if is_local else 1), *drawn, broadcast=uploads.ef21p(TOP)
    )
    model, _ = fcojax.run(
        chosen,
        chosen.hparams_type(**rates),
        jnp.zeros(20),
        task().data,
        KEY,
        plan,
        num_rounds=4000,
        eval_every=4000,
    )
    assert np.linalg.norm(model) > 0.1
    if not is_smooth:
        assert distance(model) < 1e-10
    else:
        slope = jax.grad(lambda w: population_loss(factored_loss, w, task().data))(model)
        assert np.linalg.norm(slope) < 1e-8


def advanced(chosen, num_rounds, client_lr=0.02):
    data = fcojax.from_clients(federations.clients())
    cohort, broadcast = fcojax.uniform_cohort(cohort_size=2), uploads.ef21p(TOP)
    plan = fcojax.Plan(fcojax.local_steps(2, 2), cohort, broadcast=broadcast)
    hparams = chosen.hparams_type(client_lr=client_lr)
    state = fcojax.start(chosen, hparams, federations.start(), data, KEY, plan)
    return hparams, *fcojax.advance(chosen, hparams, state, data, plan, num_rounds=num_rounds)


def test_a_client_s_own_model_is_made_from_the_message_that_it_has():
    plain = algorithms.scaffold(federations.loss)
    chosen = plain._replace(client_model=lambda hparams, message, client: message)
    hparams, state, _ = advanced(chosen, 3)
    models = fcojax.personal.read_models(chosen, hparams, state)
    estimate, whole = state.memory.broadcast.message, chosen.broadcast(hparams, state.server)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[0], b), models, estimate)
    pairs = zip(jax.tree.leaves(estimate), jax.tree.leaves(whole), strict=True)
    assert any(np.any(one != other) for one, other in pairs)
