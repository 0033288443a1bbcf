import numpy as np
import pytest

from configs.voxels import EXPERIMENT, get_config
from experiments.report.rows import column, select
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
