"""Runs of the two methods, each compiled once."""

import functools

import jax
import jax.numpy as jnp

import fcojax
from fcojax.algorithms import fed_dyn, fed_pd
from fcojax.algorithms.local_solvers import exact, gd
from fcojax.engine.run import block
from fcojax.problems import factored_loss

METHODS = {"fed_pd": fed_pd, "fed_dyn": fed_dyn}
_SOLVERS = {"exact": exact(), "gd": gd(), "gd from the center": gd(warm_start=False)}


@functools.cache
def build(name, solver):
    """The algorithm; cached, because a rebuilt one would be compiled again."""
    return METHODS[name](factored_loss, solver=_SOLVERS[solver])


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def models_of(algorithm, plan, num_looks, rounds_between, hparams, data, state):
    """The server's model after every block of rounds, from a given state."""

    def one_look(state, _):
        key = jax.random.key(0)
        state, _ = block(algorithm, plan, rounds_between, hparams, data, state, key)
        return state, algorithm.model(hparams, state.server)

    return jax.lax.scan(one_look, state, length=num_looks)[1]


@functools.partial(jax.jit, static_argnums=(0, 1))
def errors_of(algorithm, num_rounds, rates, data, keys, first, optimum):
    """The error at two hundred evaluations, with axes [points, seeds, evaluations]."""

    def one(hparams, key):
        return fcojax.run(
            algorithm, hparams, first, data, key, num_rounds=num_rounds,
            eval_every=num_rounds // 200, work=fcojax.local_steps(1), observe=relative_error,
            context=optimum,
        )[1]["error"]  # fmt: skip

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(rates, keys)


def relative_error(hparams, model, optimum):
    """The distance to the optimum over the size of the optimum, for ``observe``."""
    return {"error": jnp.linalg.norm(model - optimum) / jnp.linalg.norm(optimum)}
