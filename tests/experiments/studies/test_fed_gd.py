import numpy as np
import pytest

from experiments.report.rows import column, select
from experiments.studies.fed_gd.problem import clients_of
from fcojax.theory import least_squares
from tests.experiments.studies.quick_studies import quick_study

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return quick_study("fed_gd", tmp_path_factory.mktemp("fed_gd"))


def test_all_claims_hold_on_a_quick_run(found):
    study, *rest = found
    found = study.claims(*rest)
    assert len(found) == 9
    # Eight seeds do not pin the mean gap down, and the page does not say that they do.
    assert [claim.text for claim in found[:-1] if not claim.holds] == []
    assert [claim.quick for claim in found] == 7 * [True] + 2 * [False]


def test_the_figures_are_drawn(found, tmp_path):
    study, *rest = found
    drawn = study.figures(*rest, tmp_path)
    assert [path.name for path in drawn] == ["limits.png", "rounds.png", "bound.png"]
    assert all(path.stat().st_size > 20_000 for path in drawn)


def test_distances_are_those_computed_apart_from_this_library(found):
    _, _, rows, _ = found
    expected = {0.5: (0, 8.390e-2, 0.2863, 0.6417, 0.8775), 1.5: (0, 0.43, 0.6014, 0.8009, 0.9923)}
    for share, distances in expected.items():
        seen = {r["num_steps"]: r["distance"] for r in select(rows, part="limit", step_share=share)}
        np.testing.assert_allclose([seen[e] for e in (1, 2, 5, 20, 100)], distances, atol=5e-5)


def test_rounds_to_the_limit_are_counted_as_one_would_by_hand(found):
    _, config, rows, _ = found
    *_, clients = clients_of(config)
    for entry in select(rows, part="limit", step_share=0.5)[:3]:
        one = least_squares.round_map(clients, 0.5 / clients.smoothness, entry["num_steps"])
        x, rounds = np.zeros(config.dim), 0
        first = np.linalg.norm(x - one.fixed_point)
        while np.linalg.norm(x - one.fixed_point) > config.near_limit * first:
            x, rounds = one.matrix @ x + one.offset, rounds + 1
        assert entry["rounds"] == rounds > 1


def test_the_bound_falls_like_one_over_the_steps(found):
    _, config, rows, _ = found
    for name in config.sgd_problems:
        for num_steps in config.sgd_num_steps:
            seen = select(rows, part="bound", problem=name, num_steps=num_steps)
            shifted = column(seen, "limit") / column(seen, "bound")
            np.testing.assert_allclose(shifted, shifted[0], rtol=1e-12)
            assert (column(seen, "low") <= column(seen, "gap")).all()
