"""The page: complete in itself, escaped, with the numbers of its tables."""

import base64
import html.parser

from experiments.report import page

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
NASTY = "<script>alert('$1')</script> & \"$HOME\" {{ title }} ${title}"


class Reader(html.parser.HTMLParser):
    """Collects tags, cells, sources and the text."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.cells, self.sources, self.text = [], [], [], ""
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data):
        self.text += data
        if self.tags[-1:] in (["td"], ["th"]):
            self.cells[-1] += data

    def handle_endtag(self, tag):
        self.tags.append("/" + tag)


def test_the_page_holds_everything_and_needs_no_other_file(tmp_path):
    figure, path = tmp_path / "a_figure.png", tmp_path / "index.html"
    figure.write_bytes(PIXEL)
    lines = [{"name": "a < b", "score": 0.123456789, "fine": True}, {"name": "c", "fine": False}]
    counts = [{"what": "sent", "value": 1234567}, {"what": "rule", "value": "a sentence " * 3}]
    shown = page.Shown(figure, "a caption", [{"claim": "it holds", "holds": True}])
    page.write(
        path,
        "A",
        "do this",
        [shown],
        {"scores": lines, "counts": counts, "empty": []},
        notes="one\n\ntwo",
        warnings=["at the edge"],
        facts={"date": "today"},
    )
    reader = Reader(path)
    assert reader.cells[:4] == ["claim", "holds", "it holds", "yes"]
    assert reader.cells[4:13] == [
        "name",
        "score",
        "fine",
        "a < b",
        "0.12346",
        "yes",
        "c",
        "-",
        "no",
    ]
    assert reader.cells[13:] == ["what", "value", "sent", "1,234,567", "rule", "a sentence " * 3]
    (source,) = reader.sources
    assert base64.b64decode(source.removeprefix("data:image/png;base64,")) == PIXEL
    for text in ("a caption", "one", "two", "at the edge", "today", "do this"):
        assert text in reader.text
    assert "empty" not in reader.text and "http" not in path.read_text("utf-8")
    assert '<td class="words">a sentence' in path.read_text("utf-8")
    assert not (tmp_path / "index.partial").exists()


def test_names_and_texts_of_a_user_come_out_as_they_are_and_run_nothing(tmp_path):
    figure, path = tmp_path / "a <script> $x.png", tmp_path / "index.html"
    figure.write_bytes(PIXEL)
    table = [{NASTY: NASTY}]
    page.write(
        path,
        NASTY,
        NASTY,
        [page.Shown(figure, NASTY, table)],
        {NASTY: table},
        notes=NASTY,
        warnings=[NASTY],
        facts={NASTY: NASTY},
    )
    reader = Reader(path)
    assert "script" not in reader.tags
    # Title twice, command, note, warning, caption, the heading, two facts and two tables.
    assert reader.text.count(NASTY) == 13
