import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.engine import run
from fcojax.engine.grid import num_points
from fcojax.engine.placement import chunk_size
from tests.support import federations

KEYS = jax.vmap(jax.random.key)(jnp.arange(2))
OPTIONS = {
    "num_rounds": 4,
    "plan": fcojax.Plan(fcojax.local_epochs(1, 3), fcojax.uniform_cohort(cohort_size=3)),
    "observe": federations.whole_model,
}


def grid(**values):
    return fcojax.grid.product(fcojax.algorithms.fed_dual_avg.Hparams, **values)


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


@pytest.mark.slow
def test_a_diverging_point_leaves_its_neighbours_alone():
    chosen = federations.algorithm("fed_dual_avg")
    data = fcojax.from_clients(federations.clients())
    _, healthy = fcojax.sweep(
        chosen, grid(client_lr=[0.01]), federations.start(), data, KEYS, **OPTIONS
    )
    with pytest.warns(UserWarning, match="2 of 4"):
        _, mixed = fcojax.sweep(
            chosen, grid(client_lr=[1e200, 0.01]), federations.start(), data, KEYS, **OPTIONS
        )
    assert (np.asarray(mixed["dropped"][0]) == 3).any()
    np.testing.assert_allclose(mixed["model"][1], healthy["model"][0], rtol=1e-12)


@pytest.mark.slow
def test_the_warning_names_three_points_by_what_differs_between_them():
    chosen = federations.algorithm("fed_avg")
    data = fcojax.from_clients(federations.clients())
    points = fcojax.grid.product(
        fcojax.algorithms.fed_avg.Hparams, client_lr=[0.01, 1e200, 1e201], server_lr=[1.0, 2.0]
    )
    named = (
        "=1e+200, server_lr=1; client_lr=1e+200, server_lr=2; client_lr=1e+201, server_lr=1; ..."
    )
    said = re.escape(f"8 of 12 runs became non-finite (client_lr{named}): by round")
    with pytest.warns(UserWarning, match=said):
        fcojax.sweep(chosen, points, federations.start(), data, KEYS, **OPTIONS)
    points = fcojax.grid.product(fcojax.algorithms.fed_avg.Hparams, client_lr=[1e200])
    with pytest.warns(UserWarning, match="2 of 2"):
        fcojax.sweep(chosen, points, federations.start(), data, KEYS, **OPTIONS)


@pytest.mark.slow
def test_blocks_of_a_sweep_equal_the_whole():
    chosen = federations.algorithm("fed_mid")
    data = fcojax.from_clients(federations.clients())
    points = fcojax.grid.product(fcojax.algorithms.fed_mid.Hparams, client_lr=[0.01, 0.03])
    _, whole = fcojax.sweep(chosen, points, federations.start(), data, KEYS, **OPTIONS)
    plan = OPTIONS["plan"]
    state = fcojax.start(chosen, points, lambda key: federations.start(), data, KEYS, plan)
    looks = []
    for _ in range(2):
        state, history = fcojax.advance(
            chosen,
            points,
            state,
            data,
            plan,
            num_rounds=2,
            eval_every=2,
            observe=federations.whole_model,
        )
        looks.append(history["model"])
    np.testing.assert_allclose(
        np.concatenate(looks, axis=2), whole["model"][:, :, 1::2], rtol=1e-12
    )


@pytest.mark.slow
@pytest.mark.parametrize("shape", [{"sweep": 2}, {"clients": 2}])
def test_the_mesh_changes_no_number(shape):
    """Points over devices, or clients over devices; three points leave one device one short."""
    chosen = federations.algorithm("fed_dual_avg")
    data = fcojax.from_clients(federations.clients())
    points = grid(client_lr=[0.01, 0.03, 0.05], penalty_scale=[0.2])
    sweep = functools.partial(fcojax.sweep, chosen, points, federations.start())
    _, expected = sweep(data, KEYS, **OPTIONS)
    spread = fcojax.devices.shard_clients(data, fcojax.devices.device_mesh(**shape))
    _, found = sweep(spread, KEYS, **OPTIONS)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14), found, expected
    )


@pytest.mark.slow
def test_points_that_do_not_fit_run_in_chunks():
    chosen = federations.algorithm("fed_dual_avg")
    data = fcojax.from_clients(federations.clients())
    points = grid(client_lr=[0.01, 0.03, 0.05], penalty_scale=[0.2])
    sweep = functools.partial(fcojax.sweep, chosen, points, federations.start(), data, KEYS)
    model, history = sweep(**OPTIONS)
    chunked_model, chunked = sweep(
        **OPTIONS | {"plan": OPTIONS["plan"]._replace(point_chunk_size=2)}
    )
    np.testing.assert_allclose(chunked["model"], history["model"], rtol=1e-12)
    np.testing.assert_allclose(chunked_model["kernel"], model["kernel"], rtol=1e-12)


@pytest.mark.slow
def test_memory_decides_how_many_points_run_side_by_side(monkeypatch):
    chosen = federations.algorithm("fed_dual_avg")
    data = fcojax.from_clients(federations.clients())
    points = grid(client_lr=[0.01, 0.02, 0.03, 0.04, 0.05, 0.06], penalty_scale=[0.2])
    sweep = functools.partial(fcojax.sweep, chosen, points, federations.start(), data, KEYS)
    options = OPTIONS | {"num_rounds": 3}  # a program that no other test has traced
    _, expected = sweep(**options)
    monkeypatch.setattr(chunk_size, "device_memory", lambda: 1)
    widths = []
    advance = run.advance_traced

    def recording(program, grid, *args):
        widths.append(num_points(grid))
        return advance(program, grid, *args)

    monkeypatch.setattr(run, "advance_traced", recording)
    _, found = sweep(**options)
    assert widths == [1]  # one program, point by point
    np.testing.assert_allclose(found["model"], expected["model"], rtol=1e-12)
