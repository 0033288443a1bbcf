"""The page: complete in itself, escaped, with the numbers of its tables."""

import base64
import html.parser

from experiments.publishing.figures import write_page

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
    tables = [("scores", lines, "a star"), ("counts", [{"sent": 1234567}], ""), ("empty", [], "")]
    told = {"verdict": "it came out", "about": "of this", "command": "do this", "citation": "@book"}
    told |= {"warnings": ["at the edge"], "notes": "a note", "facts": {"seeds": 4096}}
    write_page(path, "A", {figure: "a caption"}, tables, files=["figures/a b.pdf"], **told)
    reader = Reader(path)
    expected = ["name", "score", "fine", "a < b", "0.12346", "yes", "c", "-", "no"]
    assert reader.cells == [*expected, "sent", "1,234,567"]
    source, link = reader.sources
    assert link == "figures/a%20b.pdf"
    assert base64.b64decode(source.removeprefix("data:image/png;base64,")) == PIXEL
    order = ["it came out", "of this", "at the edge", "a caption", "a star", "do this", "@book"]
    places = [reader.text.index(text) for text in (*order, "a note", "4096")]
    assert places == sorted(places)  # the verdict first, how it was run last
    assert "empty" not in reader.text and "http" not in path.read_text("utf-8")


def test_names_and_texts_of_a_user_come_out_as_they_are_and_run_nothing(tmp_path):
    figure, path = tmp_path / "a <script> $x.png", tmp_path / "index.html"
    figure.write_bytes(PIXEL)
    told = dict.fromkeys(("command", "verdict", "about", "citation", "notes"), NASTY)
    told |= {"warnings": [NASTY], "files": [NASTY], "facts": {NASTY: NASTY}}
    write_page(path, NASTY, {figure: NASTY}, [(NASTY, [{NASTY: NASTY}], NASTY)], **told)
    reader = Reader(path)
    assert "script" not in reader.tags
    # Title twice, verdict, what, warning, caption, four in the table, command, citation, file,
    # note, two facts.
    assert reader.text.count(NASTY) == 16
