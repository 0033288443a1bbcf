"""Code on the pages runs and prints what they say; links lead somewhere; names have examples."""

import importlib
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).parent.parent
PAGES = [PACKAGE / "README.md", *sorted((PACKAGE / "docs").rglob("*.md"))]
WITH_CODE = [p for p in PAGES if re.search(r"^```(python|\{code-cell)", p.read_text("utf-8"), re.M)]


def run(*pages):
    """Run pages in a separate process, with JAX's default precision."""
    blocks = PACKAGE.parent.parent / "tests" / "support" / "blocks.py"
    command = [sys.executable, str(blocks), *map(str, pages)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_runs():
    run(PACKAGE / "README.md")


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE[1:], ids=lambda page: page.stem)
def test_a_page_runs(page):
    run(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_files_and_headings(page):
    dead = []
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)]*)?\)", page.read_text("utf-8")):
        path = page.parent / target if target else page
        if "://" in target:
            continue
        if not path.exists():
            dead.append(target)
        elif anchor:
            titles = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.M)
            slugs = {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}
            dead += [] if anchor[1:] in slugs else [target + anchor]
    assert not dead


@pytest.mark.parametrize("name", ["fcojax_sites", "fcojax_sites.selection", "fcojax_sites.flower"])
def test_every_public_function_and_class_has_an_example(name):
    module = importlib.import_module(name)
    things = {public: getattr(module, public) for public in module.__all__}
    made = {n: t for n, t in things.items() if inspect.isroutine(t) or inspect.isclass(t)}
    assert not [n for n, thing in made.items() if ">>>" not in (inspect.getdoc(thing) or "")]
