import pytest
from ml_collections import ConfigDict

from experiments.report.rows import select
from experiments.studies.saddle import claims


def _rows(ends):
    """Return rows in which each method ends with these gaps and ranks, by seed."""
    place = {"part": "curve", "case": "matrices", "num_steps": 1}
    return [
        place
        | {"method": method, "seed": seed, "round": at, "gap": gap + 1 - at / 10}
        | {"density": 1.0, "rank_x": rank, "rank_y": 3.0}
        for method, own in ends.items()
        for seed, (gap, rank) in enumerate(own)
        for at in (5, 10)
    ]


def test_claims_are_about_all_seeds_and_pair_them():
    config = ConfigDict({"cases": ("matrices",), "matrices": {"num_columns": 20}})
    config.matrices.num_steps, config.matrices.methods = (1,), ("fe_dual_ex", "fed_dual_avg")
    ours = [(0.1, 10.0), (0.3, 9.0), (0.5, 10.0)]
    # Larger by 0.01 to 0.012 with each seed, though seeds differ by 0.2.
    rank, gap = claims(
        config,
        _rows({"fe_dual_ex": ours, "fed_dual_avg": [(0.11, 20.0), (0.311, 20.0), (0.512, 20.0)]}),
        {},
    )
    assert (rank.measured, rank.holds, gap.holds) == (10, True, True)
    assert gap.measured == pytest.approx(0.011)
    # One seed of higher rank, or one with a smaller gap, refutes the claim.
    ours[1] = (0.3, 11.0)
    rank, gap = claims(
        config,
        _rows({"fe_dual_ex": ours, "fed_dual_avg": [(0.11, 20.0), (0.29, 20.0), (0.512, 20.0)]}),
        {},
    )
    assert (rank.measured, rank.holds, gap.holds) == (11, False, False)
    assert {claim.as_json()["open"] for claim in (rank, gap)} == {None}
    # At the edge of a method's grid nobody is ahead for certain.
    place = {"part": "point", "case": "matrices", "num_steps": 1, "server_lr": 1.0}
    for best, reason in ((0.3, None), (1.0, "not decided")):
        points = [
            place | {"method": "fed_dual_avg", "client_lr": rate, "best": rate == best}
            for rate in (0.1, 0.3, 1.0)
        ]
        rows = _rows({"fe_dual_ex": ours, "fed_dual_avg": [(0.9, 20.0)] * 3}) + points
        rank, gap = claims(config, rows, {})
        assert (rank.as_json()["open"], gap.as_json()["open"]) == (None, reason)


@pytest.mark.slow
def test_averaging_in_the_primal_is_dense_and_in_the_dual_is_not(found):
    _, _, rows, summary = found
    for num_steps in (1, 10):
        entries = {entry["method"]: entry for entry in summary[f"vectors, K = {num_steps}"]}
        # Of three rates the first and the last have a star.
        starred = {row["client rate"] for row in summary["best"] if row["K"] == num_steps}
        assert starred <= {"0.1*", "0.03", "0.01*"}
        dual, primal = entries["FeDualEx"], entries["FedMiP, client prox only"]
        assert dual["density"] < 0.8 < 0.95 < primal["density"]
        assert max(dual["gap"], primal["gap"]) < 0.02
        points = select(rows, part="point", method="fe_dual_ex", num_steps=num_steps)
        assert [row["gap"] for row in points if row["best"]] == [min(r["gap"] for r in points)]
