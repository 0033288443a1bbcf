"""Corner cases: integers, shapes of losses, sums and steps that overflow."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms, from_clients
from fcojax.algorithms import mean_loss
from fcojax.algorithms.local import Batch
from fcojax.engine.nonfinite import warn_of_nonfinite
from fcojax.problems import population_loss

KEY = jax.random.key(0)
ONE_STEP = fcojax.local_steps(1)


# Shapes of losses.

B, D = 3, 3


def shaped_rows():
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((B, D)),
        "y": rng.standard_normal(B),
        "column": rng.standard_normal((B, 1)),
    }


SHAPES = {
    "a sum": (lambda w, r: jnp.sum((r["x"] @ w - r["y"]) ** 2), jnp.ones(D), ()),
    "a column": (lambda w, r: ((r["x"] @ w - r["y"]) ** 2)[:, None], jnp.ones(D), (B, 1)),
    "as many features as examples": (lambda w, r: (r["x"] * w[None, :]) ** 2, jnp.ones(D), (B, D)),
}


@pytest.mark.parametrize("where", ["run", "population_loss", "mean_loss"])
@pytest.mark.parametrize("case", SHAPES)
def test_a_loss_is_one_number_an_example(case, where):
    loss, params, shape = SHAPES[case]
    data = fcojax.from_clients([shaped_rows()] * 2)
    with pytest.raises(ValueError, match=re.escape(f"shape {shape} for {B} examples")):
        if where == "run":
            fcojax.run(
                algorithms.fed_avg(loss),
                algorithms.fed_avg.Hparams(),
                params,
                data,
                KEY,
                ONE_STEP,
                num_rounds=1,
            )
        elif where == "population_loss":
            population_loss(loss, params, fcojax.from_clients([shaped_rows()]))
        else:
            mean_loss(loss)(params, Batch(shaped_rows(), jnp.ones(B)))


# Sums and steps that overflow.


def pull(w, rows):
    """Its gradient is exactly -a, without a larger intermediate value."""
    return -rows["a"] * w


def ran(values, hparams, num_rounds=2, weights=None, dtype=jnp.float32):
    data = fcojax.from_clients([{"a": np.full(1, v, dtype)} for v in values], weights)
    return fcojax.run(
        algorithms.fed_avg(pull),
        hparams,
        jnp.zeros((), dtype),
        data,
        KEY,
        ONE_STEP,
        num_rounds=num_rounds,
    )


def test_a_server_step_that_overflows_is_not_taken_and_is_counted():
    hparams = algorithms.fed_avg.Hparams(client_lr=1.0, server_lr=1e10)
    with pytest.warns(UserWarning, match="non-finite"):
        model, history = ran([1e30, 1e30], hparams)
        warn_of_nonfinite(wait=True)
    assert float(model) == 0.0
    assert history["refused"].tolist() == [1, 1]
    assert history["dropped"].tolist() == [0, 0]
    assert history["participants"].tolist() == [2, 2]


@pytest.mark.parametrize("weights", [None, [1e3] * 6, [1e-30] * 6])
@pytest.mark.parametrize("size", [1e36, 3e38])
def test_the_mean_of_finite_uploads_is_finite(size, weights):
    """This holds even if their sum, or their weighted sum, is not finite."""
    hparams = algorithms.fed_avg.Hparams(client_lr=1.0, server_lr=1.0)
    model, history = ran([size] * 6, hparams, 1, weights)
    np.testing.assert_allclose(float(model), size, rtol=1e-6)
    assert history["dropped"].sum() == 0 and history["refused"].sum() == 0


@jax.tree_util.register_pytree_node_class
class Line:
    """A model that is a pytree and a function of its input, like Equinox's modules."""

    def __init__(self, slope):
        self.slope = slope

    def __call__(self, x):
        return self.slope * x

    def tree_flatten(self):
        return (self.slope,), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


def test_a_pytree_that_can_be_called_is_a_start_point():
    data = from_clients([{"x": jnp.array([1.0]), "y": jnp.array([2.0])}] * 2)
    algorithm = fcojax.algorithms.fed_avg(lambda line, rows: (line(rows["x"]) - rows["y"]) ** 2 / 2)
    hparams, plan = algorithm.hparams_type(client_lr=0.5), fcojax.local_steps(1)
    key = jax.random.key(0)
    line, _ = fcojax.run(algorithm, hparams, Line(jnp.zeros(())), data, key, plan, num_rounds=2)
    assert isinstance(line, Line) and float(line.slope) == 1.5
    state = fcojax.start(algorithm, hparams, Line(jnp.zeros(())), data, key, plan)
    assert float(fcojax.read_model(algorithm, hparams, state).slope) == 0.0
    with pytest.raises(TypeError, match="not a valid JAX array type"):
        fcojax.run(algorithm, hparams, lambda key: 0.0, data, key, plan, num_rounds=2)
