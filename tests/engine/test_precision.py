"""Products and means are in full precision unless the user chooses otherwise."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms
from fcojax.engine.hparams import as_arrays
from fcojax.engine.plan import Program
from fcojax.engine.run import advance_compiled, look_traced

DATA = fcojax.from_rows({"x": np.ones((6, 3), np.float32)}, [2, 1, 3])
PLAN = fcojax.Plan(fcojax.local_steps(2))
HPARAMS = as_arrays(algorithms.fed_avg.Hparams(client_lr=0.1))
FULL = {("HIGHEST", "HIGHEST")}


def loss(w, rows):
    return (rows["x"] @ w) ** 2


def loss_of_its_own(w, rows):
    return jnp.matmul(rows["x"], w, precision="default") ** 2


def loss_under_a_context(w, rows):
    with jax.default_matmul_precision("high"):
        return loss(w, rows)


def a_look(hparams, model, context):
    return {"square": model @ model}


def a_round(loss):
    algorithm, at = algorithms.fed_avg(loss), jnp.ones(3, jnp.float32)
    state = fcojax.start(algorithm, HPARAMS, at, DATA, jax.random.key(0), PLAN)
    return advance_compiled.trace(
        Program(algorithm, PLAN, a_look, 1, 1), HPARAMS, DATA, state, None
    )


def precisions(traced, platform):
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    found = re.findall(r"dot_general.*?precision = \[(\w+), (\w+)\]", text)
    assert len(found) == text.count("stablehlo.dot_general") > 0
    return set(found)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_all_products_are_in_full_precision_by_default(platform):
    assert jax.config.jax_default_matmul_precision is None
    assert precisions(a_round(loss), platform) == FULL


def test_a_users_choice_wins():
    """The choice may be a context, an option, inside the loss, or for a single product."""
    with jax.default_matmul_precision("default"):
        assert precisions(a_round(loss), "cuda") == {("DEFAULT", "DEFAULT")}
    jax.config.update("jax_default_matmul_precision", "tensorfloat32")
    try:
        assert precisions(a_round(loss), "cuda") == {("HIGH", "HIGH")}
    finally:
        jax.config.update("jax_default_matmul_precision", None)
    assert ("HIGH", "HIGH") in precisions(a_round(loss_under_a_context), "cuda")
    assert ("DEFAULT", "DEFAULT") in precisions(a_round(loss_of_its_own), "cuda")
    assert precisions(a_round(loss), "cuda") == FULL


def test_a_run_leaves_the_users_own_programs_alone():
    algorithm = algorithms.fed_avg(loss)
    jax.eval_shape(
        lambda: look_traced(
            algorithm,
            None,
            HPARAMS,
            fcojax.start(algorithm, HPARAMS, jnp.ones(3), DATA, jax.random.key(0), PLAN),
        )
    )
    own = jax.jit(lambda x: x @ x).trace(jnp.ones((2, 2), jnp.float32))
    assert precisions(own, "cuda") == {("DEFAULT", "DEFAULT")}


@pytest.mark.parametrize("chunk", [1, 100, 1000])
def test_the_mean_of_a_thousand_bfloat16_uploads_is_right_to_one_ulp(chunk):
    """A sum in bfloat16 would stop growing at 256 times an upload."""
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 2.0, 1000)
    uploads = jnp.asarray(rng.uniform(0.5, 1.5, (1000, 8)), jnp.bfloat16)
    data = fcojax.from_rows({"a": np.asarray(uploads, np.float32)}, [1] * 1000, weights)

    def towards(w, rows):
        return -jnp.sum(w[None, :] * rows["a"].astype(jnp.bfloat16), axis=-1)

    algorithm = algorithms.fed_avg(towards)
    plan = fcojax.Plan(fcojax.local_steps(1), client_chunk_size=chunk)
    model, _ = fcojax.run(
        algorithm,
        algorithms.fed_avg.Hparams(client_lr=1.0),
        jnp.zeros(8, jnp.bfloat16),
        data,
        jax.random.key(0),
        plan,
        num_rounds=1,
    )
    assert model.dtype == jnp.bfloat16
    mean = np.average(np.asarray(uploads, np.float64), axis=0, weights=weights)
    ulp = 2.0 ** (np.floor(np.log2(mean)) - 7)
    assert (np.abs(np.asarray(model, np.float64) - mean) <= ulp).all()
