"""Optimisers on clients and servers: what is the same, and what is refused.

Their rounds are those of the record in ``tests/laws``.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fcojax
from fcojax import algorithms
from tests.support import federations

KEY = jax.random.key(13)


@functools.cache
def population():
    """Clients of different sizes, hence different work, weighted by their examples."""
    return fcojax.from_clients(federations.clients(), "examples")


def test_an_optimiser_as_it_is_equals_a_function_that_returns_it():
    chosen = optax.adam(0.05, b1=0.8)
    w, upload = jnp.array([1.0, -2.0]), jnp.array([0.3, 0.1])
    moved = []
    for given in (chosen, lambda hparams: chosen):
        algorithm = algorithms.fed_opt(federations.loss, server=given, client=given)
        server, _ = algorithm.init(None, w)
        for _ in range(2):
            server = algorithm.server_update(None, server, upload, jnp.ones(()), KEY)
        moved.append(server.params)
    np.testing.assert_array_equal(*moved)
    assert np.abs(moved[0] - w).min() > 0.01


def noise(seed):
    """Noise from a key in the state; names and types of optax's own vary between its versions."""

    def update(slopes, key, params=None):
        key, draw = jax.random.split(key)
        added = jax.random.normal(draw)
        return jax.tree.map(lambda slope: slope + added.astype(slope.dtype), slopes), key

    return optax.GradientTransformation(lambda params: jax.random.key(seed), update)


@pytest.mark.parametrize(
    ("side", "optimiser", "said"),
    [
        ("server", optax.lookahead(optax.sgd(0.1), 2, 0.5), "no attribute 'fast'"),
        ("server", optax.MultiSteps(optax.sgd(0.1), 2), "pass one from optax"),
        ("server", optax.polyak_sgd(), "argument: 'value'"),
        ("server", optax.contrib.momo(), "argument: 'value'"),
        ("server", optax.lbfgs(), "'value_fn'"),
        ("client", optax.contrib.reduce_on_plateau(), "argument: 'value'"),
        (
            "client",
            optax.chain(noise(0), optax.sgd(0.1)),
            "which would be the same for all clients",
        ),
    ],
)
def test_optimisers_that_a_round_cannot_serve_are_refused(side, optimiser, said):
    """Noise of the clients was the same in every client, and in every round."""
    algorithm = algorithms.fed_opt(federations.loss, **{side: lambda hparams: optimiser})
    given = algorithm, algorithm.hparams_type(), federations.start(), population(), KEY
    with pytest.raises((AttributeError, TypeError, ValueError), match=said):
        fcojax.run(*given, fcojax.local_steps(1), num_rounds=1)


def test_a_rate_that_no_optimiser_reads_is_no_hyperparameter():
    """A grid over it would have equal points."""
    fed_opt, loss = algorithms.fed_opt, federations.loss
    fixed = fed_opt(loss, client=optax.sgd(0.1)).hparams_type
    assert fixed._fields == ("server_lr",) and fixed().server_lr == 1.0
    assert fed_opt(loss, server=optax.adam(0.1)).hparams_type._fields[0] == "client_lr"
    of_rates = fed_opt(loss, client=lambda hparams: optax.sgd(hparams.client_lr))
    assert of_rates.hparams_type is fed_opt(loss).hparams_type is fed_opt.Hparams
    with pytest.raises(TypeError, match="client_lr"):
        fcojax.grid.product(fixed, client_lr=[0.1, 0.2])
