"""The pages of results are what the code makes of their claims, sections and reasons."""

import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[4]
FOLDER = ROOT / "packages" / "sites" / "docs" / "results"
_SPEC = importlib.util.spec_from_file_location("docs_results", ROOT / "docs" / "results.py")
pages = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(pages)
RUNS = pages.read_runs(FOLDER)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_every_statement_that_does_not_hold_has_a_reason_on_its_page(run, tmp_path):
    path, written = FOLDER / f"{run.config}.md", tmp_path / "page.md"
    page, claims = pages.read_page(path), pages.read_claims(FOLDER)
    assert pages.write_page(written, [run], claims, page, FOLDER.parent / "figures") == []
    assert written.read_text() == path.read_text()


def test_the_index_is_that_of_the_pages(tmp_path):
    assert FOLDER.with_suffix(".md").read_text() == pages.index(FOLDER, RUNS)
    pages.write_claims(tmp_path, pages.read_claims(FOLDER), RUNS)
    assert pages.read_claims(tmp_path) == pages.read_claims(FOLDER)
