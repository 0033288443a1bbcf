"""The site: sphinx-build -W docs build/site; by version, docs/build.py."""

import importlib.util
import os
import pathlib

import fcojax

project, author, copyright = (
    "fcojax",
    "The fcojax authors",
    "The fcojax authors",
)
version = release = fcojax.__version__
extensions = [
    "myst_nb",
    "sphinx_design",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
]
exclude_patterns = ["build", "templates", "static"]

# Formulas without a network: one file of MathJax, from a package.
_mathjax = importlib.util.find_spec(
    "sphinx-mathjax-offline"
).submodule_search_locations[0]
html_static_path = [
    "static",
    str(pathlib.Path(_mathjax) / "static" / "mathjax" / "tex-svg.js"),
]
mathjax_path = "tex-svg.js"

html_theme = "sphinx_book_theme"
html_title = f"fcojax {version}"
html_css_files = ["fcojax.css"]
html_theme_options = {
    "show_toc_level": 2,
    "navbar_persistent": [],  # one search is enough
    "show_navbar_depth": 1,
}
# A site with several versions has a link to the others; docs/build.py asks.
html_context = {"has_versions": bool(os.environ.get("FCOJAX_VERSIONS"))}
templates_path = ["templates"]
html_sidebars = {
    "**": [
        "navbar-logo.html",
        "icon-links.html",
        "search-button-field.html",
        "sbt-sidebar-nav.html",
        "versions.html",
    ]
}

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
# Notebooks run in full, and a cell that fails ends the build.
nb_execution_mode = "cache"
nb_execution_timeout = 1200
nb_execution_raise_on_error = True

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # fields of NamedTuples are members already


def without_fields(app, what, name, thing, skip, options):
    """Skip the fields of a NamedTuple, which its attributes document."""
    alias = (getattr(thing, "__doc__", None) or "").startswith(
        "Alias for field number"
    )
    return True if alias else None


def setup(app):
    """Register the hooks with Sphinx."""
    app.connect("autodoc-skip-member", without_fields)
