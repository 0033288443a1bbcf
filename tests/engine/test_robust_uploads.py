"""Robust means in runs: against numpy, with feedback, and within memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax import attacks, robust, uploads
from fcojax.algorithms import fed_avg
from fcojax.uploads import chain
from fcojax.uploads.contract import MEAN
from fcojax.xla.rules import pretend
from tests.support.rules import robust_mean

MEDIAN = robust.median()
SENT = np.array([[3.0, 1.0], [-2.0, 5.0], [4.0, -6.0], [1.0, 2.0], [7.0, -3.0]])


@functools.cache
def constant():
    """Return an algorithm whose clients always upload the same."""
    return fed_avg(lambda w, rows: -rows["a"] @ w)


def ran(aggregator, num_rounds=1, transforms=None, weights=None):
    """Return the model of each round, from zero."""
    work, data = fcojax.local_steps(1), fcojax.from_clients([{"a": u[None]} for u in SENT], weights)
    _, history = fcojax.run(
        constant(),
        constant().hparams_type(client_lr=1.0),
        jnp.zeros(2),
        data,
        jax.random.key(3),
        fcojax.Plan(work, uploads=transforms or chain(), aggregator=aggregator),
        num_rounds=num_rounds,
        observe=lambda hparams, w, context: {"w": w},
    )
    return np.asarray(history["w"])


def test_a_geometric_median_bears_an_upload_whose_square_overflows():
    points = jnp.array([[1.0, 0.0], [1.1, 0.0], [0.9, 0.1], [1e30, 0.0]], jnp.float32)
    weights = jnp.array([0.3, 0.3, 0.3, 0.1], jnp.float32)
    found = robust_mean(robust.geometric_median(60), points, weights)
    np.testing.assert_allclose(found, [1.0, 0.0], atol=0.1)


def test_memory_counts_the_uploads_that_are_kept():
    """For sweep points with 2000 clients of 1000 numbers the uploads dominate the memory."""
    rows = {"x": np.zeros((2000, 1000), np.float32)}
    clients = fcojax.from_rows(rows, np.ones(2000, int))
    chosen = fed_avg(lambda w, rows: rows["x"] @ w)

    def at_once(aggregator):
        plan = fcojax.Plan(fcojax.local_steps(1), aggregator=aggregator)
        hparams, start = chosen.hparams_type(), jnp.zeros(1000, "float32")
        with pretend("cpu", memory=2**28):
            sized = fcojax.devices.sized(chosen, hparams, start, clients, plan, num_points=100)
        return sized.point_chunk_size

    assert at_once(MEDIAN) < at_once(MEAN)
    assert at_once(MEDIAN) < at_once(robust.centred_clipping(1.0))


def test_a_rule_sees_the_estimates_of_feedback():
    """EF21 in numpy with an attacker; uploads are constant, so two rounds complete an estimate."""
    bad = attacks.attacked((4,), attacks.scaled(1000.0))
    found = ran(MEDIAN, 3, chain(bad, uploads.ef21(uploads.top_k(1))))
    sent, estimate, w = SENT * np.array([[1, 1, 1, 1, 1000]]).T, np.zeros((5, 2)), np.zeros(2)
    for model in found:
        error = sent - estimate
        largest = np.abs(error) == np.abs(error).max(axis=1, keepdims=True)
        estimate = estimate + np.where(largest, error, 0)
        w = w + np.median(estimate, axis=0)
        np.testing.assert_allclose(model, w, rtol=1e-12)
    np.testing.assert_array_equal(estimate, sent)
