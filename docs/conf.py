"""The site: sphinx-build -W docs build/site; by version, docs/build.py."""

import importlib.util
import os
import pathlib

from docutils import nodes
from sphinx.util.nodes import make_refnode

import fcojax

_LINKED = ("function", "class", "module")
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


def link_names(app, doctree, page):
    """Link names of public functions in tables to their documentation.

    A literal may have several names, and arguments behind a single one.
    """
    full = {}  # by the last part of the name; "" if two objects share it
    domain = app.env.get_domain("py")
    for name, thing in domain.objects.items():
        if name.startswith("fcojax.") and thing.objtype in _LINKED:
            last = name.rpartition(".")[2]
            full[name] = name
            if thing.objtype != "module":
                full[last] = "" if last in full else name
    for table in doctree.findall(nodes.table):
        for literal in list(table.findall(nodes.literal)):
            text = literal.astext()
            words = [text] if "(" in text else text.split()
            names = [full.get(word.partition("(")[0]) for word in words]
            known = None not in names and any(names)
            if isinstance(literal.parent, nodes.reference) or not known:
                continue
            links = []
            for word, name in zip(words, names, strict=True):
                link = literal.deepcopy()
                link.children = [nodes.Text(word)]
                if name:
                    where = domain.objects[name].docname
                    link = make_refnode(app.builder, page, where, name, link)
                links += [link, nodes.Text(" ")]
            literal.parent.replace(literal, links[:-1])


def setup(app):
    """Register the hooks with Sphinx."""
    app.connect("doctree-resolved", link_names)
    app.connect("autodoc-skip-member", without_fields)
