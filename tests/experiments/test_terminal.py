"""What the terminal says: how far a run is, when it will end, and what came out."""

import pytest
from rich.console import Console

from experiments.cli.console import Ends, Lines, Progress, best_points, results
from experiments.report.summary import Criterion
from experiments.report.tables import headline

CRITERION = {"measure": "f1", "goal": "max", "last_rounds": 10, "within": 0.0, "reach": None}


def entry(score, **changes):
    best = {"client_lr": 0.1}
    known = {"best": best, "edges": {}, "score": score, "verdict": "converged", "diverged": []}
    counts = {"points": 3, "seeds": 2, "seconds": 12.3, "criterion": CRITERION}
    return known | counts | {"last": {}, "final_from": {}} | changes


def claim(holds, reason=None, source=True):
    return {"claim": "one", "holds": holds, "open": reason, "source": source}


@pytest.mark.parametrize(
    ("scores", "claims", "said"),
    [
        ([0.9, 0.7], [], "FedAvg has"),
        ([0.99617146, 0.99619451], [], "FedMiD and FedAvg have the highest F1 score, 0.9962. "),
        ([None, 0.7], [], "FedMiD has F1 score 0.7 at its best point. Of 12 runs 4 diverged."),
        ([None, None], [], "Every run diverged: take smaller rates. Of 12 runs 4 diverged."),
        ([0.9, 0.7], [claim(True), claim(True)], "The source's claims: 2 confirmed."),
        ([0.9, 0.7], [claim(True, source=False)], "Of 12 runs 4 diverged."),
        ([0.9, 0.7], [claim(None, "needs the full run")], "claims: 1 left to the full run."),
        (
            [0.9, 0.7],
            [claim(True), claim(False), claim(None, "not decided")],
            "claims: 1 confirmed, 1 refuted, 1 not decided.",
        ),
    ],
)
def test_the_verdict_names_the_best_and_counts_the_claims(scores, claims, said):
    entries = {
        name: entry(score, diverged=[{}, {}])
        for name, score in zip(("fed_avg", "fed_mid"), scores, strict=True)
    }
    told = headline({"algorithms": entries, "claims": claims})
    assert said in told


def test_the_end_is_estimated_from_rounds_without_compilation():
    now = [0.0]
    ends = Ends(["a", "b", "c"], lambda: now[0])
    told = []
    for when, label, done in (
        (0, "a", 0.0),
        (20, "a", 0.1),  # compiled for 10 s, and 10 s of the first tenth
        (40, "a", 0.3),
        (110, "a", 1.0),
        (110, "b", 0.0),
        (130, "b", 0.1),
        (140, "b", 0.2),
    ):
        now[0] = float(when)
        told.append(ends.seconds(label, done))
    assert told[:2] == [None, None] and told[4:6] == [None, None]
    assert told[2] == pytest.approx(70 + 2 * 110)
    assert told[3] == pytest.approx(2 * 110) and told[6] == pytest.approx(80 + 110)


def test_a_run_prints_a_line_for_each_algorithm_one_table_the_verdict_and_the_page(tmp_path):
    console, found = (
        Console(width=100),
        {"a": entry(0.9), "b": entry(0.7, best={"client_lr": 0.3}, edges={"client_lr": "largest"})},
    )
    with console.capture() as captured:
        progress = Progress(display=Lines(console), ends=Ends(found))
        for label, result in found.items():
            progress.share(label, 0.0, "compiling for 6 points and seeds")
            progress.share(label, 0.5)
            progress.share(label, 1.0)
            progress.result(label, result)
        results(console, {"algorithms": found}, tmp_path)
    lines = captured.get().splitlines()
    assert lines[0] == "a: compiling for 6 points and seeds"
    assert lines[1].startswith("a: best f1 0.9, in 12 s; about ")
    assert lines[2] == "b: best f1 0.7, in 12 s"
    assert [line.split()[0] for line in lines[4:7]] == ["algorithm", "a", "b"]
    assert "0.3*" in lines[6] and lines[7].startswith("* is the edge of a grid")
    assert lines[8:] == [
        "a has the highest F1 score, 0.9, and b is next with 0.7. Of 12 runs 0 diverged.",
        f"Open {tmp_path / 'index.html'}.",
    ]


def test_a_rate_at_the_edge_of_a_grid_has_its_star_when_all_share_it():
    criterion = Criterion(**CRITERION)
    edge = {"client_lr": "largest"}
    for edges, title, heading in (({}, "client_lr 0.1", False), (edge, "rounds", True)):
        entries = {name: entry(0.9, edges=edges) for name in ("fed_avg", "fed_mid")}
        table = best_points({"algorithms": entries}, criterion)
        assert str(table.title).endswith(title)
        cells = [list(column.cells) for column in table.columns if column.header == "client_lr"]
        assert cells == ([["0.1*", "0.1*"]] if heading else [])
