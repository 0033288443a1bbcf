import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.engine.nonfinite import warn_of_nonfinite
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
        warn_of_nonfinite(wait=True)
    assert (np.asarray(mixed["dropped"][0]) == 3).any()
    np.testing.assert_allclose(mixed["model"][1], healthy["model"][0], rtol=1e-12)


def pulled(sweep=False, **options):
    """FedAvg on 0.5 (w - a)^2, with rates that at least halve the distance in a round."""
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


@pytest.mark.slow
@pytest.mark.parametrize(("sweep", "rounds"), [(False, [2, 4, 6]), (True, [1, 2, 3, 4, 5, 6])])
def test_progress_is_reported_and_changes_nothing(sweep, rounds):
    """In a sweep of three points, two at a time, the reported rounds are the mean of both parts."""
    seen = []
    found = pulled(sweep, progress=lambda rounds, history: seen.append((rounds, history)))
    expected = pulled(sweep)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert [done for done, _ in seen] == rounds
    parts = [
        np.concatenate([h["w"] for _, h in seen[i : i + 3]], -1) for i in range(0, len(seen), 3)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), expected[1]["w"])


def test_parts_of_a_sweep_share_a_program_that_a_second_call_finds(caplog):
    chosen = federations.algorithm("fed_dual_avg")
    data = fcojax.from_clients(federations.clients())
    points = grid(client_lr=[0.01, 0.03, 0.05], penalty_scale=[0.2])
    options = OPTIONS | {"plan": OPTIONS["plan"]._replace(point_chunk_size=2)}
    sweep = functools.partial(fcojax.sweep, chosen, points, federations.start(), data, KEYS)
    sweep(**options)
    with jax.log_compiles():
        sweep(**options)
    assert not [text for text in caplog.messages if text.startswith("Compiling")]
