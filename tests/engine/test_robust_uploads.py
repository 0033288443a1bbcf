"""Robust means in runs: against numpy, with compression, and within memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import attacks, robust, uploads
from fcojax.algorithms import fed_avg
from fcojax.engine.aggregator import MEAN, STACK, SUM
from fcojax.uploads import chain
from fcojax.xla.rules import pretend
from tests.support import federations

KEY = jax.random.key(3)
WORK = fcojax.local_steps(2, 2)
COHORT, LOSSES = fcojax.uniform_cohort(cohort_size=4), fcojax.dropout(0.2)
MEDIAN = robust.averaged(robust.median())


@functools.cache
def data():
    weights = np.array([1.0, 2.0, 1.0, 3.0, 1.0])
    return fcojax.from_clients(federations.clients(), weights=weights)


def run(aggregator, cohort=COHORT, uploads=LOSSES, num_rounds=4):
    plan = fcojax.Plan(WORK, cohort, uploads, aggregator)
    model, history = fcojax.run(
        federations.algorithm("fed_avg"),
        federations.hparams("fed_avg"),
        federations.start(),
        data(),
        KEY,
        plan,
        num_rounds=num_rounds,
    )
    return federations.as_vector(model), history


def test_one_round_of_the_median_is_the_median_of_the_displacements():
    drawn = COHORT.draw(jax.random.fold_in(KEY, 0), jnp.int32(0), 5).members
    found, _ = run(MEDIAN, uploads=chain(), num_rounds=1)
    first, moved = federations.as_vector(federations.start()), []
    for client in np.asarray(drawn):
        only = np.zeros((1, 5), bool)
        only[0, client] = True
        alone, _ = run(MEAN, fcojax.from_trace(only), uploads=chain(), num_rounds=1)
        moved.append(alone - first)
    weights = np.asarray(data().weights)[np.asarray(drawn)]
    expected = np.median(np.repeat(np.stack(moved), weights.astype(int), axis=0), axis=0)
    np.testing.assert_allclose(found - first, expected, rtol=1e-9)


@pytest.mark.slow
def test_without_attackers_a_robust_rule_is_the_weighted_mean():
    expected, _ = run(MEAN)
    for rule in (robust.trimmed_mean(0.0), robust.multi_krum(0.0)):
        np.testing.assert_allclose(run(robust.averaged(rule))[0], expected, rtol=1e-11)


@pytest.mark.slow
def test_a_centre_is_kept_between_rounds():
    """Clipping around the last mean, in numpy, with one full step of all clients."""
    radius, rate, steps = 0.2, 0.1, 5
    clients = [{"a": np.array([a])} for a in (1.0, 2.0, 9.0)]
    chosen = fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
    plan = fcojax.Plan(
        fcojax.local_steps(1), aggregator=robust.averaged(robust.centred_clipping(radius))
    )
    found, _ = fcojax.run(
        chosen,
        chosen.hparams_type(client_lr=rate),
        jnp.array(0.0),
        fcojax.from_clients(clients),
        KEY,
        plan,
        num_rounds=steps,
    )
    w = centre = 0.0
    for _ in range(steps):
        moved = rate * (np.array([1.0, 2.0, 9.0]) - w)
        centre += np.mean(np.clip(moved - centre, -radius, radius))
        w += centre
    np.testing.assert_allclose(found, w, rtol=1e-12)


@pytest.mark.slow
def test_a_centre_is_kept_where_uploads_are_mixed_before():
    """Groups of one are the uploads; one group of all is their mean, clipped to the radius."""
    rule, first = robust.centred_clipping(0.05), federations.as_vector(federations.start())
    found, _ = run(robust.averaged(rule, before=robust.bucketing(1)))
    np.testing.assert_allclose(found, run(robust.averaged(rule))[0], rtol=1e-11)
    one = robust.averaged(rule, before=robust.nearest_neighbour_mixing(0.0))
    step, moved = (run(each, num_rounds=1)[0] - first for each in (one, MEAN))
    assert np.linalg.norm(moved) > 0.05
    np.testing.assert_allclose(step / 0.05, moved / np.linalg.norm(moved), rtol=1e-9)


def test_a_geometric_median_bears_an_upload_whose_square_overflows():
    points = jnp.array([[1.0, 0.0], [1.1, 0.0], [0.9, 0.1], [1e30, 0.0]], jnp.float32)
    weights = jnp.array([0.3, 0.3, 0.3, 0.1], jnp.float32)
    found = robust.geometric_median(60).mean(None, points, weights)
    np.testing.assert_allclose(found, [1.0, 0.0], atol=0.1)


@pytest.mark.slow
def test_rules_follow_compression_and_sweep():
    found, history = run(MEDIAN, uploads=chain(uploads.compressed(uploads.top_k(5)), LOSSES))
    np.testing.assert_array_equal(found, run(MEDIAN)[0])
    assert history["bytes_up"].sum() < run(MEDIAN)[1]["bytes_up"].sum() * 1.5
    swept = fcojax.extended(fed_avg.Hparams, "Swept", share=0.2)
    aggregator = robust.averaged(robust.trimmed_mean(lambda h: h.share))
    grid = fcojax.grid.product(swept, client_lr=[0.05], share=[0.0, 0.3])
    models, _ = fcojax.sweep(
        federations.algorithm("fed_avg"),
        grid,
        federations.start(),
        data(),
        KEY[None],
        fcojax.Plan(WORK, COHORT, LOSSES, aggregator),
        num_rounds=4,
    )
    for index, share in enumerate((0.0, 0.3)):
        alone, _ = run(robust.averaged(robust.trimmed_mean(share)))
        np.testing.assert_allclose(models["kernel"][index, 0], alone[:-1], rtol=1e-11)


def test_uploads_are_kept_only_for_rules_that_compare_them():
    centred = robust.centred_clipping(1.0)
    assert robust.averaged(centred).collect is SUM
    assert robust.averaged(centred, before=robust.bucketing(2)).collect is STACK
    for rule in (robust.median(), robust.geometric_median(), robust.centred_clipping(1.0, steps=2)):
        assert robust.averaged(rule).collect is STACK


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
    assert at_once(MEDIAN) < at_once(robust.averaged(robust.centred_clipping(1.0)))


def test_a_rule_sees_the_estimates_of_feedback():
    """EF21 in numpy with an attacker; uploads are constant, so two rounds complete an estimate."""
    slopes = np.array([[3.0, 1.0], [-2.0, 5.0], [4.0, -6.0], [1.0, 2.0], [7.0, -3.0]])
    chosen = fed_avg(lambda w, rows: rows["a"] @ w)
    bad = attacks.attacked((4,), attacks.scaled(1000.0))
    plan = fcojax.Plan(
        fcojax.local_steps(1), uploads=chain(bad, uploads.ef21(uploads.top_k(1))), aggregator=MEDIAN
    )
    _, history = fcojax.run(
        chosen,
        chosen.hparams_type(client_lr=1.0),
        jnp.zeros(2),
        fcojax.from_clients([{"a": slope[None]} for slope in slopes]),
        KEY,
        plan,
        num_rounds=3,
        observe=lambda hparams, w, context: {"w": w},
    )
    sent, estimate, w = -slopes * np.array([[1, 1, 1, 1, 1000]]).T, np.zeros((5, 2)), np.zeros(2)
    for found in history["w"]:
        error = sent - estimate
        largest = np.abs(error) == np.abs(error).max(axis=1, keepdims=True)
        estimate = estimate + np.where(largest, error, 0)
        w = w + np.median(estimate, axis=0)
        np.testing.assert_allclose(found, w, rtol=1e-12)
    np.testing.assert_array_equal(estimate, sent)
