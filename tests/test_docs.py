"""What the pages show runs, and prints what they say; and every public name is on one of them."""

import importlib
import inspect
import pathlib
import re
import subprocess
import sys
import typing

import pytest

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if "build" not in page.parts]
MODULES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in (ROOT / "fcojax").rglob("__init__.py")
    if "__all__" in path.read_text("utf-8")
)


def run(*pages):
    """In a process of its own: the reader's JAX is in its default precision."""
    command = [sys.executable, str(ROOT / "tests" / "blocks.py"), *map(str, pages)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_runs():
    run(ROOT / "README.md")


@pytest.mark.slow
def test_the_pages_run():
    run(*(page for page in PAGES if page.parent == DOCS and "```python" in page.read_text("utf-8")))


@pytest.mark.slow
def test_the_notebooks_run():
    run(*(DOCS / "notebooks").glob("*.md"))


def test_every_module_with_public_names_is_on_a_page_of_the_api():
    text = "\n".join(page.read_text("utf-8") for page in (DOCS / "api").glob("*.md"))
    shown = re.findall(r"^\.\. automodule:: (\S+)$", text, re.MULTILINE)
    assert set(MODULES) <= set(shown)
    for name in shown:
        importlib.import_module(name)


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_has_a_docstring(name):
    module = importlib.import_module(name)
    for public in module.__all__:
        thing = getattr(module, public)
        if typing.get_origin(thing) is None and (callable(thing) or inspect.ismodule(thing)):
            told = inspect.getdoc(thing) or ""
            assert told and not told.startswith(f"{public}("), f"{name}.{public}"


@pytest.mark.parametrize("name", MODULES)
def test_every_public_function_and_class_has_an_example(name):
    module = importlib.import_module(name)
    without = [
        public
        for public in module.__all__
        if inspect.isroutine(thing := getattr(module, public)) or inspect.isclass(thing)
        if ">>>" not in (inspect.getdoc(thing) or "")
    ]
    assert not without


def test_every_page_is_in_the_table_of_contents():
    trees = [page.read_text("utf-8") for page in (DOCS / "index.md", DOCS / "api" / "index.md")]
    told = "\n".join(trees)
    for page in PAGES:
        name = str(page.relative_to(DOCS).with_suffix(""))
        assert page.stem == "index" or re.search(rf"^({name}|{page.stem})$", told, re.MULTILINE), (
            page
        )
