"""BibTeX entries of the sources that a run used, read from the docstrings of the factories.

A docstring cites as ``Authors, "Title", Venue Year (arXiv number)``, with surnames only, so entries
have no first names.
"""

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

from fcojax import __version__

# Packages whose public factories are cited; samplers and the like are at the top.
_PACKAGES = ("algorithms", "transforms", "uploads", "robust", "attacks", "privacy", "engine")
_WORD = r"[A-Z][\w'-]*"
_NAME = rf"(?:(?:van|den|de|von) )*{_WORD}(?: (?:y )?{_WORD})*"
_REFERENCE = re.compile(
    rf"(?P<authors>{_NAME}(?:, {_NAME})* and {_NAME}|{_NAME}(?: et al\.)?), "
    r'"(?P<title>[^"]+)",(?P<venue>[^;"()]*?)\s*(?P<year>\d{4})(?: \(arXiv (?P<arxiv>[\d.]+)\))?'
)
# The other venues are conferences. An abbreviated name, with a full stop, is a journal's.
_JOURNALS = (".", "TMLR", "Biometrika", "Applied Set-Valued Analysis and Optimization")


def citation(*parts: Any) -> str:
    """Return BibTeX entries for this library and for the methods that a run used.

    Sources of a penalty, mirror map, manifold, transform, aggregator or sampler are found inside
    the algorithm and the plan that were made with it. Authors are given by surname only.

    Args:
      *parts: algorithms, penalties, plans, transforms, aggregators or samplers, or their factories.
        Sources of your own algorithms are found in the docstrings of their factories.

    Example:
      >>> import fcojax
      >>> from fcojax.transforms import euclidean, nuclear
      >>> algorithm = fcojax.algorithms.fed_dual_avg(None, euclidean(nuclear()))
      >>> plan = fcojax.Plan(fcojax.local_steps(5), uploads=fcojax.uploads.compressed(
      ...     fcojax.uploads.qsgd(levels=7)))
      >>> lines = fcojax.citation(algorithm, plan).splitlines()
      >>> print(*(line for line in lines if line.startswith("@")))
      @software{fcojax, @inproceedings{yuan2021federated, @misc{cai2010singular,
      @inproceedings{alistarh2017qsgd,
    """
    title = "{fcojax: federated composite optimisation in JAX}"
    own = {"author": "{The fcojax authors}", "title": title, "version": __version__, "year": "2026"}
    entries = {"fcojax": _entry("software", "fcojax", **own)}
    given = [inspect.getdoc(part) or "" for part in parts if inspect.isroutine(part)]
    for docstring in dict.fromkeys([*given, *_docstrings(parts, set())]):
        entries |= _references(docstring)
    return "\n\n".join(entries.values())


def _references(docstring: str) -> dict[str, str]:
    """Return the BibTeX entries, by key, of the works that a docstring cites with their titles.

    Args:
      docstring: any text.

    Example:
      >>> print(*_references('Li and Ma, "On two sets", ICML 2020; see also Li, 2021.').values())
      @inproceedings{li2020on,
        author = {Li and Ma},
        title = {{On two sets}},
        booktitle = {ICML},
        year = {2020},
      }
    """
    entries = {}
    for match in _REFERENCE.finditer(re.sub(r"\s+", " ", docstring)):
        listed = match["authors"].removesuffix(" et al.")
        names = re.split(r", | and ", listed) + ["others"] * (listed != match["authors"])
        venue = match["venue"].strip(" ,")
        is_journal = any(name in venue for name in _JOURNALS)
        kind = ("article" if is_journal else "inproceedings") if venue else "misc"
        first = re.sub(r"\W", "", names[0].split()[-1]).lower()
        word = re.search(r"[A-Za-z]\w+", match["title"].removeprefix("A ").removeprefix("The "))
        key = f"{first}{match['year']}{word[0].lower() if word else ''}"
        arxiv = {"eprint": match["arxiv"], "archiveprefix": "arXiv"} if match["arxiv"] else {}
        entries[key] = _entry(
            kind,
            key,
            author=" and ".join(f"{{{name}}}" if " " in name else name for name in names),
            title=f"{{{match['title']}}}",
            **({"journal" if is_journal else "booktitle": venue} if venue else {}),
            year=match["year"],
            **arxiv,
        )
    return entries


def _entry(kind: str, key: str, **fields: str) -> str:
    lines = [f"  {name} = {{{text}}}," for name, text in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


def _docstrings(part: Any, seen: set[int]) -> Iterator[str]:
    """Yield the docstrings of the factories that made a part and its components."""
    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, dict):
        yield from _docstrings(tuple(part.values()), seen)
    elif isinstance(part, list | tuple):
        yield from _of_factory(type(part))
        # The facts of an algorithm name its factory, which goes before what it was made with.
        yield from _docstrings(getattr(part, "facts", ()), seen)
        for entry in part:
            yield from _docstrings(entry, seen)
    elif isinstance(part, functools.partial):
        yield from _docstrings((part.func, part.args, part.keywords), seen)
    elif callable(part) or hasattr(part, "__dataclass_fields__"):
        function = inspect.unwrap(part) if callable(part) else part
        yield from _of_factory(function if hasattr(function, "__qualname__") else type(function))
        # A transform's functions hold its compressor, an algorithm's its loss and its penalty.
        for cell in getattr(function, "__closure__", None) or ():
            try:
                yield from _docstrings(cell.cell_contents, seen)
            except ValueError:  # not assigned yet, as in a recursive function
                continue
        if not inspect.isclass(part):
            yield from _docstrings(getattr(part, "__dict__", {}), seen)


def _of_factory(thing: Any) -> Iterator[str]:
    """Yield the docstrings of the factory whose function or result this is."""
    module, root = getattr(thing, "__module__", None) or "", thing.__qualname__.split(".")[0]
    package = module.split(".")[1] if module.startswith("fcojax.") else ""
    if package in _PACKAGES:
        public = importlib.import_module("fcojax" if package == "engine" else f"fcojax.{package}")
        # A sampler is an instance of a class of the factory's name: Cyclic of cyclic().
        names = (root, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", root).lower())
        found = [getattr(public, name) for name in names if hasattr(public, name)]
        for factory in filter(inspect.isroutine, found[:1]):
            yield inspect.getdoc(factory) or ""
            yield importlib.import_module(module).__doc__ or ""
    elif not package:
        # A user's own algorithm. Docstrings of other packages may cite methods that did not run.
        factory = getattr(sys.modules.get(module), root, None)
        if hasattr(factory, "Hparams"):
            yield inspect.getdoc(factory) or ""
