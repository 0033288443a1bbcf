"""The page of results: which runs it has, and that those left out keep their sections."""

import pathlib
import re

from experiments import config_file
from experiments.results import RUNS, kept

ROOT = pathlib.Path(__file__).parent.parent.parent


def test_a_page_is_taken_apart_by_title(tmp_path):
    page = tmp_path / "page.md"
    assert kept(page) == {}
    page.write_text("# Results\n\n## One\n\nfirst\n\n## Two: half\n\nsecond\n")
    assert kept(page) == {"One": "## One\n\nfirst", "Two: half": "## Two: half\n\nsecond"}


def test_every_run_has_its_section_in_order_with_date_time_and_machine():
    sections = kept(ROOT / "docs" / "results.md")
    files = [config_file.load(str(ROOT / "configs" / f"{run.config}.py")) for run in RUNS]
    titles = [file.experiment.title for file in files]
    expected = [
        f"{title}: {run.heading}" if run.heading else title
        for run, title in zip(RUNS, titles, strict=True)
    ]
    assert list(sections) == expected
    for text in sections.values():
        assert re.search(r"^\d{4}-\d\d-\d\d, \d+ s\. .*GiB; .*JAX [\d.]+\.$", text, re.M), text[
            :200
        ]
