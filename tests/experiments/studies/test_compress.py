"""The study of compressed uploads: the rows of a network, and the feedback of each codec."""

import pytest

from configs import compress
from experiments.studies.compress.rows import METHODS, _uploads
from fcojax import uploads
from tests.experiments.studies.quick_studies import quick_study


@pytest.mark.slow
def test_a_network_is_compared_at_equal_errors_over_seeds():
    _, config, rows, _ = quick_study("compress_network")
    curves = [row for row in rows if row["part"] == "curve"]
    assert len(curves) == 2 * 2 * config.num_rounds // config.eval_every
    assert all(0 <= row["error"] <= 1 and 0 < row["density"] <= 1 for row in curves)
    assert {row["seed"] for row in curves} == {0, 1}


def test_every_codec_has_the_feedback_of_its_method():
    for name in compress.get_config().codecs[1:]:
        for _, feedback in METHODS.values():
            assert _uploads(name, feedback).facts.feeds_back
        assert not _uploads(f"{name}, alone", "ef14").facts.feeds_back
    assert not _uploads("whole", "ef21").transforms
    assert _uploads("qsgd:7", "ef21") == uploads.ef21(uploads.contractive(uploads.qsgd(7)))
