"""Compilation before the first round."""

import jax
import numpy as np

import fcojax


def test_a_run_compiles_one_program(caplog):
    """Small programs for the population, the rates and the start point would take 20 ms each."""
    # No other test has these sizes: programs for them would be cached.
    rng = np.random.default_rng(0)
    rows = {"x": rng.standard_normal((37, 11)), "y": rng.standard_normal(37)}
    algorithm = fcojax.algorithms.fed_avg(lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2)
    key, params = jax.random.key(0), jax.device_put(np.zeros(11))
    plan = fcojax.Plan(fcojax.local_steps(2, 3), fcojax.uniform_cohort(cohort_size=4))
    with jax.log_compiles(), caplog.at_level("WARNING"):
        data = fcojax.from_rows(rows, [7, 7, 7, 7, 9], weights="examples")
        hparams = algorithm.hparams_type(client_lr=0.1, server_lr=np.float32(0.5))
        data = fcojax.devices.spread(algorithm, hparams, params, data, plan)
        fcojax.run(algorithm, hparams, params, data, key, plan, num_rounds=1)
    found = [line for line in caplog.messages if line.startswith("Finished XLA compilation")]
    assert len(found) == 1 and "run_compiled" in found[0]
