"""Read and check the answers of sites.

A site is a machine of another institution, and may be faulty or malicious. An answer that is not
valid counts as lost: the run continues without it, and the name of the site is logged once.
"""

import collections
import dataclasses
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from fcojax.types import PyTree
from fcojax_sites import safetensors

Value = TypeVar("Value")

LOG = logging.getLogger("fcojax_sites.flower")
# The largest number of bytes of facts and names in an answer. Introductions need a few kilobytes;
# the worst JSON of 4 MiB takes 0.1 GB and 0.4 s to read.
_TEXT = 2**22
_NAME = 1_000  # more of them for each array, whose name and place are among the facts
_MOST_LETTERS = 300  # of a site's text that are shown in a log or an error


class BadAnswer(ValueError):
    """The reason why an answer is not valid."""


class Refusal(BadAnswer):
    """What a site says that cannot go on."""


def plain(text: Any, most: int = _MOST_LETTERS) -> str:
    r"""Return a text from a site with control characters escaped, cut to ``most`` letters.

    Args:
      text: a string, or something that is shown as one.
      most: the largest number of letters.

    Example:
      >>> print(plain("Bern\x1b[2J\n"))
      Bern\x1b[2J\n
      >>> plain("Zürich"), len(plain("?" * 10_000))
      ('Zürich', 300)
    """
    # Cut first: the text may have a gigabyte.
    short = str(text)[: most + 1]
    shown = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in short
    )
    return shown if len(shown) <= most else shown[: most - 3] + "..."


def read(reply: Any, like: PyTree = ()) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays of an answer and its metadata; raise ``BadAnswer`` if it is not valid.

    Args:
      reply: the answer.
      like: the expected arrays, or their shapes; a larger answer is refused.

    Example:
      >>> read(b"PK")
      Traceback (most recent call last):
      fcojax_sites.flower.answers.BadAnswer: these 2 bytes are not safetensors: the header is cut
      off.
    """
    if not isinstance(reply, bytes):
        raise BadAnswer(f"it is of type {plain(type(reply).__name__)}, not bytes.")
    leaves = jax.tree.leaves(like)
    most = _TEXT + sum(_NAME + leaf.size * leaf.dtype.itemsize for leaf in leaves)
    if len(reply) > most:
        raise BadAnswer(f"it has {len(reply)} bytes, but it needs at most {most}.")
    try:
        arrays, facts = safetensors.loads(reply)
    except ValueError as error:
        raise BadAnswer(plain(error)) from None
    if not isinstance(facts, dict) or not all(isinstance(one, str) for one in facts.values()):
        raise BadAnswer("its facts are not strings.")
    return arrays, facts


def filled(like: PyTree, arrays: dict[str, np.ndarray]) -> PyTree:
    """Return a pytree with the structure of ``like`` and the arrays of an answer.

    Args:
      like: a pytree of arrays, or of their shapes.
      arrays: by name.
    """
    try:
        return safetensors.filled(like, arrays)
    except ValueError as error:
        raise BadAnswer(plain(error)) from None


@dataclasses.dataclass(frozen=True)
class Checked:
    """A function for named sums, and what its result has to be.

    Attributes:
      function: ``(rows, given) -> arrays``, at a site.
      check: ``(sums, given, num_examples) -> reason`` at the server, for finite sums of a site that
        introduced itself with so many rows; an empty reason if they are in order.

    Example:
      >>> count = Checked(
      ...     lambda rows, given: {"n": np.sum(rows["a"] > given["cut"])},
      ...     lambda found, given, size: "" if 0 <= found["n"] <= size else "n is wrong.")
      >>> int(count({"a": np.arange(3)}, {"cut": 1})["n"]), count.check({"n": -1}, {}, 3)
      (1, 'n is wrong.')
    """

    function: Callable[[PyTree, PyTree], PyTree]
    check: Callable[[PyTree, PyTree, int], str]

    def __call__(self, rows: PyTree, given: PyTree) -> PyTree:
        """Return the sums of a site."""
        return self.function(rows, given)


class Judge:
    """Reads the answers in a run, and counts the missing or invalid ones of each site."""

    def __init__(self):
        self._named: dict[str, str] = {}
        self._refused: set[str] = set()
        self._missed: collections.Counter[tuple[str, str]] = collections.Counter()

    def judged(
        self, site: str, kind: str, replies: dict[str, Any], reader: Callable[[Any], Value]
    ) -> Value | None:
        """Return the content of a site's answer, ``None`` if it is missing or not valid.

        Args:
          site: the site's name.
          kind: the kind of the message that was sent to it.
          replies: the answers of all sites, by name.
          reader: ``(answer) -> content``, which raises ``BadAnswer``.
        """
        self._missed[site, kind] += 1
        if site not in replies:
            return None
        try:
            found = reader(replies[site])
        except BadAnswer as error:
            self.name(site, f"its answer does not count: {error}")
            if isinstance(error, Refusal):
                self._refused.add(site)
            return None
        del self._missed[site, kind]
        self._refused.discard(site)
        return found

    def name(self, site: str, what: str) -> None:
        """Log the first fault of a site, and ignore later ones.

        Args:
          site: the site's name.
          what: a sentence.
        """
        if site not in self._named:
            self._named[site] = plain(what)
            LOG.warning("site %s: %s", plain(site), plain(what))

    def fault(self, sites: list[str]) -> str:
        """Return the first fault that was logged of one of these sites, to end a sentence with.

        Args:
          sites: their names.
        """
        found = [f" Site {plain(one)}: {self._named[one]}" for one in sites if one in self._named]
        return "".join(found[:1])

    def require_some(self, sites: list[str]) -> None:
        """Raise ``ValueError`` if the last answer of each of these sites was a refusal.

        Args:
          sites: their names.
        """
        if self._refused.issuperset(sites):
            raise ValueError(f"no site can go on.{self.fault(sites)}")

    def silent(self, kind: str, most: int) -> list[str]:
        """Return the sites without a valid answer to the last ``most`` messages.

        Args:
          kind: the kind of the messages.
          most: the number of messages.
        """
        return sorted(
            site for (site, of), times in self._missed.items() if of == kind and times >= most
        )
