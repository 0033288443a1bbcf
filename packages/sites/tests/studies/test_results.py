"""The pages of results are what the code makes of their claims, sections and reasons."""

import pytest

from experiments.publishing.pages import index, read_claims, read_page, write_claims, write_page
from fcojax_sites.results import DOCS, RUNS

FOLDER = DOCS / "results"


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_every_statement_that_does_not_hold_has_a_reason_on_its_page(run, tmp_path):
    path, written = FOLDER / f"{run.config}.md", tmp_path / "page.md"
    page, claims = read_page(path), read_claims(FOLDER)
    assert write_page(written, [run], claims, page, DOCS / "figures") == []
    assert written.read_text() == path.read_text()


def test_the_index_is_that_of_the_pages(tmp_path):
    assert (DOCS / "results.md").read_text() == index(FOLDER, RUNS)
    write_claims(tmp_path, read_claims(FOLDER), RUNS)
    assert read_claims(tmp_path) == read_claims(FOLDER)
