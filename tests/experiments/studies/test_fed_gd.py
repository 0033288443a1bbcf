import numpy as np
import pytest

from experiments.report.rows import column, select
from experiments.studies.fed_gd.problem import clients_of
from fcojax.theory import least_squares
from tests.experiments.studies.quick_studies import draw_figures

pytestmark = pytest.mark.slow


def test_all_claims_hold_on_a_quick_run(found):
    study, *rest = found
    claims = study.claims(*rest)
    assert len(claims) == 9
    # Eight seeds do not determine the mean gap; the claim needs the full run.
    assert [claim.text for claim in claims[:-1] if not claim.holds] == []
    assert [claim.quick for claim in claims] == 7 * [True] + 2 * [False]


def test_the_figures_are_drawn(found, tmp_path):
    assert draw_figures(found, tmp_path) == ["limits.png", "rounds.png", "bound.png"]


def test_distances_agree_with_an_independent_computation(found):
    _, _, rows, _ = found
    expected = {0.5: (0, 8.390e-2, 0.2863, 0.6417, 0.8775), 1.5: (0, 0.43, 0.6014, 0.8009, 0.9923)}
    for share, distances in expected.items():
        own = {r["num_steps"]: r["distance"] for r in select(rows, part="limit", step_share=share)}
        np.testing.assert_allclose([own[e] for e in (1, 2, 5, 20, 100)], distances, atol=5e-5)


def test_rounds_to_the_limit_agree_with_iteration(found):
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
