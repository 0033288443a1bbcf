"""The pages of results: their sections, their order, and sections kept without a new run."""

import pathlib
import re

from experiments.publishing.results import RUNS, index, sections_of, write_page

DOCS = pathlib.Path(__file__).parent.parent.parent / "docs"


def test_a_page_is_split_and_joined_by_heading(tmp_path):
    page, runs = tmp_path / "low_rank.md", [run for run in RUNS if run.config == "low_rank"]
    assert sections_of(page) == {}
    given = {run.heading: f"## {run.heading}\n\n{run.name}" for run in reversed(runs)}
    written = {"Remarks": "## Remarks\n\nby hand"}
    write_page(page, runs, written | given | {"of no run": "## of no run"})
    assert page.read_text().startswith("# Low-rank matrix estimation")
    assert list(sections_of(page).items()) == [*reversed(given.items()), *written.items()]


def test_every_run_has_its_section_in_order_with_date_time_and_machine():
    for config in {run.config for run in RUNS}:
        sections = sections_of(DOCS / "results" / f"{config}.md")
        sections.pop("Remarks", None)
        assert list(sections) == [run.heading for run in RUNS if run.config == config]
        for text in sections.values():
            line = r"^\d{4}-\d\d-\d\d, \d+ s\. .*GiB; .*JAX [\d.]+\.$"
            assert re.search(line, text, re.M), text[:200]
            for picture in re.findall(r"\]\(\.\./(.*png)\)", text):
                assert (DOCS / picture).exists()


def test_the_index_is_that_of_the_pages():
    assert (DOCS / "results.md").read_text() == index(DOCS / "results")
