"""The curves of the page: the numbers of the rows, escaped, and interactive in a browser."""

import html.parser
import json
import re

import numpy as np
import pytest

from experiments.report import charts, page, plots

NASTY = "</script><script>alert('$1')</script> & \"$HOME\" {{ title }} <b>"
ROUNDS = (1, 10, 20, 40)
PANELS = [
    plots.Panel("gap", r"$\Phi - \Phi^*$", log=True),
    plots.Panel("f1", "F1 score"),
    plots.Panel("f1", "F1 score", over="bytes_up"),
]


def rows_of(algorithm, factor, seeds=(0, 1), status="running"):
    return [
        {
            "algorithm": algorithm,
            "seed": seed,
            "round": r,
            "gap": factor * (1 + seed) / r,
            "f1": r / 40 - seed / 8,
            "bytes_up": 1e6 * r * factor,
            "lr": factor,
            "status": status,
        }
        for seed in seeds
        for r in ROUNDS
    ]


BEST = {"fed_avg": rows_of("fed_avg", 1.0), NASTY: rows_of(NASTY, 2.0)}
FIELDS = {"fed_avg": ["lr"], NASTY: ["lr"]}


def drawn(best=None, optimum=None):
    return charts.charts(PANELS, best or BEST, FIELDS, optimum)


def test_the_numbers_are_mean_and_range_over_the_seeds():
    first, second, third = drawn().charts
    _, across, mean, low, high = first["numbers"][1]
    assert across == list(ROUNDS)
    np.testing.assert_allclose(mean, 3 / np.array(ROUNDS), rtol=1e-4)
    np.testing.assert_allclose(low, 2 / np.array(ROUNDS), rtol=1e-4)
    np.testing.assert_allclose(high, 4 / np.array(ROUNDS), rtol=1e-4)
    assert third["numbers"][1][1] == [2 * r for r in ROUNDS]  # megabytes
    assert first["label"] == "Φ - Φ*" and second["across"] == "communication round"
    assert drawn().heading == "mean and range of 2 seeds"
    assert [label for label, *_ in drawn().legend] == ["FedAvg (lr = 1)", f"{NASTY} (lr = 2)"]


def test_equal_factors_are_equal_distances_on_a_logarithmic_axis():
    scale = charts.scale(np.array([1e-3, 10.0, np.nan, -1.0]), 258.0, 12.0, True, 0.04)
    places = scale([1e-3, 1e-2, 1e-1, 1.0, 10.0])
    np.testing.assert_allclose(np.diff(places), np.diff(places)[0])
    assert 12 < places[-1] < places[0] < 258 and np.isnan(scale([0.0])[0])
    assert [text for _, text in scale.ticks()] == ["0.001", "0.01", "0.1", "1", "10"]
    for constant in (0.0, 3.0, 1e-30):  # one value is still a range
        flat = charts.scale(np.array([constant]), 258.0, 12.0, False, 0.04)
        np.testing.assert_allclose(flat([constant]), 135.0)


def test_a_method_that_is_solved_to_rounding_stays_in_sight_on_a_logarithmic_axis():
    rows = rows_of("fed_avg", 1.0, seeds=(0,))
    rows[2]["gap"], rows[3]["gap"] = 0.0, -1e-8
    one = drawn({"fed_avg": rows, NASTY: BEST[NASTY]}).charts[0]
    path = one["curves"][0]["path"]
    assert path.count("M") == 1 and path.count("L") == 3
    heights = [float(point.split(",")[1]) for point in path.split()]
    assert heights[2] == heights[3] == charts.BOTTOM  # the page shows the numbers themselves
    assert one["numbers"][0][2][2:] == [0.0, -1e-8]


def test_a_line_begins_anew_after_a_gap_and_ends_with_a_cross():
    rows = rows_of("fed_avg", 1.0, seeds=(0,), status="diverged")
    rows[1]["gap"] = rows[3]["gap"] = None
    one = drawn({"fed_avg": rows, NASTY: BEST[NASTY]}).charts[0]
    path = one["curves"][0]["path"]
    assert path.count("M") == 2 and path.count("L") == 0 and not one["curves"][0]["band"]
    places, _, mean, *rest = one["numbers"][0]
    assert mean == [1.0, None, 0.05, None] and not rest
    ((x, y),) = one["curves"][0]["crosses"]
    assert path.endswith(f"{x:.1f},{y:.1f}") and x == pytest.approx(places[2], rel=1e-4)


def test_an_optimum_is_a_curve_of_its_own():
    found = drawn(optimum={"f1": 0.5})
    assert found.legend[-1] == ("optimum", "#555555", "2 3")
    assert [len(chart["curves"]) for chart in found.charts] == [2, 3, 3]
    assert found.charts[1]["numbers"][2][2] == [0.5] * len(ROUNDS)


class Reader(html.parser.HTMLParser):
    """Collects tags with their attributes, and the text in each script."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.scripts, self.labels = [], [], []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        if tag == "label":
            self.labels.append("")

    def handle_data(self, data):
        last = self.tags[-1][0] if self.tags else ""
        if last == "script":
            self.scripts[-1] += data
        if self.labels and last == "line":
            self.labels[-1] += data


@pytest.fixture
def written(tmp_path):
    path, figure = tmp_path / "index.html", tmp_path / "curves.png"
    figure.write_bytes(b"not shown")
    nasty = [PANELS[0]._replace(label=NASTY), *PANELS[1:]]
    found = charts.charts(nasty, BEST, FIELDS, {"f1": 0.5})
    page.write(path, "A run", "do this", [page.Shown(figure, "curves", found)], [])
    return path


def test_the_page_is_one_file_and_escapes_what_a_user_wrote(written):
    reader = Reader(written)
    text = written.read_text("utf-8")
    assert not [attrs for _, attrs in reader.tags if {"src", "href"} & attrs.keys()]
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttp|import ?\(", text)
    *numbers, program = reader.scripts
    assert [json.loads(one) for one in numbers] == [
        json.loads(json.dumps(chart["numbers"])) for chart in drawn(optimum={"f1": 0.5}).charts
    ]
    assert "querySelector" in program and "alert" not in program
    assert not [tag for tag, _ in reader.tags if tag in ("b", "img")]
    named = [attrs["aria-label"] for tag, attrs in reader.tags if "aria-label" in attrs]
    assert named[0] == f"{NASTY} over communication round"
    assert [label.strip() for label in reader.labels][1] == f"{NASTY} (lr = 2)"
    boxes = [attrs for tag, attrs in reader.tags if tag == "input"]
    assert len(boxes) == 3 and {box["type"] for box in boxes} == {"checkbox"}
