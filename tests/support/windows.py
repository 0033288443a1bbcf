"""Random arrays, and the operations that a rewritten program must not contain."""

import jax
import jax.numpy as jnp
import numpy as np

SLOW = ("conv_general_dilated", "reduce_window_max", "select_and_scatter_add", "select_and_gather")


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def slow_primitives(function, *args):
    """Return the primitives of XLA's own form in a function's jaxpr, at any depth."""
    found = set()

    def visit(program):
        for equation in program.eqns:
            found.update(name for name in SLOW if name in equation.primitive.name)
            for inner in jax.extend.core.jaxprs_in_params(equation.params):
                visit(inner)

    visit(jax.make_jaxpr(function)(*args).jaxpr)
    return found
