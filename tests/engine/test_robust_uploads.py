"""Robust means in runs: on any chunk and any device, with encoders, and within memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import privacy, robust, uploads
from fcojax.algorithms import fed_avg
from fcojax.engine.uploads.collect import WEIGHTED_SUM, WHOLE_COHORT
from fcojax.xla.rules import pretend
from tests.support import federations

KEY = jax.random.key(3)
WORK = fcojax.local_steps(2, 2)
LOSSY = fcojax.dropout(fcojax.uniform_cohort(cohort_size=4), 0.2)
MEDIAN = robust.averaged(robust.median())


@functools.cache
def data():
    weights = np.array([1.0, 2.0, 1.0, 3.0, 1.0])
    return fcojax.from_clients(federations.clients(), weights=weights)


def run(uplink, cohort=LOSSY, data=data, chunk=None, hparams=None, name="fed_avg", num_rounds=4):
    plan = fcojax.Plan(WORK, cohort, uplink, client_chunk_size=chunk)
    model, history = fcojax.run(
        federations.algorithm(name),
        hparams or federations.hparams(name),
        federations.start(),
        data(),
        KEY,
        plan,
        num_rounds=num_rounds,
    )
    return federations.as_vector(model), history


def test_one_round_of_the_median_is_the_median_of_the_displacements():
    cohort = fcojax.uniform_cohort(cohort_size=4)
    drawn = cohort.draw(jax.random.fold_in(KEY, 0), jnp.int32(0), 5).members
    found, _ = run(MEDIAN, cohort, num_rounds=1)
    first, moved = federations.as_vector(federations.start()), []
    for client in np.asarray(drawn):
        only = np.zeros((1, 5), bool)
        only[0, client] = True
        alone, _ = run(None, fcojax.from_trace(only), num_rounds=1)
        moved.append(alone - first)
    weights = np.asarray(data().weights)[np.asarray(drawn)]
    expected = np.median(np.repeat(np.stack(moved), weights.astype(int), axis=0), axis=0)
    np.testing.assert_allclose(found - first, expected, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "uplink",
    [
        MEDIAN,
        robust.averaged(robust.krum(0.2), before=robust.bucketing(2)),
        robust.averaged(robust.centred_clipping(0.3)),
    ],
    ids=["median", "krum", "centred_clipping"],
)
def test_chunks_and_devices_change_nothing(uplink):
    expected, _ = run(uplink)
    for chunk in (1, 3):
        np.testing.assert_allclose(run(uplink, chunk=chunk)[0], expected, rtol=1e-11)
    mesh = fcojax.devices.client_mesh(2)
    spread = functools.partial(fcojax.devices.shard_clients, data(), mesh)
    np.testing.assert_allclose(run(uplink, data=spread)[0], expected, rtol=1e-11)
    everyone, _ = run(uplink, fcojax.everyone())
    np.testing.assert_allclose(run(uplink, fcojax.everyone(), spread)[0], everyone, rtol=1e-11)


@pytest.mark.slow
def test_nobody_bad_is_the_mean():
    expected, _ = run(None)
    for rule in (robust.trimmed_mean(0.0), robust.clipped_mean(np.inf), robust.multi_krum(0.0)):
        np.testing.assert_allclose(run(robust.averaged(rule))[0], expected, rtol=1e-11)


@pytest.mark.slow
def test_a_centre_is_kept_between_rounds():
    """Clipping about the last mean, by hand: everyone takes one full step."""
    radius, rate, steps = 0.2, 0.1, 5
    clients = [{"a": np.array([a])} for a in (1.0, 2.0, 9.0)]
    chosen = fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
    plan = fcojax.Plan(
        fcojax.local_steps(1), uplink=robust.averaged(robust.centred_clipping(radius))
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
@pytest.mark.parametrize("last", [robust.bucketing(1), robust.nearest_neighbour_mixing(0.0)])
def test_a_centre_is_kept_where_uploads_are_mixed_before(last):
    """Groups of one are the uploads themselves; of all, their mean, moved to at most the radius."""
    rule, short = robust.centred_clipping(0.05), robust.norm_clipping(0.3)
    found, _ = run(robust.averaged(rule, before=(short, last)))
    if last.name.startswith("bucketing"):
        clipped = privacy.gaussian(0.3)  # without noise the same as norm_clipping
        assert np.linalg.norm(found - run(clipped)[0]) > 1e-3
        expected, _ = run(robust.averaged(rule, before=short))
        np.testing.assert_allclose(found, expected, rtol=1e-11)
    else:
        mean = robust.averaged(robust.trimmed_mean(0.0), before=short)
        moved = federations.as_vector(federations.start()) - run(mean, num_rounds=1)[0]
        first, _ = run(robust.averaged(rule, before=(short, last)), num_rounds=1)
        step = first - federations.as_vector(federations.start())
        np.testing.assert_allclose(np.linalg.norm(step), 0.05, rtol=1e-9)
        np.testing.assert_allclose(step / 0.05, -moved / np.linalg.norm(moved), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [robust.geometric_median(3), robust.clipped_mean(0.2)])
def test_norm_clipping_before_a_rule_keeps_no_upload(rule):
    """The same as with a step that changes nothing and needs the whole cohort."""
    short = robust.norm_clipping(0.3)
    alone = robust.averaged(rule, before=short)
    assert alone.collector is WEIGHTED_SUM
    kept = robust.averaged(rule, before=(short._replace(each=None),))
    assert kept.collector is WHOLE_COHORT
    np.testing.assert_allclose(run(alone)[0], run(kept)[0], rtol=1e-9)


def test_a_geometric_median_bears_an_upload_whose_square_overflows():
    points = jnp.array([[1.0, 0.0], [1.1, 0.0], [0.9, 0.1], [1e30, 0.0]], jnp.float32)
    weights, rule = jnp.array([0.3, 0.3, 0.3, 0.1], jnp.float32), robust.geometric_median(60)
    assert rule.term is not None
    centre = jnp.zeros(2, jnp.float32)
    for index in range(rule.num_passes):
        terms = [rule.term(None, [point - centre], index) for point in points]
        mass = sum(w * t[1] for w, t in zip(weights, terms, strict=True))
        centre += sum(w * t[0][0] for w, t in zip(weights, terms, strict=True)) / mass
    for found in (centre, rule.mean(None, points, weights)):
        np.testing.assert_allclose(found, [1.0, 0.0], atol=0.1)


@pytest.mark.slow
def test_rules_follow_an_encoder_and_sweep():
    compressed = robust.averaged(robust.median(), uplink=uploads.compressed(uploads.top_k(5)))
    found, history = run(compressed)
    np.testing.assert_array_equal(found, run(MEDIAN)[0])
    assert history["bytes_up"].sum() < run(MEDIAN)[1]["bytes_up"].sum() * 1.5
    swept = fcojax.extended(fed_avg.Hparams, "Swept", share=0.2)
    uplink = robust.averaged(robust.trimmed_mean(lambda h: h.share))
    grid = fcojax.grid.product(swept, client_lr=[0.05], share=[0.0, 0.3])
    models, _ = fcojax.sweep(
        federations.algorithm("fed_avg"),
        grid,
        federations.start(),
        data(),
        KEY[None],
        fcojax.Plan(WORK, LOSSY, uplink),
        num_rounds=4,
    )
    for index, share in enumerate((0.0, 0.3)):
        alone, _ = run(robust.averaged(robust.trimmed_mean(share)))
        np.testing.assert_allclose(models["kernel"][index, 0], alone[:-1], rtol=1e-11)


def test_uploads_are_kept_only_for_rules_that_compare_them():
    kept = {
        robust.clipped_mean(1.0): WEIGHTED_SUM,
        robust.centred_clipping(1.0): WEIGHTED_SUM,
        robust.geometric_median(): WEIGHTED_SUM,
        robust.centred_clipping(1.0, steps=2): WEIGHTED_SUM,
        robust.median(): WHOLE_COHORT,
    }
    for rule, collector in kept.items():
        assert robust.averaged(rule).collector is collector
        assert (rule.needs == "cohort") == (collector is WHOLE_COHORT)
    mixed = robust.averaged(robust.clipped_mean(1.0), before=robust.bucketing(2))
    assert mixed.collector is WHOLE_COHORT


# A rule, and an encoder with residuals or a random one.
PASSES = {
    "geometric_median": (robust.geometric_median(3), uploads.ef14(uploads.top_k(2))),
    "centred_clipping": (
        robust.centred_clipping(0.1, steps=3),
        uploads.compressed(uploads.rand_k(2)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PASSES)
def test_passes_that_keep_no_upload_give_what_kept_uploads_give(name):
    """With lost uploads, on any chunk and two devices."""
    rule, encoder = PASSES[name]
    once = robust.averaged(rule, uplink=encoder, keep_uploads=True)
    again = robust.averaged(rule, uplink=encoder)
    expected, told = run(once)
    mesh = fcojax.devices.client_mesh(2)
    spread = functools.partial(fcojax.devices.shard_clients, data(), mesh)
    for given in ({}, {"chunk": 1}, {"chunk": 3}, {"data": spread}):
        found, history = run(again, **given)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_array_equal(history["participants"], told["participants"])
    np.testing.assert_array_equal(history["bytes_up"], again.num_passes * told["bytes_up"])
    assert np.linalg.norm(found - run(encoder)[0]) > 1e-3


def test_memory_counts_the_uploads_that_are_kept():
    """Points of a sweep: with 2000 clients of 1000 numbers the uploads are the larger part."""
    rows = {"x": np.zeros((2000, 1000), np.float32)}
    clients = fcojax.from_rows(rows, np.ones(2000, int))
    chosen = fed_avg(lambda w, rows: rows["x"] @ w)

    def at_once(uplink):
        plan = fcojax.Plan(fcojax.local_steps(1), uplink=uplink)
        hparams, start = chosen.hparams_type(), jnp.zeros(1000, "float32")
        with pretend("cpu", memory=2**28):
            sized = fcojax.devices.sized(chosen, hparams, start, clients, plan, num_points=100)
        return sized.point_chunk_size

    assert at_once(MEDIAN) < at_once(None)
    passes, kept = (
        robust.averaged(robust.geometric_median(), keep_uploads=keep) for keep in (False, True)
    )
    assert at_once(kept) < at_once(passes)


def test_uplinks_with_a_mean_of_their_own_are_refused():
    for uplink in (uploads.ef21(uploads.top_k(0.5)), MEDIAN):
        with pytest.raises(ValueError, match="mean or a memory"):
            robust.averaged(robust.median(), uplink=uplink)
