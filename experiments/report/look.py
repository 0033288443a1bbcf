"""The look of all figures: the style sheet, and what a user changes of it."""

import contextlib
import contextvars
import pathlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import matplotlib.pyplot as plt

HOUSE = pathlib.Path(__file__).with_name("house.mplstyle")


class Look(NamedTuple):
    """Changes of a figure; none by default.

    Attributes:
      labels: names of methods, by their label.
      size: width and height in inches.
      font: family of the font, such as ``serif``.
      title: the heading; empty for none.
      font_size: size of the labels of axes in points; all other texts are in proportion.
    """

    labels: Mapping[str, str] = {}
    size: tuple[float, float] | None = None
    font: str | None = None
    title: str | None = None
    font_size: float | None = None


_NONE = Look()
_CURRENT = contextvars.ContextVar("look", default=_NONE)


@contextlib.contextmanager
def looking(look: Look) -> Iterator[None]:
    """Apply these changes to all figures drawn within the block."""
    before = _CURRENT.set(look)
    try:
        yield
    finally:
        _CURRENT.reset(before)


@contextlib.contextmanager
def house() -> Iterator[None]:
    """Draw the figures within the block by the style sheet, with the user's changes."""
    look = _CURRENT.get()
    changes = {"font.size": look.font_size, "font.family": look.font}
    with plt.style.context([HOUSE, {name: value for name, value in changes.items() if value}]):
        yield


def name_of(algorithm: str, name: str) -> str:
    """Return the user's name for an algorithm, or ``name`` if there is none."""
    return _CURRENT.get().labels.get(algorithm, name)


def title_of(title: str) -> str:
    """Return the user's heading, which may be empty, or ``title``."""
    own = _CURRENT.get().title
    return title if own is None else own


def size_of(width: float, height: float) -> tuple[float, float]:
    """Return the size that the user asks for, or the given one, in inches."""
    return _CURRENT.get().size or (width, height)
