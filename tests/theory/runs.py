"""Runs of Local SGD with the theorem's step sizes, and all their points."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax.algorithms import local_sgd
from fcojax.theory import local_points
from fcojax.theory.local_sgd import schedule
from tests.theory import instances


@functools.cache
def sgd(name):
    return local_sgd(instances.LOSSES[name])


def params_of(carry):
    return carry.params


def work_of(num_steps, batch_size):
    return fcojax.local_steps(num_steps, batch_size, replace=batch_size is not None)


def step_sizes(constants, num_steps, total_steps):
    rates = schedule(constants, num_steps)
    return rates.client_lr / (1 + rates.decay * np.arange(total_steps))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _points(name, num_steps, batch_size, num_rounds, hparams, data, keys):
    def one_seed(key):
        start, plan = jnp.zeros(data.examples["a"].shape[1]), work_of(num_steps, batch_size)
        given = sgd(name), hparams, start, data, key
        return local_points(*given, num_rounds=num_rounds, plan=plan, read=params_of)

    return jax.vmap(one_seed)(keys)


def visited(name, num_steps, batch_size, num_seeds, total_steps, problem=None):
    """Return the points of all clients, [seeds, steps, clients, dim], from a start at zero.

    ``problem`` is (constants, population), by default those of the named instance.
    """
    constants, data = problem or (instances.constants(name), instances.population(name))
    keys = jax.vmap(jax.random.key)(jnp.arange(num_seeds))
    rounds = total_steps // num_steps
    hparams = schedule(constants, num_steps)
    points = np.asarray(_points(name, num_steps, batch_size, rounds, hparams, data, keys))
    return points.reshape(num_seeds, total_steps, *points.shape[-2:])


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _ends(name, num_steps, batch_size, num_rounds, hparams, data, keys):
    def one_seed(key):
        start, plan = jnp.zeros(data.examples["a"].shape[1]), work_of(num_steps, batch_size)
        given = sgd(name), hparams, start, data, key, plan
        return fcojax.run(*given, num_rounds=num_rounds, eval_every=num_rounds)[0]

    return jax.vmap(one_seed)(keys)


def last_gaps(name, num_steps, batch_size, num_seeds, total_steps):
    """Return f(x_T) - f* for every seed."""
    constants = instances.constants(name)
    keys, hparams = jax.vmap(jax.random.key)(jnp.arange(num_seeds)), schedule(constants, num_steps)
    given = name, num_steps, batch_size, total_steps // num_steps
    ends = _ends(*given, hparams, instances.population(name), keys)
    return instances.model(name).objective(np.asarray(ends)) - constants.minimum
