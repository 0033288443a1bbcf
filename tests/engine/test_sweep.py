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
from fcojax.engine.state import with_repeats
from tests.support import federations

pytestmark = pytest.mark.gate

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


@pytest.mark.parametrize(("num_points", "num_seeds", "runs"), [(1, 3, (1, 4)), (3, 3, (4, 3))])
def test_devices_share_the_seeds_of_fewer_points_than_devices(num_points, num_seeds, runs):
    """Three seeds of one point are two on each device; with more points, devices share those."""
    chosen = federations.algorithm("fed_dual_avg")
    data = fcojax.from_clients(federations.clients())
    points = grid(client_lr=[0.01, 0.03, 0.05][:num_points], penalty_scale=[0.2])
    keys = jax.random.split(jax.random.key(3), num_seeds)
    sweep = functools.partial(fcojax.sweep, chosen, points, federations.start())
    expected = sweep(data, keys, **OPTIONS)
    mesh = fcojax.devices.device_mesh(sweep=2)
    spread = fcojax.devices.shard_clients(data, mesh)
    assert with_repeats(spread, num_points, num_seeds) == runs
    found = sweep(spread, keys, **OPTIONS)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14), found, expected
    )
    everyone = jax.random.split(keys[0], 2 * num_points)
    states = fcojax.start(chosen, points, federations.start(), spread, everyone, OPTIONS["plan"])
    model = states.server.dual["kernel"]
    assert model.sharding.shard_shape(model.shape)[:2] == (num_points, num_points)


@pytest.mark.slow
def test_shared_seeds_have_their_own_residuals_and_lost_uploads():
    """Client states, an uplink with feedback and lost uploads, all drawn or kept by seed."""
    chosen = fcojax.algorithms.scaffold(federations.loss, federations.kernel_l1())
    hparams = fcojax.algorithms.scaffold.Hparams
    points = fcojax.grid.product(hparams, client_lr=[0.02], penalty_scale=[0.2])
    data = fcojax.from_clients(federations.clients())
    cohort = fcojax.dropout(fcojax.uniform_cohort(cohort_size=3), 0.3)
    uplink = fcojax.uploads.ef14(fcojax.uploads.top_k(0.5))
    plan = fcojax.Plan(fcojax.local_epochs(1, 3), cohort, uplink)
    keys = jax.random.split(jax.random.key(3), 3)
    sweep = functools.partial(fcojax.sweep, chosen, points, federations.start())
    options = OPTIONS | {"plan": plan}
    expected = sweep(data, keys, **options)
    mesh = fcojax.devices.device_mesh(sweep=2)
    found = sweep(fcojax.devices.shard_clients(data, mesh), keys, **options)
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


def pulled(sweep=False, **options):
    """FedAvg on 0.5 (w - a)^2; rates that halve the distance, or more, in a round."""
    data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
    fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
    hparams, key = fed_avg.hparams_type(client_lr=0.5), KEYS[0]
    if sweep:
        hparams = fcojax.grid.product(type(hparams), client_lr=[0.5, 0.6, 0.7])
    plan = fcojax.Plan(fcojax.local_steps(1), point_chunk_size=2)
    function = fcojax.sweep if sweep else fcojax.run
    return function(
        fed_avg,
        hparams,
        jnp.zeros(()),
        data,
        KEYS if sweep else key,
        plan,
        num_rounds=6,
        eval_every=2,
        observe=lambda hparams, w, context: {"w": w},
        **options,
    )


@pytest.mark.parametrize(("sweep", "rounds"), [(False, [2, 4, 6]), (True, [1, 2, 3, 4, 5, 6])])
def test_progress_is_reported_and_changes_nothing(sweep, rounds):
    """In a sweep of three points, two at a time, rounds are a mean over both parts."""
    seen = []
    found = pulled(sweep, progress=lambda rounds, history: seen.append((rounds, history)))
    expected = pulled(sweep)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert [done for done, _ in seen] == rounds
    parts = [
        np.concatenate([h["w"] for _, h in seen[i : i + 3]], -1) for i in range(0, len(seen), 3)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), expected[1]["w"])


def test_progress_inside_of_a_larger_program_is_refused():
    with pytest.raises(ValueError, match="progress is called between programs"):
        jax.jit(lambda: pulled(progress=print))()
    with pytest.raises(ValueError, match="progress is 3"):
        pulled(progress=3)
