"""The page: complete in itself, escaped, and the same numbers as the tables it is given."""

import base64
import html.parser

from experiments.report import page

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)


class Reader(html.parser.HTMLParser):
    """Collects cells and sources."""

    def __init__(self):
        super().__init__()
        self.cells, self.sources, self._inside = [], [], False

    def handle_starttag(self, tag, attrs):
        self._inside = tag in ("td", "th")
        self.sources += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        if self._inside:
            self.cells.append(data)

    def handle_endtag(self, tag):
        self._inside = False


def test_the_page_holds_everything_and_asks_for_nothing(tmp_path):
    figure = tmp_path / "a_figure.png"
    figure.write_bytes(PIXEL)
    lines = [{"name": "a < b", "score": 0.123456789, "fine": True}, {"name": "c", "fine": False}]
    shown = page.Shown(figure, "what <it> shows", [{"claim": "it holds", "holds": True}])
    page.write(
        tmp_path / "index.html", "A & B", "do <this>", [shown], {"scores": lines},
        warnings=["look at the edge"], facts={"date": "today"},
    )  # fmt: skip
    text = (tmp_path / "index.html").read_text("utf-8")
    reader = Reader()
    reader.feed(text)
    assert reader.cells[:4] == ["claim", "holds", "it holds", "yes"]
    assert reader.cells[4:] == ["name", "score", "fine", "a < b", "0.12346", "yes", "c", "-", "no"]
    (source,) = reader.sources
    assert base64.b64decode(source.removeprefix("data:image/png;base64,")) == PIXEL
    assert "what &lt;it&gt; shows" in text and "look at the edge" in text and "today" in text
    assert "<h1>A &amp; B</h1>" in text and "do &lt;this&gt;" in text and "http" not in text
    assert not (tmp_path / "index.partial").exists()


def test_large_counts_are_grouped_and_sentences_wrapped(tmp_path):
    lines = [{"what": "sent", "value": 1234567}, {"what": "rule", "value": "a sentence " * 3}]
    page.write(tmp_path / "index.html", "A", "do", [], {"facts": lines})
    text = (tmp_path / "index.html").read_text("utf-8")
    assert "<td>1,234,567</td>" in text and '<td class="words">a sentence' in text
