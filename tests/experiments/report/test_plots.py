"""Curves over what was sent, in place of the rounds."""

import numpy as np
import pytest

from experiments.report import axes, plots

# Two seeds whose cohorts, and so bytes, differ; the second diverges.
ROWS = [
    {
        "seed": seed,
        "round": r,
        "f1": r / 10,
        "bytes_up": sent,
        "bytes_down": 2 * sent,
        "status": "running" if seed == 0 else "diverged",
    }
    for seed, scale in ((0, 1e6), (1, 3e6))
    for r, sent in ((1, scale), (2, 2 * scale))
]


@pytest.mark.parametrize(
    ("over", "label", "places", "crosses"),
    [
        ("round", "communication round", [1, 2], [2]),
        ("bytes_up", "megabytes sent up", [2, 4], [6]),
        ("bytes_down", "megabytes sent down", [4, 8], [12]),
    ],
)
def test_curves_are_drawn_over_rounds_or_megabytes(
    over, label, places, crosses, tmp_path, monkeypatch
):
    drawn = []
    monkeypatch.setattr(axes, "finish", lambda figure, path, *_, **__: drawn.append(figure) or path)
    panels = [plots.Panel("f1", "F1", over=over)]
    plots.over_rounds(tmp_path / "a.png", panels, {"mine": ROWS}, "title", {"mine": []})
    axis = drawn[0].axes[0]
    curve, *marks = axis.get_lines()
    assert axis.get_xlabel() == label
    assert axis.get_xscale() == ("linear" if over == "round" else "log")
    np.testing.assert_allclose(curve.get_xdata(), places)
    assert [mark.get_xdata()[0] for mark in marks] == crosses
