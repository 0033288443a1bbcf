import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.engine import sweep as sweeps
from tests import federations

KEYS = jax.vmap(jax.random.key)(jnp.arange(2))
OPTIONS = {
    "num_rounds": 4,
    "work": fcojax.local_epochs(1, 3),
    "cohort": fcojax.uniform_cohort(3),
    "observe": federations.whole_model,
}


def grid(**values):
    return sweeps.product(fcojax.algorithms.fed_dual_avg.Hparams, **values)


def test_a_sweep_equals_separate_runs():
    chosen = federations.algorithm("fed_dual_avg")
    data = fcojax.from_clients(federations.clients())
    points = grid(client_lr=[0.01, 0.05], server_lr=[0.5, 1.0], penalty_scale=[0.2])
    _, history = fcojax.sweep(chosen, points, federations.start(), data, KEYS, **OPTIONS)
    assert history["model"].shape == (4, 2, 4, federations.DIM + 1)
    for point in range(4):
        hparams = jax.tree.map(lambda column: column[point], points)  # noqa: B023
        for seed in range(2):
            alone = federations.models(chosen, hparams, data, KEYS[seed], **OPTIONS)
            np.testing.assert_allclose(history["model"][point, seed], alone, rtol=1e-12)


def test_a_diverging_point_leaves_its_neighbours_alone():
    chosen = federations.algorithm("fed_dual_avg")
    data = fcojax.from_clients(federations.clients())
    _, healthy = fcojax.sweep(
        chosen, grid(client_lr=[0.01]), federations.start(), data, KEYS, **OPTIONS
    )
    _, mixed = fcojax.sweep(
        chosen, grid(client_lr=[1e200, 0.01]), federations.start(), data, KEYS, **OPTIONS
    )
    assert (np.asarray(mixed["dropped"][0]) == 3).any()
    np.testing.assert_allclose(mixed["model"][1], healthy["model"][0], rtol=1e-12)


def test_blocks_of_a_sweep_equal_the_whole():
    chosen = federations.algorithm("fed_mid")
    data = fcojax.from_clients(federations.clients())
    points = sweeps.product(fcojax.algorithms.fed_mid.Hparams, client_lr=[0.01, 0.03])
    _, whole = fcojax.sweep(chosen, points, federations.start(), data, KEYS, **OPTIONS)
    plan = fcojax.engine.round.Plan(OPTIONS["work"], OPTIONS["cohort"])
    states = sweeps.start_all(chosen, lambda key: federations.start(), points, data, KEYS)
    looks = []
    for _ in range(2):
        states, look = sweeps.advance(
            chosen, plan, federations.whole_model, 2, points, data, states, KEYS, None
        )
        looks.append(look["model"])
    np.testing.assert_allclose(np.stack(looks, axis=2), whole["model"][:, :, 1::2], rtol=1e-12)


def test_products_vary_the_last_field_fastest_and_refuse_strangers():
    points = grid(client_lr=[1.0, 2.0], penalty_scale=[3.0, 4.0])
    assert points.client_lr.tolist() == [1, 1, 2, 2]
    assert points.penalty_scale.tolist() == [3, 4, 3, 4]
    assert points.server_lr.tolist() == [1, 1, 1, 1]
    with pytest.raises(ValueError, match="no field clientlr; its fields are"):
        grid(clientlr=[1.0])
    with pytest.raises(ValueError, match="client_lr is -1.0"):
        grid(client_lr=[1.0, -1.0])
