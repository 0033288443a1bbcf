"""Runs of the two methods, each compiled once."""

import jax.numpy as jnp

import fcojax
from fcojax.algorithms import fed_dyn, fed_pd
from fcojax.algorithms.local_solvers import exact, gd
from fcojax.problems import factored_loss

METHODS = {"fed_pd": fed_pd, "fed_dyn": fed_dyn}
_SOLVERS = {"exact": exact(), "gd": gd(), "gd from the center": gd(warm_start=False)}


def build(name, solver):
    """The algorithm of that name with that solver."""
    return METHODS[name](factored_loss, solver=_SOLVERS[solver])


def models_of(algorithm, plan, num_looks, rounds_between, hparams, data, state):
    """The server's model after every block of rounds, from a given state."""
    _, history = fcojax.advance(
        algorithm, hparams, data, state, plan, num_looks * rounds_between,
        eval_every=rounds_between, observe=_model,
    )  # fmt: skip
    return history["model"]


def errors_of(algorithm, num_rounds, rates, data, keys, first, optimum):
    """The error at two hundred evaluations, with axes [points, seeds, evaluations]."""
    _, history = fcojax.sweep(
        algorithm, rates, first, data, keys, fcojax.local_steps(1), num_rounds=num_rounds,
        eval_every=num_rounds // 200, observe=relative_error, context=optimum,
    )  # fmt: skip
    return history["error"]


def _model(hparams, model, context):
    return {"model": model}


def relative_error(hparams, model, optimum):
    """The distance to the optimum over the size of the optimum, for ``observe``."""
    return {"error": jnp.linalg.norm(model - optimum) / jnp.linalg.norm(optimum)}
