"""Fields of hyperparameters: numbers, vectors and schedules."""

import pickle
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import tree
from fcojax.algorithms import fed_avg, takes
from fcojax.engine.hparams import as_arrays
from tests.support import federations

KEY = jax.random.key(0)


class Own(NamedTuple):
    """A rate for each of two parts, an integer, and a number that may be negative."""

    paces: Any = (0.1, 0.05)
    power: int = 2
    tilt: float = -0.5


@takes(Own)
def tilted(loss):
    """FedAvg with separate rates for kernel and bias, and a scaled server step."""
    plain = fed_avg(loss)

    def client_update(hparams, message, client, local, key):
        assert jnp.issubdtype(hparams.power.dtype, jnp.integer)
        kernel_pace, bias_pace = hparams.paces
        result = plain.client_update(
            fed_avg.Hparams(jnp.ones(()), jnp.ones(())), message, client, local, key
        )
        upload = {
            "kernel": kernel_pace * result.upload["kernel"],
            "bias": bias_pace * result.upload["bias"],
        }
        return result._replace(upload=upload)

    def server_update(hparams, server, mean_upload, fraction, key):
        return tree.add_scaled(server, -hparams.tilt * hparams.power.astype(float), mean_upload)

    return plain._replace(client_update=client_update, server_update=server_update)


def run(hparams, num_rounds=2):
    data = fcojax.from_clients(federations.clients())
    model, _ = fcojax.run(
        tilted(federations.loss),
        hparams,
        federations.start(),
        data,
        KEY,
        fcojax.local_steps(1),
        num_rounds=num_rounds,
    )
    return federations.as_vector(model)


def test_grids_of_vectors_sweep():
    rates = [(0.01, 0.02), (0.03, 0.0)]
    grid = fcojax.grid.product(Own, paces=rates, tilt=[-0.5, 0.25])
    assert grid.paces.shape == (4, 2) and jnp.issubdtype(grid.power.dtype, jnp.integer)
    data = fcojax.from_clients(federations.clients())
    models, _ = fcojax.sweep(
        tilted(federations.loss),
        grid,
        federations.start(),
        data,
        KEY[None],
        fcojax.local_steps(1),
        num_rounds=2,
    )
    for index, (pair, tilt) in enumerate((pair, tilt) for pair in rates for tilt in (-0.5, 0.25)):
        alone = run(Own(paces=pair, tilt=tilt))
        np.testing.assert_allclose(models["kernel"][index, 0], alone[:-1], rtol=1e-12)


def test_numbers_of_the_host_stay_there_and_those_of_a_device_too():
    """A program takes numbers along when it is called; a transfer of each would take longer."""
    found = as_arrays(fed_avg.Hparams(client_lr=1, server_lr=jnp.array(0.5)))
    assert type(found.client_lr) is np.ndarray and isinstance(found.server_lr, jax.Array)
    assert found.client_lr.dtype == found.server_lr.dtype == jnp.result_type(float)
    grid = fcojax.grid.product(fed_avg.Hparams, client_lr=[0.1, 0.2])
    assert all(isinstance(column, jax.Array) for column in grid)


def test_a_float_that_is_wrong_is_refused_where_it_is_written():
    kind = fed_avg.Hparams
    with pytest.raises(ValueError, match="client_lr is -1.0; pass a finite number above 0"):
        kind(client_lr=-1.0)
    with pytest.raises(ValueError, match="penalty_scale is -0.5"):
        fcojax.algorithms.fed_mid.Hparams(penalty_scale=-0.5)
    # Axes, gradients, tracers and copies pass: jax rebuilds tuples by position.
    hparams = kind(client_lr=0.5)
    slopes = jax.grad(lambda given: -given.client_lr * given.server_lr)(hparams)
    assert jax.tree.map(float, slopes) == (-1.0, -0.5)
    assert jax.jit(lambda rate: kind(client_lr=rate).client_lr)(-1.0) == -1.0
    assert jax.vmap(lambda one: one.client_lr, in_axes=(kind(0, None),))(
        kind(jnp.arange(2.0), 1.0)
    ).shape == (2,)
    assert pickle.loads(pickle.dumps(hparams))._replace(server_lr=2.0) == kind(0.5, 2.0)
