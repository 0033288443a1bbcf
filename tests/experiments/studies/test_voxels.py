import jax
import numpy as np
import pytest

import fcojax
from configs.voxels import EXPERIMENT, get_config
from experiments.report.rows import column, select
from experiments.studies.voxels import _half, _weights
from tests.experiments.studies.quick_studies import draw_figures


def rows_of(scans, sessions):
    return [
        {"part": "voxel", "halves": halves, "voxel": voxel, "frequency": frequency}
        for halves, frequencies in (("scans", scans), ("sessions", sessions))
        for voxel, frequency in enumerate(frequencies)
    ]


def test_the_overlap_is_of_the_voxels_found_often():
    rows = rows_of([1.0, 0.95, 0.9, 0.2], [1.0, 0.89, 0.9, 0.1])
    overlap, some = EXPERIMENT.claims(get_config(), rows, {"stability": []})
    assert overlap.measured == pytest.approx(2 / 3) and overlap.holds and not overlap.source
    assert some.measured == 3 and some.holds


def test_without_a_voxel_nothing_is_expected_to_hold():
    overlap, some = EXPERIMENT.claims(get_config(), rows_of([0.0], [0.0]), {"stability": []})
    assert not overlap.holds and not some.holds


def test_a_half_is_of_each_session_or_of_whole_sessions():
    data, sizes = fcojax.from_rows({"x": np.arange(13.0)}, [8, 4, 1]), np.array([8, 4, 1])
    session = np.repeat(np.arange(3), sizes)
    for halves, counts in (("scans", [4, 2, 1]), ("sessions", None)):
        half = _half(data, halves, jax.random.key(0))
        own, weights = np.bincount(session[half], minlength=3), _weights(data, half)
        assert own.tolist() == counts if counts else set(own / sizes) == {0.0, 1.0}
        assert set(half) == set(np.flatnonzero(weights))
        # Sessions with scans have equal weights.
        np.testing.assert_allclose(np.bincount(session, weights), (own > 0) / np.sum(own > 0))


@pytest.mark.slow
def test_a_quick_run_finds_the_voxels_that_respond(found, tmp_path):
    """Three of sixty voxels respond; halves of eight sessions decide them."""
    study, config, rows, summary = found
    for halves, entry in zip(("scans", "sessions"), summary["stability"], strict=True):
        frequencies = column(select(rows, halves=halves), "frequency")
        assert frequencies.shape == (config.num_voxels,)
        assert np.all((frequencies >= 0) & (frequencies <= 1))
        assert entry["precision"] >= 0.5 and entry["recall"] == 1
    assert draw_figures(found, tmp_path) == ["frequencies.png"]
