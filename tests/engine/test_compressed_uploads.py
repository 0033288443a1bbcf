"""Compressed uploads in runs: only the upload changes, with any chunks and devices."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import uploads
from fcojax.algorithms import fed_avg
from tests.support import federations

ROOT = Path(__file__).parents[2]
KEY = jax.random.key(2)
RATES = federations.hparams("fed_avg")
COHORT, LOSSES = fcojax.uniform_cohort(cohort_size=4), fcojax.dropout(0.3)
WORK = fcojax.local_steps(2, 2)
Swept = fcojax.extended(fed_avg.Hparams, "Swept", share=0.5, levels=3.0)


@functools.cache
def data():
    return fcojax.from_clients(federations.clients())


def run(compressor, name="fed_avg", num_rounds=6):
    before = [] if compressor is None else [uploads.compressed(compressor)]
    plan = fcojax.Plan(WORK, COHORT, uploads.chain(*before, LOSSES))
    model, history = fcojax.run(
        federations.algorithm(name),
        federations.hparams(name),
        federations.start(),
        data(),
        KEY,
        plan,
        num_rounds=num_rounds,
    )
    return federations.as_vector(model), history


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fed_avg", "fed_dual_avg"])
@pytest.mark.parametrize(
    "compressor", [uploads.top_k(5), uploads.rand_k(1.0), uploads.leafwise(uploads.top_k(1.0))]
)
def test_all_entries_are_no_compression_bit_for_bit(name, compressor):
    found, expected = run(compressor, name), run(None, name)
    np.testing.assert_array_equal(found[0], expected[0])


def test_bytes_are_the_encoded_ones_and_public_parts():
    chosen, payload = uploads.top_k(2), jnp.zeros(5)
    _, history = run(chosen, "fed_dual_avg", num_rounds=1)
    each = uploads.facts(chosen, payload).num_bytes + 8  # the public sum of step sizes
    assert uploads.facts(chosen, payload).num_bytes == 2 * 8 + 1  # two indices of three bits
    assert history["bytes_up"][0] == 4 * each
    _, plain = run(None, "fed_dual_avg", num_rounds=1)
    assert history["bytes_down"][0] == plain["bytes_down"][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("swept", "fixed", "field"),
    [
        (uploads.top_k(lambda h: h.share), uploads.top_k, "share"),
        (uploads.rand_k(lambda h: h.share), uploads.rand_k, "share"),
        (uploads.qsgd(lambda h: h.levels), uploads.qsgd, "levels"),
    ],
)
def test_a_sweep_over_strengths_is_one_run_each(swept, fixed, field):
    """Models and bytes, which differ between points."""
    values = {"share": [0.2, 0.6], "levels": [1.0, 7.0]}[field]
    grid = fcojax.grid.product(Swept, client_lr=[0.05], **{field: values})
    plan = fcojax.Plan(WORK, COHORT, uploads.chain(uploads.compressed(swept), LOSSES))
    models, history = fcojax.sweep(
        federations.algorithm("fed_avg"),
        grid,
        federations.start(),
        data(),
        KEY[None],
        plan,
        num_rounds=3,
    )
    for index, value in enumerate(values):
        number = value if field == "share" else int(value)
        alone, counted = run(fixed(number), num_rounds=3)
        np.testing.assert_allclose(models["kernel"][index, 0], alone[:-1], rtol=1e-12)
        np.testing.assert_array_equal(history["bytes_up"][index, 0], counted["bytes_up"])


@pytest.mark.slow
def test_unbiased_uploads_are_right_on_average():
    """Over one round with many keys the mean model is the same as without compression."""
    keys = jax.random.split(KEY, 4000)
    grid = fcojax.grid.product(fed_avg.Hparams, client_lr=[0.05])
    one, start = federations.algorithm("fed_avg"), federations.start()

    def kernels(keys, *transforms):
        plan = fcojax.Plan(fcojax.local_steps(2), uploads=uploads.chain(*transforms))
        models, _ = fcojax.sweep(one, grid, start, data(), keys, plan, num_rounds=1)
        return np.asarray(models["kernel"][0])

    found = kernels(keys, uploads.compressed(uploads.rand_k(2)))
    (expected,) = kernels(keys[:1])
    deviation = found.std(axis=0) / np.sqrt(len(found))
    assert np.all(np.abs(found.mean(axis=0) - expected) < 5 * deviation)
    assert np.all(deviation > 0)


@pytest.mark.slow
def test_one_to_four_devices_and_any_chunk_give_the_same_numbers():
    """Feedback both ways, noise, robust means, lost and late uploads, weights 1/q."""
    program = subprocess.run(
        [sys.executable, "-m", "tests.engine.on_four_devices"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(program.stdout)
    assert len(found) == 19
    for runs in found.values():
        model, sent = runs[0]
        assert np.isfinite(model).all() and sent[0] > 0
        for other, others_sent in runs[1:]:
            np.testing.assert_allclose(other, model, rtol=1e-11, atol=1e-13)
            assert others_sent == sent
