"""What the terminal says: how far a run is, when it will end, and what came out."""

import pytest

from experiments.cli.console import Progress, results
from experiments.report.tables import headline

CRITERION = {"measure": "f1", "goal": "max", "last_rounds": 10, "within": 0.0, "reach": None}


def entry(score, **changes):
    best = {"client_lr": 0.1}
    known = {"best": best, "edges": {}, "score": score, "verdict": "converged", "diverged": []}
    counts = {"points": 3, "seeds": 2, "seconds": 12.3, "criterion": CRITERION}
    return known | counts | {"last": {}, "final_from": {}} | changes


def claim(holds, reason=None, source="a paper", text="one"):
    return {"claim": text, "holds": holds, "open": reason, "source": source}


@pytest.mark.parametrize(
    ("scores", "claims", "said"),
    [
        ([0.9, 0.7], [], "FedAvg has"),
        ([0.99617146, 0.99619451], [], "FedMiD and FedAvg tie at the highest F1 score, 0.9962. "),
        ([None, 0.7], [], "FedMiD has F1 score 0.7 at its best point. Of 12 runs 4 diverged."),
        ([None, None], [], "Every run diverged: take smaller rates. Of 12 runs 4 diverged."),
        ([0.9, 0.7], [claim(True), claim(True)], "The source's claims: 1 confirmed."),
        ([0.9, 0.7], [claim(True, source="")], "Of 12 runs 4 diverged."),
        ([0.9, 0.7], [claim(None, "needs the full run")], "FedMiD is next with 0.7. Of 12"),
        (
            [0.9, 0.7],
            [
                claim(True),
                # Two numbers of one statement, one of which refutes it.
                claim(True, text="two"),
                claim(False, text="two"),
                claim(True, text="three"),
                claim(None, "not decided", text="three"),
            ],
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
    study = {"claims": [claim(True)]}  # a study has no algorithms
    assert headline(study, brief=True) == headline(study) == "The source's claims: 1 confirmed."


def test_rounds_to_the_target_decide_a_tie_and_the_optimum_is_near():
    target, above = CRITERION | {"reach": 0.95}, {"objective": 2.5, "suboptimality": 0.5}
    late = entry(1.0, criterion=target, reached=[60, 71, 82])
    soon = entry(0.9999, criterion=target, reached=[10, 10, 10], last=above)
    told = headline({"algorithms": {"fed_mid": late, "fed_avg": soon}})
    assert told.startswith("FedAvg and FedMiD tie at the highest F1 score, 1. Of these FedAvg")
    assert "FedAvg reaches 0.95 first, in round 10." in told
    assert told.endswith("FedAvg ends 0.5, 25 %, above the optimum.")
    never = {"fed_mid": late, "fed_avg": soon | {"reached": [None, 10, 10]}}
    assert "Of these FedMiD reaches 0.95 first, in round 71." in headline({"algorithms": never})


@pytest.mark.parametrize(("density", "said"), [(0.2, True), (0.5, False)])
def test_the_sparsest_of_a_tie_is_named_if_there_is_one(density, said):
    first, second = entry(0.9, last={"density": 0.5}), entry(0.9, last={"density": density})
    told = headline({"algorithms": {"fed_avg": first, "fed_mid": second}})
    assert ("FedMiD is the sparsest, with density 0.2" in told) is said


def test_the_end_is_estimated_from_rounds_without_compilation():
    now, told = [0.0], []
    progress = Progress(write=told.append, clock=lambda: now[0])
    for when, label, done in (
        (0, "a", 0.0),
        (20, "a", 0.1),  # compiled for 10 s, and 10 s of the first tenth
        (40, "a", 0.3),
        (110, "a", 1.0),
        (110, "b", 0.0),
    ):
        now[0] = float(when)
        progress.share(label, done, "" if done else "compiling")
    assert told == ["a: compiling", "a: 10%", "a: 30%, about 70 s left", "b: compiling"]


def test_a_run_prints_a_line_for_each_algorithm_one_table_the_verdict_and_the_page(tmp_path):
    edge = {"best": {"client_lr": 0.3}, "edges": {"client_lr": "largest"}}
    found = {"a": entry(0.9), "b": entry(0.7, **edge)}
    lines = []
    progress = Progress(write=lines.append)
    for label, result in found.items():
        progress.share(label, 0.0, "compiling for 6 points and seeds")
        progress.share(label, 0.5)
        progress.share(label, 1.0)
        progress.result(label, result)
    assert lines[:2] == ["a: compiling for 6 points and seeds", "a: best f1 0.9, in 12 s"]
    assert lines[2:] == ["b: compiling for 6 points and seeds", "b: best f1 0.7, in 12 s"]
    for score, each in zip((0.8, 0.6), found.values(), strict=True):
        each["last"] = {"accuracy": score, "density": 0.5}
    table, star, legend, *told = results({"algorithms": found}, tmp_path, ("accuracy", "r2"))
    assert "converged is still" in legend and "moving" not in legend
    title, *rows = table.splitlines()
    assert "accuracy" in rows[0] and " 0.6 " in rows[2] and "density" in rows[0]
    assert title == "best by f1 over the last 10 rounds"
    assert [row.split()[0] for row in rows] == ["algorithm", "a", "b"]
    assert "0.3*" in rows[2] and star.startswith("* is the edge of a grid")
    assert told == [
        "a has the highest F1 score, 0.9; b is next with 0.7. On held-out rows a has accuracy 0.8.",
        f"Open {tmp_path / 'index.html'}.",
    ]
