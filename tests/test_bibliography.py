"""Citations: each source of a factory becomes one BibTeX entry, found inside of what it made."""

import inspect
import pathlib
import re

import pytest

import fcojax
from fcojax import algorithms, attacks, privacy, robust, transforms, uploads
from fcojax.bibliography import _references
from fcojax.transforms import euclidean, l1, on_subtree, p_norm, sparse_group

PACKAGES = (algorithms, transforms, uploads, robust, attacks, privacy, fcojax)
FACTORIES = {
    f"{package.__name__}.{name}": getattr(package, name)
    for package in PACKAGES
    for name in getattr(package, "__all__", dir(package))
    if inspect.isroutine(getattr(package, name))
}
# Of this source we know the number and the abstract only.
UNTITLED = {"fcojax.algorithms.fed_normal_map"}
ENTRY = re.compile(r"@(\w+)\{(\w+),\n((?:  \w+ = \{.*\},\n)+)\}")


def keys(*parts):
    return [entry[2] for entry in ENTRY.finditer(fcojax.citation(*parts))]


def cites(factory):
    """Whether the factory's own documentation, or that of its file, names a year of a source."""
    own = inspect.getdoc(factory) or ""
    listed = own.partition("References:")[2]
    module = inspect.getmodule(inspect.unwrap(factory))
    if module.__name__.startswith("fcojax.algorithms."):
        listed += module.__doc__
    return re.search(r"\b(19|20)\d\d\b", listed)


@pytest.mark.parametrize("name", sorted(name for name in FACTORIES if cites(FACTORIES[name])))
def test_a_factory_with_a_source_has_entries_that_parse(name):
    text = fcojax.citation(FACTORIES[name])
    entries = list(ENTRY.finditer(text))
    assert "\n\n".join(entry[0] for entry in entries) == text
    assert len(entries) > 1 or name in UNTITLED
    for entry in entries:
        fields = dict(re.findall(r"  (\w+) = \{(.*)\},", entry[3]))
        assert {"author", "title", "year"} <= fields.keys()
        assert all(field.count("{") == field.count("}") for field in fields.values())


def test_a_source_has_one_entry_wherever_it_is_cited():
    found = {}
    for factory in FACTORIES.values():
        for entry in ENTRY.finditer(fcojax.citation(factory)):
            assert found.setdefault(entry[2], entry[0]) == entry[0]
    titles = [re.search("title = (.*),", entry)[1].lower() for entry in found.values()]
    assert len(titles) == len(set(titles))


def test_parts_are_found_inside_of_what_was_made_with_them():
    penalty = on_subtree(sparse_group(0.5, axis=0), lambda path, leaf: True)
    algorithm = algorithms.fed_dual_avg(None, euclidean(penalty))
    compressed = uploads.compressed(uploads.compose(uploads.top_k(2), uploads.qsgd(7)))
    chain = uploads.chain(compressed, fcojax.dropout(0.1))
    aggregator = robust.bucketing(2, robust.krum(0.2))
    plan = fcojax.Plan(fcojax.local_steps(1), fcojax.cyclic(num_groups=2), chain, aggregator)
    found = keys(algorithm, plan)
    assert found[:2] == ["fcojax", "yuan2021federated"]
    assert {"simon2013sparse", "alistarh2018convergence", "alistarh2017qsgd"} <= set(found)
    assert {"blanchard2017machine", "karimireddy2022byzantine"} <= set(found)
    assert "cho2023on" in found and len(found) == len(set(found))


def test_error_feedback_and_private_uploads_are_found():
    plan = fcojax.Plan(fcojax.local_steps(1), uploads=uploads.ef21(uploads.top_k(1)))
    assert "richtarik2021ef21" in keys(plan)
    assert keys(privacy.gaussian(clip=1.0, noise=1.0))[1] == "mcmahan2018learning"


def test_a_mirror_cites_its_own_source_and_plain_parts_only_the_library():
    assert keys(p_norm(1.5))[1] == "gentile2003robustness"
    assert keys(lambda w, rows: w, fcojax.everyone(), 3) == ["fcojax"]
    assert keys(l1(), l1()) == keys(l1()) == ["fcojax", "parikh2014proximal"]


@algorithms.takes(algorithms.fed_avg.Hparams)
def mine(loss):
    """Local steps. Doe and Roe, "A method", ICML 2031 (arXiv 3101.00001), Algorithm 1."""

    def init(hparams, params):
        return params, ()

    return algorithms.fed_avg(loss)._replace(init=init)


def my_penalty():
    """Doe, "A penalty", 2031."""
    return l1()


def test_a_method_of_ones_own_is_cited_from_its_docstring():
    (entry,) = _references(mine.__doc__).values()
    assert entry.startswith("@inproceedings{doe2031method,") and "eprint = {3101.00001}" in entry
    assert keys(mine) == ["fcojax", "doe2031method"] == keys(mine(None))[:2]
    assert keys(my_penalty) == ["fcojax", "doe2031penalty"] and len(keys(my_penalty())) == 2


def test_the_library_cites_itself_as_its_citation_file_says():
    text = (pathlib.Path(__file__).parent.parent / "CITATION.cff").read_text("utf-8")
    entry = fcojax.citation()
    assert f"year = {{{re.search('date-released: (....)', text)[1]}}}" in entry
    assert re.search('title: "(.*)"', text)[1] in entry
