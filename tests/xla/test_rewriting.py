"""Convolutions and poolings of any library: the same numbers, and no XLA forms on a CPU."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen
from jax import lax

import fcojax
from fcojax.xla import jaxprs, rules
from fcojax.xla.jaxprs import fast_inside_loops
from tests.support.windows import normal, slow_primitives

pytestmark = pytest.mark.gate


def test_dilated_pooling_is_that_of_xla():
    """This includes gradients, which XLA has only for some."""
    x = normal(2, 9, 8)

    def pool(x):
        return lax.reduce_window(
            x, -jnp.inf, lax.max, (1, 3, 2), (1, 2, 1), "VALID", (1, 2, 1), (1, 1, 2)
        )

    ours = fast_inside_loops(pool)
    np.testing.assert_array_equal(ours(x), pool(x))
    assert jax.grad(lambda x: jnp.sum(ours(x)))(x).sum() == ours(x).size


def layer(x, kernel):
    """A convolution and a pooling, with axes [batch, space, channels]."""
    y = lax.conv_general_dilated(x, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))
    return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 1), (1, 1, 1), "SAME")


@jax.custom_jvp
def with_rule(x, kernel):
    return layer(x, kernel)


@with_rule.defjvp
def _rule(primals, tangents):
    x, kernel = primals
    x_dot, kernel_dot = tangents
    return with_rule(x, kernel), x_dot + jnp.sum(kernel_dot) * x


@jax.custom_vjp
def with_backward(x, kernel):
    return layer(x, kernel)


with_backward.defvjp(
    lambda x, kernel: (with_backward(x, kernel), (x, kernel)),
    lambda kept, slope: (2 * slope, jnp.sum(slope) * kept[1]),
)


def in_a_scan(x, kernel):
    return lax.scan(lambda y, _: (layer(y, kernel), jnp.sum(y)), x, length=2)[0]


def in_a_while_loop(x, kernel):
    def small(state):
        return (state[0] < 3) & (jnp.sum(layer(state[1], kernel)) < 1e9)

    return lax.while_loop(small, lambda state: (state[0] + 1, layer(state[1], kernel)), (0, x))[1]


def in_a_branch(x, kernel):
    return lax.cond(jnp.sum(x) > 100, lambda: x, lambda: layer(x, kernel))


def of_a_switch(x, kernel):
    return lax.switch(1, [lambda y: y, lambda y: layer(y, kernel), jnp.sin], x)


WRAPPED = {
    "plain": layer,
    "jit": jax.jit(layer),
    "checkpoint": jax.checkpoint(layer),
    "checkpoint of what is saved": jax.checkpoint(
        layer, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    ),
    "scan": in_a_scan,
    "cond": in_a_branch,
    "switch": of_a_switch,
    "closed over": lambda x, kernel: jax.jit(lambda y: layer(y, kernel))(x),
    "vmap over kernels": lambda x, kernel: jax.vmap(layer, (None, 0))(
        x, jnp.stack([kernel, 2 * kernel])
    ).sum(0),
    "jit in scan in checkpoint": jax.checkpoint(lambda x, kernel: jax.jit(in_a_scan)(x, kernel)),
    "while": in_a_while_loop,
    "custom_jvp": with_rule,
    "custom_vjp": with_backward,
}
QUICK = {"jit", "scan", "cond", "vmap over kernels", "custom_vjp"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in WRAPPED],
)
def test_windows_inside_of_other_programs(name):
    """Values, and gradients if the loop has them; a user's derivative rule is kept."""
    x, kernel = normal(2, 6, 3), 0.3 * normal(2, 3, 3, seed=1)
    ours = fast_inside_loops(WRAPPED[name])
    np.testing.assert_allclose(ours(x, kernel), WRAPPED[name](x, kernel), rtol=1e-12, atol=1e-12)
    assert slow_primitives(WRAPPED[name], x, kernel)
    assert not slow_primitives(ours, x, kernel)
    if name != "while":

        def slopes(function):
            return jax.jit(jax.grad(lambda *args: jnp.sum(function(*args) ** 3), (0, 1)))

        both = (slopes(function)(x, kernel) for function in (ours, WRAPPED[name]))
        chex.assert_trees_all_close(*both, rtol=1e-11, atol=1e-11)


def test_what_is_left_as_it_is():
    x, kernel = normal(2, 6, 3), normal(2, 3, 3)
    ours = fast_inside_loops(layer)
    with rules.pretend("tpu"):
        assert slow_primitives(ours, x, kernel) == {"conv_general_dilated"}
    with jaxprs.as_written():
        assert slow_primitives(ours, x, kernel)
    assert slow_primitives(ours, normal(1, 300, 1), normal(200, 1, 1)) == {"conv_general_dilated"}
    calls = []
    plain = fast_inside_loops(lambda x: calls.append(x) or x + 1)
    assert plain(1) == 2 and calls[-1] == 1
    assert jax.jit(plain)(1) == 2 and len(calls) == 3  # inside of a trace it is traced once
    assert fast_inside_loops(lambda x: (layer(x, kernel), "a word"))(x)[1] == "a word"
    assert fast_inside_loops(lambda x, name: name)(x, "a word") == "a word"


@pytest.fixture
def lines_in_programs():
    limit = jax.config.values["jax_traceback_in_locations_limit"]
    jax.config.update("jax_traceback_in_locations_limit", 100)
    yield
    jax.config.update("jax_traceback_in_locations_limit", limit)


def test_errors_and_programs_name_the_line_of_the_user(lines_in_programs):
    ours = fast_inside_loops(layer)
    with pytest.raises(ValueError, match="feature") as raised:
        ours(normal(2, 6, 4), normal(2, 3, 3))
    assert "layer" in [entry.name for entry in raised.traceback]
    text = jax.jit(ours).lower(normal(2, 6, 3), normal(2, 3, 3)).as_text(debug_info=True)
    assert "test_rewriting.py" in text


class Net(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.relu(linen.Conv(4, (3, 3))(x))
        x = linen.max_pool(x, (2, 2), (2, 2))
        return linen.Dense(3)(x.reshape(len(x), -1))


def of_linen(x):
    params = Net().init(jax.random.key(0), x)
    return params, Net().apply


def of_equinox(x):
    eqx = pytest.importorskip("equinox")
    convolution = eqx.nn.Conv2d(x.shape[-1], 4, 3, key=jax.random.key(0))
    model = eqx.nn.Sequential([convolution, eqx.nn.Lambda(jax.nn.relu), eqx.nn.MaxPool2d(2, 2)])
    params, static = eqx.partition(model, eqx.is_inexact_array)
    params = jax.tree.map(lambda leaf: leaf.astype(x.dtype), params)
    return params, lambda params, x: jax.vmap(eqx.combine(params, static))(jnp.moveaxis(x, -1, 1))


@pytest.mark.parametrize("make", [of_linen, pytest.param(of_equinox, marks=pytest.mark.slow)])
def test_losses_and_observers_of_a_run_are_rewritten(make):
    data = fcojax.from_rows({"x": normal(4, 8, 8, 3).astype(np.float32)}, [2, 2])
    params, apply = make(data.examples["x"])

    def loss(params, rows):
        return jnp.mean(apply(params, rows["x"]).reshape(len(rows["x"]), -1) ** 2, axis=1)

    def observe(hparams, model, context):
        return {"largest": jnp.max(apply(model, context))}

    fed_avg, plan = fcojax.algorithms.fed_avg(loss), fcojax.local_steps(2, batch_size=2)

    def run(params, data):
        given = fed_avg, fed_avg.hparams_type(client_lr=0.1), params, data, jax.random.key(0), plan
        options = {"observe": observe, "context": data.examples["x"]}
        return fcojax.run(*given, num_rounds=2, **options)

    assert not slow_primitives(run, params, data)
    with jaxprs.as_written():
        assert {"conv_general_dilated", "reduce_window_max"} <= slow_primitives(run, params, data)
        theirs = run(params, data)
    chex.assert_trees_all_close(run(params, data), theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_convolution_and_a_scan_in_a_loss_on_a_mesh():
    """On two devices the result equals JAX's own form on one."""
    images = normal(12, 6, 5, seed=2).astype(np.float32)
    data = fcojax.from_rows({"x": images}, [3, 2, 4, 3])
    params = {"kernel": normal(3, 5, 5, seed=3).astype(np.float32) / 4, "decay": jnp.float32(0.5)}

    def loss(params, rows):
        def step(state, x):
            state = jnp.tanh(params["decay"] * state + x)
            return state, jnp.mean(state, axis=1)

        features = jnp.moveaxis(layer(rows["x"], params["kernel"]), 1, 0)
        return jnp.sum(lax.scan(step, jnp.zeros_like(features[0]), features)[1] ** 2, axis=0)

    fed_avg, plan = fcojax.algorithms.fed_avg(loss), fcojax.local_steps(3, batch_size=2)

    def run(params, data):
        given = fed_avg, fed_avg.hparams_type(client_lr=0.3), params, data, jax.random.key(0), plan
        return fcojax.run(*given, num_rounds=2)[0]

    spread = fcojax.devices.shard_clients(data, fcojax.devices.device_mesh(clients=2))
    ours = run(params, spread)
    assert not slow_primitives(run, params, spread)
    with jaxprs.as_written():
        assert slow_primitives(run, params, data)
        theirs = run(params, data)
    for name, start in params.items():
        assert np.abs(theirs[name] - start).max() > 1e-2
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-6)
