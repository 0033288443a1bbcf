"""The figures of a sweep: labels that fit, lines that stay in sight, crosses where a run ends."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from experiments.report import axes
from experiments.report.plots import Panel, over_rounds

PANELS = [Panel("accuracy", "accuracy on held-out digits"), Panel("gap", "gap", log=True)]
FIELDS = {"fed_avg": ["client_lr"], "mine": ["client_lr"]}


def rows_of(**changes):
    return [
        {"client_lr": 0.1, "seed": seed, "round": at, "status": "", "gap": 1 / (1 + at)}
        | {"accuracy": at / 120 - seed / 9}
        | changes
        for seed in (0, 1)
        for at in range(0, 121, 10)
    ]


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Return a function that draws, and returns the axes and the picture."""
    kept = []
    monkeypatch.setattr(axes.plt, "close", kept.append)

    def draw(rows, **look):
        with axes.house(**look):
            over_rounds(tmp_path / "a.png", PANELS, rows, "Digits", FIELDS, {"gap": 0.01})
        assert (tmp_path / "a.pdf").stat().st_size > 5_000
        return kept[-1], plt.imread(tmp_path / "a.png")

    yield draw
    monkeypatch.undo()
    plt.close("all")


@pytest.mark.parametrize("width", [5.3, 5.4, 5.5])
def test_no_label_is_cut_at_the_edge(drawn, width):
    _, picture = drawn({"fed_avg": rows_of(), "mine": rows_of()}, size=(width, 2.2), title="")
    ink = np.nonzero((picture[..., :3].min(axis=2) < 0.9).any(axis=0))[0]
    assert ink[0] > 2 and ink[-1] < picture.shape[1] - 3


def test_curves_are_means_and_what_is_zero_or_diverged_stays_in_sight(drawn):
    gone = rows_of(status="diverged at round 120", client_lr=0.2)
    for row in gone:
        row["gap"] = None if row["round"] > 100 else 0.0
    figure, _ = drawn({"fed_avg": rows_of(), "mine": gone}, labels={"mine": "Ours"}, title="Mine")
    accuracy, gap = figure.axes
    mean, _, first_cross, *_ = accuracy.lines
    np.testing.assert_allclose(mean.get_ydata(), np.arange(13) / 12 - 1 / 18)
    _, zero, *crosses, optimum = gap.lines
    np.testing.assert_allclose(zero.get_ydata()[:11], 1 / 121)  # the least that is positive
    assert np.isnan(zero.get_ydata()[11:]).all() and optimum.get_label() == "optimum"
    assert (
        first_cross.get_xdata() == [120] and [cross.get_xdata() for cross in crosses] == [[100]] * 2
    )
    [legend] = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == [r"FedAvg ($\eta_c$ = 0.1)", r"Ours ($\eta_c$ = 0.2)", "optimum"]
    assert figure.get_suptitle() == "Mine"
