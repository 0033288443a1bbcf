"""docs/claims.md: every claim is made where that page says."""

import pathlib
import re

import pytest

from experiments.publishing.results import RUNS, sections_of

ROOT = pathlib.Path(__file__).parent.parent.parent
_HEADINGS = {run.name: (run.config, run.heading) for run in RUNS}

# The start of a row of docs/claims.md, and what each table that it names says of it.
MADE = {
    "LASSO: FedDualAvg finds most": ("recovers more than FedMiD ", "recovers more than FedMiD-OSP"),
    "LASSO: FedDualAvg is the fastest": ("faster than FedDualAvg-OSP", "faster than FedMiD "),
    "LASSO: FedDualAvg-OSP is very": ("FedDualAvg-OSP is very competitive",),
    "LASSO: FedMiD is the least": ("FedMiD is the least sparse",),
    "LASSO: FedDualAvg benefits": ("benefits from larger rates",),
    "LASSO with 64 and 8": ("recovers more than", "faster than", "least sparse"),
    "low rank: FedDualAvg has rank 16": ("has rank 16 in fewer than 100",),
    "low rank: FedMiD and": ("FedMiD is slower in loss", "FedMiD-OSP is slower in rank"),
    "low rank: FedDualAvg-OSP": ("FedDualAvg-OSP ends at a low rank", "is far less accurate"),
    "low rank with a true matrix of rank 4": ("has rank 4 in fewer than 100", "ends at a low"),
    "low rank with a true matrix of rank 1": ("has rank 1 in fewer than 100", "slower in"),
    "low rank with 256": ("has rank 16 in fewer than 100", "slower in", "ends at a low"),
    "fMRI: FedDualAvg is comparable": ("about as accurate as centralised",),
    "fMRI: FedDualAvg is better than local": ("more accurate than local",),
    "fMRI: FedAvg with": ("more accurate than FedAvg, subgradient", "a worse objective"),
    "fMRI: FedMiD and": ("FedMiD is denser", "FedMiD-OSP is somewhat less accurate"),
    "fMRI: FedDualAvg-OSP": ("FedDualAvg-OSP is sparse", "is far less accurate"),
    "fMRI: FedDualAvg is the most robust": ("most robust to the rates",),
    "constraints: federated EMNIST": (),
    "Theorem 4.1 for": (
        "Theorem 4.1 is above the gap of FedDualAvg",
        "ball, small steps: Theorem 4.1 is above the gap of FedMiD ",
    ),
    "Theorem 4.2 bounds": ("Theorem 4.2 is above",),
    "Theorem 4.3 bounds": ("Theorem 4.3 is above",),
    "Lemma 4.4": ("Lemma 4.4 is above", "Lemma 4.5 is above"),
    "averaging primal models": ("on the ball ends above", "models is denser than the models"),
    "the closed form": ("the closed form gives the rounds",),
    "E = 1 ends": ("E = 1: FedGD ends at the pooled", "E > 1: it does not"),
    "for E to infinity": ("mean of the clients' own minimisers",),
    "more local steps need fewer": ("two local steps need half the rounds",),
    "Local SGD stays": ("Theorem 1 is above the mean gap",),
    "both are one method": ("matching starts: the models",),
    "a server drift": ("is a bias for ever",),
    "FedPD without skips": ("without skipping FedPD ends", "the floor grows"),
    "skipping less": ("skipping less and less removes",),
    "FedDyn is exact": ("FedDyn reaches the tolerance",),
    "the manifold method reaches": ("least gradient norm",),
    "and the smallest gradient": ("the least that another method has with as many floats",),
    "RFedAvg stalls": ("RFedAvg stalls",),
    "RFedProx stalls": ("RFedProx stalls",),
    "RFedSVRG is as good": ("RFedSVRG is about as good a round", "and sends twice as much"),
    "more local steps are faster": ("more local steps are faster a round",),
    "a larger batch": ("a larger batch lowers the floor",),
    "the rate 1": ("a server step of sqrt(n)",),
    "the floor of minibatches": ("the floor of the squared gradient",),
    "lasso and low rank: the fast": ("at the source's rates",),
    "and end with the least": ("error at the end",),
    "stages make": ("stages speed C-FedDualAvg up",),
    "digits: lower loss": ("loss at the end", "accuracy at the end"),
    "vectors: FeDualEx": ("K = 1: FeDualEx's gap", "K = 10: FeDualEx's share of nonzeros"),
    "averaging in the primal": ("is dense, at 0.95 or more",),
    "matrices: FeDualEx": ("FeDualEx's ranks end at 10", "FeDualEx has the least gap"),
    "FedDualAvg has the smaller gap": ("FedDualAvg's gap is smaller", "its F1 is higher"),
    "the mean gap at E = 1": ("is at most the published 2.7e-05",),
    "at equal bytes": ("below one cap of all bytes",),
    "averaged descent stands": ("averaged descent stands still", "active count"),
    "corrected and primal-dual": ("SCAFFOLD, client prox is exact", "FedDyn, K steps is exact"),
    "where Hessians are shared": ("local steps save exchanges",),
    "a sparse upload": ("the largest tenth without feedback ends elsewhere",),
}


def _rows():
    text = (ROOT / "docs" / "claims.md").read_text("utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows if len(row) == 2 and row[0] != "claim"]


def _told(run):
    """Return the claims of the source, or what stands in their place, on the section of a run."""
    config, heading = _HEADINGS[run]
    section = sections_of(ROOT / "docs" / "results" / f"{config}.md")[heading]
    return "\n".join(re.findall(r"\| what the source says \|.*\n(?:\|.*\n?)+", section))


@pytest.mark.parametrize(("claim", "where"), _rows())
def test_a_claim_is_made_where_the_page_says(claim, where):
    for name in re.findall(r"`(tests/[\w/]+\.py)`", where):
        assert (ROOT / name).exists(), name
    runs = re.search(r"configs? ((?:`\w+`(?:, | and )?)+)", where)
    if where.startswith("not checked") or not runs:
        assert "tests/" in where or "not checked" in where or "sends=" in where
        return
    [patterns] = [said for start, said in MADE.items() if claim.startswith(start)]
    for run in re.findall(r"`(\w+)`", runs[1]):
        for pattern in patterns:
            assert pattern in _told(run), f"{run} does not say: {pattern}"


def test_no_claim_is_listed_for_a_row_that_is_gone():
    rows = [claim for claim, _ in _rows()]
    assert [start for start in MADE if not any(row.startswith(start) for row in rows)] == []
