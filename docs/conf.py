"""The site: sphinx-build -W docs build/site; by version, docs/build.py."""

import importlib.util
import inspect
import os
import pathlib
import re
import urllib.parse

from docutils import nodes
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

import fcojax

_LOG = logging.getLogger(__name__)
_ID = re.compile(r'\bid="([^"]+)"')
_LINK = re.compile(r'<a [^>]*href="((?![a-z]+:)[^"]*#[^"]+)"')
_ROW = re.compile(r"\| `(fcojax/[\w/.]+)` \| (`.*?`) \|")
_SHARED = ("Constants", "Path")  # names of classes of several modules
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
python_use_unqualified_type_names = True
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
            around = literal.parent, literal.parent.parent
            linked = any(isinstance(n, nodes.reference) for n in around)
            if linked or not known:
                continue
            links = []
            for word, name in zip(words, names, strict=True):
                link = literal.deepcopy()
                link.children = [nodes.Text(word)]
                if name:
                    where = domain.objects[name].docname
                    place = domain.objects[name].node_id
                    link = make_refnode(app.builder, page, where, place, link)
                links += [link, nodes.Text(" ")]
            literal.parent.replace(literal, links[:-1])


def show_sources(app, page, text):
    """Link names in the tables of the tour to their sources, shown below."""
    if page != "source_tour":
        return
    lines, sources = [], []
    for line in [*text[0].split("\n"), ""]:
        if found := _ROW.match(line):
            file, names = found.groups()
            for name in re.findall(r"`([\w.]+)`", names):
                label = f"source-{pathlib.Path(file).stem}-{name}"
                line = line.replace(f"`{name}`", f"[`{name}`](#{label})", 1)
                sources += [f"({label})=", f"```{{literalinclude}} ../{file}"]
                sources += [f":pyobject: {name}", "```", ""]
        elif sources:
            lines += ["", "::::{dropdown} The sources", *sources, "::::"]
            sources = []
        lines.append(line)
    text[0] = "\n".join(lines)


def refuse_dead_anchors(app, error):
    """Warn of each link within the site whose page or anchor is missing."""
    if error or app.builder.format != "html":
        return
    site = pathlib.Path(app.outdir)
    texts = {page: page.read_text("utf-8") for page in site.rglob("*.html")}
    known = {page: set(_ID.findall(text)) for page, text in texts.items()}
    for page, text in texts.items():
        for link in {*_LINK.findall(text)}:
            name, _, anchor = urllib.parse.unquote(link).partition("#")
            target = (page.parent / name).resolve() if name else page
            if anchor and anchor not in known.get(target, ()):
                _LOG.warning("%s: %s is a dead anchor", page.name, link)


def readable_signature(app, what, name, thing, options, signature, back):
    """Return the signature that ``help`` prints, which has short types."""
    if hasattr(thing, "__signature__") or what == "class":
        text, owner = (
            str(inspect.signature(thing)),
            vars(inspect.getmodule(thing)),
        )
        for short in _SHARED:
            if short in owner:
                place = owner[short].__module__
                text = re.sub(rf"\b{short}\b", f"{place}.{short}", text)
        head, _, tail = text.rpartition(" -> ")
        return (head, tail) if head else (tail, None)
    return None


def setup(app):
    """Register the hooks with Sphinx."""
    app.connect("source-read", show_sources)
    app.connect("autodoc-process-signature", readable_signature)
    app.connect("build-finished", refuse_dead_anchors)
    app.connect("doctree-resolved", link_names)
    app.connect("autodoc-skip-member", without_fields)
