"""A run in a user's loop: two halves equal a whole, states can be saved, others are refused."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp

import fcojax
from fcojax.engine.plan import Program
from fcojax.engine.run import advance_compiled
from tests.support import federations

pytestmark = pytest.mark.gate

KEY = jax.random.key(3)
KEYS = jax.random.split(KEY, 2)
PLAN = fcojax.Plan(
    fcojax.local_steps(2), fcojax.uniform_cohort(cohort_size=3), uploads=fcojax.dropout(0.3)
)


def slopes(params, rows):
    return (rows["x"] @ params["kernel"] + params["bias"] - rows["y"]) ** 2


@functools.cache
def data():
    return fcojax.from_clients(federations.clients())


fed_dyn = fcojax.algorithms.fed_dyn(slopes)
HPARAMS = fcojax.algorithms.fed_dyn.Hparams(client_lr=0.02, prox_step=0.5)
GRID = fcojax.grid.product(
    fcojax.algorithms.fed_dyn.Hparams, client_lr=[0.01, 0.02, 0.03], prox_step=[0.5]
)


def started(hparams=HPARAMS, key=KEY, plan=PLAN):
    return fcojax.start(fed_dyn, hparams, federations.start(), data(), key, plan)


def advanced(state, num_rounds, hparams=HPARAMS):
    return fcojax.advance(
        fed_dyn,
        hparams,
        state,
        data(),
        PLAN,
        num_rounds=num_rounds,
        observe=federations.whole_model,
    )


def assert_equal(a, b):
    """Equal to the last bit, keys included."""

    def plain(leaf):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf)

    jax.tree.map(lambda x, y: np.testing.assert_array_equal(plain(x), plain(y)), a, b)


@pytest.mark.parametrize(
    ("hparams", "key"),
    [
        pytest.param(HPARAMS, KEY, id="run", marks=pytest.mark.slow),
        pytest.param(GRID, KEYS, id="sweep"),
    ],
)
def test_five_rounds_saved_restored_and_five_more_are_ten(hparams, key, tmp_path):
    whole, history = advanced(started(hparams, key), 10, hparams)
    half, first = advanced(started(hparams, key), 5, hparams)
    ocp.save(tmp_path / "state", half)
    restored = ocp.load(tmp_path / "state", started(hparams, key))
    assert_equal(restored, half)
    again, second = advanced(restored, 5, hparams)
    assert_equal(again, whole)
    looks = functools.partial(jnp.concatenate, axis=key.ndim * 2)
    assert_equal(jax.tree.map(lambda a, b: looks([a, b]), first, second), history)


def test_a_look_is_what_the_last_entry_of_the_history_says():
    state, history = advanced(started(), 3)
    now = fcojax.look(fed_dyn, HPARAMS, state, federations.whole_model)
    np.testing.assert_allclose(now["model"], history["model"][-1], rtol=1e-14)


def test_every_seed_may_start_at_a_point_of_its_own():
    def begin(key):
        return jax.tree.map(lambda leaf: leaf + jax.random.uniform(key), federations.start())

    state = fcojax.start(fed_dyn, GRID, begin, data(), KEYS, PLAN)
    kernels = state.server.center["kernel"]
    assert kernels.shape == (3, 2, federations.DIM)
    for seed in range(2):
        for point in range(3):
            np.testing.assert_array_equal(kernels[point, seed], begin(KEYS[seed])["kernel"])


@pytest.mark.parametrize("num_points", [5, 7])
def test_a_sweep_draws_one_cohort_for_each_round_and_seed_whatever_its_grid(num_points):
    """The random bits of cohorts and minibatches have no axis of points."""
    grid = fcojax.grid.product(
        fcojax.algorithms.fed_dyn.Hparams, client_lr=[0.01 * (1 + i) for i in range(num_points)]
    )
    plan = fcojax.Plan(fcojax.local_steps(2, 2), fcojax.uniform_cohort(cohort_size=3))
    state = fcojax.start(fed_dyn, grid, federations.start(), data(), KEYS, plan)
    lowered = advance_compiled.lower(Program(fed_dyn, plan, None, 1, 4), grid, data(), state, None)
    shapes = {
        tuple(map(int, dims[:-1].split("x")))
        for dims in re.findall(r"tensor<((?:\d+x)+)ui32>", lowered.as_text())
    }
    assert any(2 in shape for shape in shapes)  # the random bits of the seeds
    assert not [shape for shape in shapes if num_points in shape]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (
            lambda state: state._replace(clients=jax.tree.map(lambda x: x[:3], state.clients)),
            "clients",
        ),
        (lambda state: state._replace(residuals=jnp.ones(5)), "uploads"),
        (lambda state: state._replace(key=jnp.zeros(2)), "key"),
    ],
)
def test_a_state_of_another_run_is_refused(change, word):
    with pytest.raises(ValueError, match=word):
        advanced(change(started()), 1)


def pulled(hparams=0.5, sweep=False):
    """FedAvg on 0.5 (w - 2)^2 from w = 0, where a local step takes half of the distance."""
    data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
    fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
    hparams = fed_avg.hparams_type(client_lr=hparams)
    if sweep:
        hparams = fcojax.grid.zipped(type(hparams), client_lr=[hparams.client_lr])
    state = fcojax.start(
        fed_avg, hparams, jnp.array(0.0), data, KEYS if sweep else KEY, fcojax.local_steps(1)
    )

    def advance(state, plan, num_rounds):
        return fcojax.advance(fed_avg, hparams, state, data, plan, num_rounds=num_rounds)[0]

    return state, advance


def test_later_rounds_may_have_another_plan():
    state, advance = pulled()
    for num_steps, num_rounds in (3, 2), (1, 4):
        state = advance(state, fcojax.local_steps(num_steps), num_rounds)
    assert float(state.server) == pytest.approx(2 * (1 - 0.5 ** (3 * 2 + 4)), rel=1e-14)


@pytest.mark.parametrize("sweep", [False, True])
def test_a_schedule_ends_with_its_last_value(sweep):
    state, advance = pulled(fcojax.schedule([0.5, 0.25, 0.5]), sweep)
    state = advance(state, fcojax.local_steps(1), 2)
    np.testing.assert_allclose(state.server, 2 * (1 - 0.5 * 0.75), rtol=1e-14)
    with pytest.raises(ValueError, match="schedule of client_lr"):
        advance(state, fcojax.local_steps(1), 2)
    assert int(advance(state, fcojax.local_steps(1), 1).round) == 3
