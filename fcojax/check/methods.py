"""The command ``fcojax algorithms``: a table of methods, their parts, and what they send.

geometry, correction and server step: the parts that fcojax.algorithms.parts.method puts together
exact       the limit of several full local steps is the minimiser
who         any cohort, all clients, or all or a cohort held for two rounds
down; up    numbers that a client receives and sends in a round, for a model of d numbers
"""

import inspect
import re

from fcojax import algorithms, citation
from fcojax.algorithms.base import Factory
from fcojax.check.facts import facts
from fcojax.check.subject import subject_of

_HEADINGS = ("method", "geometry", "correction", "server step")
_HEADINGS += ("exact", "who", "down; up", "source")
# Files of rows, as the table lists them; the methods of other files come last.
_FAMILIES = ("averages", "dual_averages", "extragradient", "controls", "splittings", "skipping")
_FAMILIES += ("manifolds", "two_rounds", "optimisers")
_WHO = {False: "any", True: "all", "or held": "held"}


def factories() -> list[Factory]:
    """Return the factories that need a loss and one piece of geometry at most, by family."""
    named = [getattr(algorithms, name) for name in algorithms.__all__]
    return sorted((made for made in named if hasattr(made, "Hparams")), key=_place)


def _place(factory: Factory) -> tuple[int, int]:
    """Return the place of a factory's file in the table, and its line there."""
    function = inspect.unwrap(factory)
    family = function.__module__.rpartition(".")[2]
    if family not in _FAMILIES:
        return len(_FAMILIES), 0
    return _FAMILIES.index(family), function.__code__.co_firstlineno


def row(factory: Factory) -> tuple[str, ...]:
    """Return the cells of a method with its defaults."""
    subject = subject_of(factory)
    made, costs = subject.build(None).facts, facts(subject)
    parts = made.parts or ("own functions", "", "")
    sent = "; ".join(way.replace(" ", "").replace("1d", "d") for way in (costs.down, costs.up))
    exact = "yes" if made.exact else ""
    return subject.name, *parts, exact, _WHO[made.needs_everyone], sent, source(factory)


def source(factory: Factory) -> str:
    """Return authors and year of the first work that a factory's documentation cites."""
    _, *entries = citation(factory).split("\n\n")
    if entries:
        pattern, text = r"author = {(.*)},\n(?:.*\n)*?  year = {(\d+)}", entries[0]
    else:  # a work without a title
        pattern = r"(\w.*?), (?:arXiv [\d.]+, )?((?:19|20)\d\d)\b"
        text = (inspect.getdoc(factory) or "").partition("References:")[2]
    authors, year = re.findall(pattern, text)[0]
    names = [name.strip("{}") for name in re.split(" and |, ", authors)]
    if len(names) > 2 or "others" in names:
        names = [f"{names[0]} et al."]
    return f"{', '.join(names)} {year}"


if __name__ == "__main__":
    rows = [_HEADINGS, *map(row, factories())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        print("  ".join(map(str.ljust, cells, widths)).rstrip())
    print(str(__doc__).partition("\n")[2].rstrip())
