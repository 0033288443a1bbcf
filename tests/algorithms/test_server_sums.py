"""Sums of the server over rounds are compensated: in float32 no rounding error adds up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax import algorithms
from fcojax.algorithms import Displacement, Public
from fcojax.algorithms.controls import ControlUpdate
from fcojax.transforms import euclidean, zero

ROUNDS, STEP = 30_000, np.float32(0.1)
MOVED, ONE = jnp.full(3, STEP), jnp.float32(1)
DUAL = Displacement(MOVED, Public(jnp.float32(STEP)))
CONTROL = ControlUpdate(MOVED, (), Public(ONE))


@pytest.mark.parametrize(
    ("algorithm", "options", "upload", "read"),
    [
        (algorithms.fed_dual_avg(None, euclidean(zero())), {}, DUAL, lambda s: (s.dual, s.elapsed)),
        (algorithms.scaffold(None), {}, CONTROL, lambda s: s.control),
        (
            algorithms.fed_dual_avg_tracking(None, euclidean(zero())),
            {"memory": 1.0},
            CONTROL,
            lambda s: s.sums.control,
        ),
    ],
    ids=["dual sums", "control", "control beside dual sums"],
)
def test_a_sum_of_equal_increments_is_their_number_times_one(algorithm, options, upload, read):
    """Without compensation the error here is above 1e-4, with it one rounding."""
    hparams = jax.tree.map(jnp.float32, algorithm.hparams_type(server_lr=1.0, **options))
    first, _ = algorithm.init(hparams, jnp.zeros(3, jnp.float32))
    last, _ = jax.lax.scan(
        lambda server, _: (algorithm.server_update(hparams, server, upload, ONE, None), None),
        first,
        length=ROUNDS,
    )
    for total in jax.tree.leaves(read(last)):
        assert total.dtype == jnp.float32
        np.testing.assert_allclose(total, ROUNDS * float(STEP), rtol=2e-7)
