"""Corner cases: integers, shapes of losses, sums and steps that overflow."""

import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms
from fcojax.algorithms import Algorithm, ClientResult, Facts, NewRow, mean_loss
from fcojax.algorithms.local import Batch
from fcojax.engine.nonfinite import warn_of_nonfinite
from fcojax.engine.plan import Plan
from fcojax.engine.validation import require_run
from fcojax.problems import from_clients, population_loss
from fcojax.types import Scalar
from tests.support import federations

KEY = jax.random.key(0)
ONE_STEP = fcojax.local_steps(1)


# Means of integers.


class NoNumbers(NamedTuple):
    """Hyperparameters of this test's algorithm."""

    client_lr: Scalar = 1.0


def counting(dtype):
    """Clients send and report their numbers of steps, and the server adds up the uploads."""

    def init(hparams, params):
        return params, ()

    def client_update(hparams, message, client, local, key):
        steps = local.num_steps.astype(dtype)
        return ClientResult(client, steps, {"num_steps": steps})

    def server_update(hparams, server, mean_upload, fraction, key):
        return server + mean_upload.astype(server.dtype)

    return Algorithm(
        init,
        lambda hparams, server: server,
        client_update,
        server_update,
        lambda hparams, server: server,
        hparams_type=NoNumbers,
    )


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.uint8, jnp.int64])
def test_the_mean_of_whole_numbers_is_their_mean(dtype):
    data = fcojax.from_clients([{"a": np.ones(1)}] * 4, weights=[1.0, 1.0, 1.0, 2.0])
    work = fcojax.local_steps([5, 5, 4, 4])
    model, history = fcojax.run(
        counting(dtype), NoNumbers(), jnp.array(0.0), data, KEY, work, num_rounds=3
    )
    np.testing.assert_allclose(history["num_steps"], (5 + 5 + 4 + 2 * 4) / 5)
    np.testing.assert_allclose(model, 3 * (5 + 5 + 4 + 2 * 4) / 5)


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


def recording(as_row):
    """FedAvg whose server keeps its models before the last three rounds."""
    plain = algorithms.fed_avg(pull)

    def init(hparams, params):
        return (params, jnp.zeros((3, *params.shape), params.dtype), jnp.zeros(1, jnp.int32)), ()

    def server_update(hparams, server, mean, fraction, key):
        params, past, [count] = server
        after = plain.server_update(hparams, params, mean, fraction, key)
        if as_row:
            return after, NewRow(count % 3, params), NewRow(jnp.int32(0), count + 1)
        after = jnp.where(jnp.isfinite(after), after, params)
        return after, past.at[count % 3].set(params), jnp.array([count + 1])

    return plain._replace(
        init=init,
        broadcast=lambda hparams, server: server[0],
        server_update=server_update,
        model=lambda hparams, server: server[0],
    )


def test_a_row_is_written_as_the_whole_array_would_be():
    """And also if a step is refused, in every third round, and if nobody takes part, at last."""
    data = fcojax.from_clients([{"a": np.full(2, 1e30, np.float32)}] * 2)
    cohort = fcojax.from_trace([[0, 1]] * 6 + [[]])
    rates = fcojax.schedule([1.0, 1.0, 1e10, 2.0, 3.0, 1e10, 1.0])
    hparams = algorithms.fed_avg.Hparams(client_lr=1.0, server_lr=rates)
    ends = []
    for as_row in (True, False):
        chosen, plan = recording(as_row), fcojax.Plan(ONE_STEP, cohort)
        state = fcojax.start(chosen, hparams, jnp.zeros(2, jnp.float32), data, KEY, plan)
        state, history = fcojax.advance(chosen, hparams, state, data, plan, num_rounds=7)
        assert history["refused"].tolist() == [0, 0, int(as_row), 0, 0, int(as_row), 0]
        ends.append(state.server)
    (rows, counted), (arrays, before) = (end[1:] for end in ends)
    assert int(counted[0]) == 7 and int(before[0]) == 6  # without a client only rows are written
    np.testing.assert_array_equal(ends[0][0], ends[1][0])
    np.testing.assert_array_equal(rows, arrays.at[6 % 3].set(ends[0][0]))


@pytest.mark.parametrize("weights", [None, [1e3] * 6, [1e-30] * 6])
@pytest.mark.parametrize("size", [1e36, 3e38])
def test_the_mean_of_finite_uploads_is_finite(size, weights):
    """This holds even if their sum, or their weighted sum, is not finite."""
    hparams = algorithms.fed_avg.Hparams(client_lr=1.0, server_lr=1.0)
    model, history = ran([size] * 6, hparams, 1, weights)
    np.testing.assert_allclose(float(model), size, rtol=1e-6)
    assert history["dropped"].sum() == 0 and history["refused"].sum() == 0


def refuses_to_be_traced(*args):
    raise AssertionError("something was traced")


def needing_everyone():
    chosen = federations.algorithm("fed_avg")
    return chosen._replace(client_update=refuses_to_be_traced, facts=Facts(needs_everyone=True))


def test_a_cohort_of_all_in_another_order_is_everyone():
    """The mean does not depend on the order, so neither does the check."""
    data, rates = from_clients(federations.clients()), federations.hparams("fed_avg")
    for size, chosen in ((5, needing_everyone()), (4, federations.algorithm("fed_avg"))):
        plan = Plan(fcojax.local_steps(1), fcojax.uniform_cohort(cohort_size=size))
        require_run(chosen, plan, rates, data, jax.random.key(0))


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
