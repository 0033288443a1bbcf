"""The round after which a pattern no longer changes, against closed forms and a loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.problems import identified
from fcojax.transforms import euclidean, l1


def test_dual_averaging_of_a_linear_loss_identifies_entries_when_theory_says():
    """Return the model after k rounds, soft(w - k eta g, k eta lambda)."""
    start, slope = np.array([3.1, 1.3, 0.2, -2.6]), np.array([0.5, -0.4, 0, 0.3])
    rate, scale = 0.2, 1
    data = fcojax.from_clients([{"slope": slope[None]}] * 2)
    algorithm = fcojax.algorithms.fed_dual_avg(lambda w, rows: rows["slope"] @ w, euclidean(l1()))
    hparams = algorithm.hparams_type(client_lr=rate, server_lr=1.0, penalty_scale=scale)
    given = algorithm, hparams, jnp.asarray(start), data, jax.random.key(0), fcojax.local_steps(1)
    observe = lambda hparams, model, context: {"support": model != 0}  # noqa: E731
    _, history = fcojax.run(*given, num_rounds=40, observe=observe)
    toward_zero = slope * np.sign(start)  # where this is positive the loss decreases towards zero
    expected = np.ceil(np.abs(start) / (rate * (scale + toward_zero)))
    np.testing.assert_array_equal(identified(history["support"], history["round"]), expected)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_entries_clients_and_runs_equal_a_loop(axis):
    values = np.random.default_rng(0).integers(0, 2, (9, 9, 9))
    rounds = 5 * np.arange(9) + 5
    found = identified(values, rounds, axis)
    for place, (i, j) in zip(found.ravel(), np.ndindex(9, 9), strict=True):
        curve = np.moveaxis(values, axis, 0)[:, i, j]
        assert place == next(r for k, r in enumerate(rounds) if (curve[k:] == curve[-1]).all())


def test_constant_patterns_are_identified_at_once_and_nan_never():
    assert identified([[16, 1.0], [16, np.nan]], [10, 20]).tolist() == [10, 20]
    with pytest.raises(ValueError, match=r"shape \(3,\) but there are 2 evaluations"):
        identified([1, 1], [1, 2, 3])
