import numpy as np
import pytest

from configs.time import EXPERIMENT, get_config
from tests.experiments.studies.quick_studies import draw_figures


def test_the_ratio_is_of_means_over_seeds_and_never_is_infinite():
    config = get_config()
    config.methods, config.speeds = ("fed_dual_avg",), ("one_slow",)
    config.servers, config.participations = ("synchronous", "asynchronous"), ("unequal",)
    same = {"part": "time", "method": "fed_dual_avg", "speed": "one_slow"}
    rows = [
        same | {"server": server, "seed": seed, "f1": f1, "gap": None}
        for server, times in (("synchronous", (2.0, 4.0)), ("asynchronous", (0.5, 1.0)))
        for seed, f1 in enumerate(times)
    ]
    same = {"part": "bias", "law": "unequal", "seed": 0}
    distances = {"none": 1.0, "known": 0.05, "estimated": 0.5}
    rows += [same | {"correct": c, "distance": d} for c, d in distances.items()]
    first, waiting, exact, known, estimated = EXPERIMENT.claims(
        config, rows, EXPERIMENT.summarise(config, rows)
    )
    assert first.measured == pytest.approx(0.25) and first.holds
    assert np.isnan(waiting.measured) and not exact.holds
    assert known.holds and estimated.measured == 2 and not estimated.holds


@pytest.mark.slow
def test_a_quick_run_waits_for_the_slow_client_only_if_it_is_synchronous(found, tmp_path):
    _, _, _, summary = found
    waits, late, *_ = summary["times"]
    assert late["seconds to F1 of 0.95"] < 0.2 * waits["seconds to F1 of 0.95"]
    assert draw_figures(found, tmp_path) == ["time.png", "bias.png"]
