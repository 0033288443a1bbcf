"""Recurrent layers against ``jax.lax.scan`` differentiated by JAX."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fcojax.xla.recurrence import recurrence


def cell(states, drive, product):
    """A small LSTM with two states."""
    h, c = states
    forget, new, out = jnp.split(drive + product, 3, axis=-1)
    c = jax.nn.sigmoid(forget) * c + jnp.tanh(new)
    return jax.nn.sigmoid(out) * jnp.tanh(c) + 0.1 * h, c


def by_scan(kernel, bias, drives, states):
    def step(states, drive):
        product = states[0] @ kernel
        states = cell(states, drive, product if bias is None else product + bias[None])
        return states, states[0]

    return lax.scan(step, states, drives)[1]


def ours(kernel, bias, drives, states):
    return recurrence(cell, kernel, drives, states, bias=bias)


def arguments(biased=True, lead=()):
    rng = np.random.default_rng(0)
    shapes = ((3, 9), (9,), (5, 2, 9), (2, 3), (2, 3))
    kernel, bias, drives, h, c = (
        jnp.asarray(0.5 * rng.standard_normal((*lead, *shape))) for shape in shapes
    )
    return kernel, bias if biased else None, drives, (h, c)


def weighed(layer):
    """A scalar function of the outputs, with a different gradient and curvature in each entry."""

    def number(*given):
        outputs = layer(*given)
        places = jnp.arange(outputs.size, dtype=outputs.dtype).reshape(outputs.shape)
        return jnp.sum(jnp.cos(places + outputs))

    return number


assert_close = functools.partial(chex.assert_trees_all_close, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("biased", [True, False])
def test_outputs_and_gradients_equal_those_of_scan(biased):
    given = arguments(biased)
    found, expected = (
        jax.jit(jax.value_and_grad(weighed(layer), (0, 1, 2, 3)))(*given)
        for layer in (ours, by_scan)
    )
    assert_close(found, expected)


def test_vmap_over_clients_with_different_weights():
    given = arguments(lead=(4,))
    found, expected = (
        jax.jit(jax.vmap(jax.grad(weighed(layer), (0, 1))))(*given) for layer in (ours, by_scan)
    )
    assert_close(found, expected)


@pytest.mark.slow
def test_second_derivatives_equal_those_of_scan():
    kernel, *others = arguments()

    def curvature(layer):
        def of_kernel(kernel):
            return weighed(layer)(kernel, *others)

        direction = jnp.cos(jnp.arange(27.0)).reshape(3, 9)
        slope = jax.grad(of_kernel)
        back_twice = jax.grad(lambda kernel: jnp.vdot(slope(kernel), direction))
        return back_twice(kernel), jax.jvp(slope, (kernel,), (direction,))[1]

    found, expected = jax.jit(lambda: curvature(ours))(), jax.jit(lambda: curvature(by_scan))()
    assert_close(found, expected)
    assert_close(found[0], found[1])


def test_the_gradient_of_the_kernel_is_not_accumulated_in_the_loop():
    """No loop returns an array of the kernel's shape, unlike JAX's own gradient."""

    def shapes_of_loops(layer):
        program = jax.make_jaxpr(jax.grad(weighed(layer)))(*arguments())
        loops = [equation for equation in program.eqns if equation.primitive.name == "scan"]
        return {leaf.aval.shape for equation in loops for leaf in equation.outvars}

    kernel = arguments()[0].shape
    assert kernel in shapes_of_loops(by_scan)
    assert shapes_of_loops(ours) and kernel not in shapes_of_loops(ours)
