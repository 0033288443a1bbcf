import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.algorithms import local_sgd
from fcojax.theory import local_points
from tests.theory import instances
from tests.theory.runs import params_of, sgd, work_of

pytestmark = pytest.mark.gate

KEY = jax.random.key(2)
RATES = local_sgd.Hparams(client_lr=0.1, decay=0.05)


def observe_params(hparams, params, context):
    return {"model": params}


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [None, 2])
def test_every_round_starts_at_the_model_of_the_run_and_steps_follow_the_gradient(batch_size):
    seen, data = instances.model("ridge"), instances.population("ridge")
    options = {"num_rounds": 4, "plan": work_of(3, batch_size)}
    arguments = sgd("ridge"), RATES, jnp.ones(seen.dim), data, KEY
    points = np.asarray(local_points(*arguments, read=params_of, **options))
    assert points.shape == (4, 3, 4, seen.dim)  # rounds, steps, clients, features
    _, history = fcojax.run(*arguments, observe=observe_params, **options)
    servers = np.concatenate([np.ones((1, seen.dim)), history["model"]])
    for k in range(4):
        np.testing.assert_allclose(points[:, 0, k], servers[:-1], rtol=1e-12)
    moved = points[:, 1:] - points[:, :-1]
    steps = np.arange(12).reshape(4, 3)[..., None, None]
    expected = -RATES.client_lr / (1 + RATES.decay * steps) * seen.gradients(points)
    if batch_size is None:
        np.testing.assert_allclose(moved, expected[:, :-1], rtol=1e-10, atol=1e-13)
        ends = np.einsum("k,rki->ri", seen.weights, points[:, -1] + expected[:, -1])
        np.testing.assert_allclose(ends, servers[1:], rtol=1e-12)
    else:
        assert np.abs(moved - expected[:, :-1]).min(axis=-1).max() > 1e-3  # of some examples only
