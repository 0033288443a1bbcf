"""Tables of results: each cell against its entry of the history."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.algorithms import fed_avg

pandas = pytest.importorskip("pandas")

DATA = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
FED_AVG = fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
STEPS = fcojax.local_steps(1)
KEY = jax.random.key(0)
KEYS = jax.random.split(KEY, 3)
GRID = fcojax.grid.product(fed_avg.Hparams, client_lr=[0.1, 0.5], server_lr=[1.0, 0.7])


def observe(hparams, w, context):
    return {"w": w, "both": jnp.stack([w, hparams.client_lr]), "parts": {"square": w**2}}


def swept(grid=GRID):
    given = FED_AVG, grid, jnp.array(0.0), DATA, KEYS, STEPS
    return fcojax.sweep(*given, num_rounds=6, eval_every=2, observe=observe)[1]


def test_a_sweep_has_a_row_for_each_point_seed_and_evaluation():
    history = swept()
    frame = fcojax.to_frame(GRID, KEYS, history)
    assert len(frame) == 4 * 3 * 3
    assert {"client_lr", "server_lr", "seed", "round", "w", "both.0", "both.1"} < set(frame)
    for point in range(4):
        rates = (frame.client_lr == [0.1, 0.1, 0.5, 0.5][point]) & (
            frame.server_lr == [1.0, 0.7, 1.0, 0.7][point]
        )
        for seed in range(3):
            rows = frame[rates & (frame.seed == seed)]
            np.testing.assert_array_equal(rows["round"], [2, 4, 6])
            np.testing.assert_array_equal(rows.w, history["w"][point, seed])
            np.testing.assert_array_equal(rows["both.1"], history["both"][point, seed, :, 1])
            np.testing.assert_array_equal(
                rows["parts.square"], history["parts"]["square"][point, seed]
            )


def test_a_run_has_the_columns_of_a_sweep():
    hparams = fed_avg.Hparams(client_lr=0.1)
    _, history = fcojax.run(
        FED_AVG, hparams, jnp.array(0.0), DATA, KEY, STEPS, num_rounds=4, observe=observe
    )
    frame = fcojax.to_frame(hparams, KEY, history)
    assert set(frame) == set(fcojax.to_frame(GRID, KEYS, swept()))
    np.testing.assert_array_equal(frame.w, history["w"])
    assert (frame.seed == 0).all() and (frame.client_lr == 0.1).all()
    together = pandas.concat([frame, fcojax.to_frame(GRID, KEYS, swept())])
    assert together.groupby("client_lr").w.count().to_dict() == {0.1: 4 + 18, 0.5: 18}


def test_a_schedule_has_its_value_of_each_round():
    rates = [fcojax.schedule(np.arange(1, 7) / 10), fcojax.schedule(np.arange(6, 0, -1) / 10)]
    grid = fcojax.grid.product(fed_avg.Hparams, client_lr=rates)
    frame = fcojax.to_frame(grid, KEYS, swept(grid))
    np.testing.assert_allclose(frame.client_lr[:3], [0.2, 0.4, 0.6], rtol=1e-6)
    np.testing.assert_allclose(frame.client_lr[9:12], [0.5, 0.3, 0.1], rtol=1e-6)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (lambda history: (GRID, KEYS[:2], history), r"axes \[4, 2, 'evaluations'\]"),
        (lambda history: (GRID, KEYS, history | {"client_lr": history["w"]}), "rename"),
    ],
)
def test_a_history_of_something_else_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        fcojax.to_frame(*arguments(swept()))


def test_rows_of_a_workdir_and_of_its_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"round": 1, "loss": 0.5}\n{"round": 2, "loss": null}\n{"rou')
    for place in (tmp_path, path, str(path)):
        assert fcojax.rows.load(place) == [{"round": 1, "loss": 0.5}, {"round": 2, "loss": None}]
        frame = fcojax.rows.read(place)
        np.testing.assert_array_equal(frame.loss, [0.5, np.nan])
    with pytest.raises(ValueError, match="pass the workdir of a run"):
        fcojax.rows.read(tmp_path / "runs")
    path.write_text("{}\n{\n")
    with pytest.raises(ValueError, match="line 2 of"):
        fcojax.rows.read(path)
    path.write_bytes(b"{}\n\xff\n")
    with pytest.raises(ValueError, match="line 2 of"):
        fcojax.rows.load(path)
    path.write_text("{}\n[1]\n")
    with pytest.raises(ValueError, match=r"line 2 of .* is not a row but \[1\]"):
        fcojax.rows.load(path)
