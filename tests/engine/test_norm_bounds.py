"""A bound on the norm of uploads that follows a quantile."""

import jax
import numpy as np
import pytest

import fcojax
from fcojax import robust
from fcojax.uploads import chain
from tests.support import federations


@pytest.mark.slow
@pytest.mark.parametrize("start", [1e-3, 1e3])
def test_a_quantile_is_found_and_kept(start):
    """The bound follows its recursion exactly, and the dropped share tends to 1 - q."""
    chosen = fcojax.algorithms.scaffold(federations.loss, federations.kernel_l1())
    hparams = chosen.hparams_type(client_lr=0.05, penalty_scale=0.1)
    bounded = chain(robust.norm_quantile(0.7, start), fcojax.dropout(0.1))
    plan = fcojax.Plan(fcojax.local_steps(2, 2), fcojax.coin_flips(0.8), bounded)
    data = fcojax.from_clients(federations.clients())
    state = fcojax.start(chosen, hparams, federations.start(), data, jax.random.key(5), plan)
    state, history = fcojax.advance(chosen, hparams, state, data, plan, num_rounds=600)
    arrived = np.asarray(history["participants"] - history["lost"], float)
    beyond = np.asarray(history["left_out"])
    moves = np.where(arrived > 0, beyond / np.maximum(arrived, 1) - 0.3, 0)
    bound = state.memory.transforms[0]
    np.testing.assert_allclose(bound, start * np.exp(0.2 * moves.sum()), rtol=1e-10)
    assert np.sum(beyond[200:]) / np.sum(arrived[200:]) == pytest.approx(0.3, abs=0.03)
