"""Where the answers of sites are read: whatever a site sends, only an answer in order gets through.

A site is another institution's machine, with faults and perhaps bad intentions of its own. One that
sends something else than it was asked for is treated as one whose answer was lost on the way: the
rounds go on without it, and its name is logged.
"""

import collections
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from fcojax import safetensors
from fcojax.types import PyTree

Value = TypeVar("Value")

LOG = logging.getLogger("fcojax.flower")
# The most bytes of facts and names in an answer. Introductions need some kilobytes; the worst JSON
# of 4 MiB takes 0.1 GB and 0.4 s to read.
_TEXT = 2**22
_NAME = 1_000  # more of them for each array, whose name and place are among the facts
_MOST_LETTERS = 300  # of a text from a site, in a log or an error


class BadAnswer(ValueError):
    """Why an answer does not count, to follow "its answer does not count: "."""


def plain(text: Any, most: int = _MOST_LETTERS) -> str:
    r"""Return what a site said, harmless in a log or a terminal: printable, and not long.

    Args:
      text: a string, or something that is shown as one.
      most: the most letters.

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
    """Return the arrays and the facts of an answer, of which no more is known yet.

    Args:
      reply: the answer.
      like: arrays of the sizes that are expected, or their shapes; more bytes are not read.

    Example:
      >>> read(b"PK")
      Traceback (most recent call last):
      fcojax.flower.answers.BadAnswer: these 2 bytes are no safetensors file: the header is cut off.
    """
    if not isinstance(reply, bytes):
        raise BadAnswer(f"it is of type {plain(type(reply).__name__)}, not bytes.")
    leaves = jax.tree.leaves(like)
    most = _TEXT + sum(_NAME + leaf.size * leaf.dtype.itemsize for leaf in leaves)
    if len(reply) > most:
        raise BadAnswer(f"it has {len(reply)} bytes, and {most} are the most that it can need.")
    try:
        arrays, facts = safetensors.loads(reply)
    except ValueError as error:
        raise BadAnswer(plain(error)) from None
    if not isinstance(facts, dict) or not all(isinstance(one, str) for one in facts.values()):
        raise BadAnswer("its facts are not strings.")
    return arrays, facts


def filled(like: PyTree, arrays: dict[str, np.ndarray]) -> PyTree:
    """Return a pytree of the form of another one with the arrays of an answer in it.

    Args:
      like: a pytree of arrays, or of their shapes.
      arrays: by name.
    """
    try:
        return safetensors.filled(like, arrays)
    except ValueError as error:
        raise BadAnswer(plain(error)) from None


class Judge:
    """Reads the answers of the sites of a run, and remembers whose did not count."""

    def __init__(self):
        self._named: set[str] = set()
        self._missed: collections.Counter[tuple[str, str]] = collections.Counter()

    def judged(
        self, site: str, kind: str, replies: dict[str, Any], reader: Callable[[Any], Value]
    ) -> Value | None:
        """Return what an answer says, ``None`` if there is none that counts.

        Args:
          site: the site's name.
          kind: the kind of the message that was sent to it.
          replies: the answers of all sites, by name.
          reader: ``(answer) -> what it says``, which raises ``BadAnswer``.
        """
        self._missed[site, kind] += 1
        if site not in replies:
            return None
        try:
            found = reader(replies[site])
        except BadAnswer as error:
            self.name(site, f"its answer does not count: {error}")
            return None
        del self._missed[site, kind]
        return found

    def name(self, site: str, what: str) -> None:
        """Log what is wrong with a site, the first time that anything is.

        Args:
          site: the site's name.
          what: a sentence.
        """
        if site not in self._named:
            self._named.add(site)
            LOG.warning("site %s: %s", plain(site), plain(what))

    def silent(self, kind: str, most: int) -> list[str]:
        """Return the sites without an answer that counts to as many messages in a row.

        Args:
          kind: the kind of the messages.
          most: how many.
        """
        return sorted(
            site for (site, of), times in self._missed.items() if of == kind and times >= most
        )
