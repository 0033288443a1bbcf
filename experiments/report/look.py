"""Changes that a user can make to a figure: names, size, font."""

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_AXIS, _TICKS, _MINOR = 8.0, 7.5, 6.5  # font sizes in points


class Look(NamedTuple):
    """Changes of a figure; none by default.

    Attributes:
      labels: names of methods, by their label.
      size: width and height in inches.
      font: family of the font, such as ``serif``.
      font_size: size of the labels of axes in points; all other texts are in proportion.
    """

    labels: Mapping[str, str] = {}
    size: tuple[float, float] | None = None
    font: str | None = None
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


def name_of(algorithm: str, name: str) -> str:
    """Return the user's name for an algorithm, or ``name`` if there is none."""
    return _CURRENT.get().labels.get(algorithm, name)


def applied(figure: Any) -> float:
    """Change a figure; return the factor by which its font size grows."""
    look = _CURRENT.get()
    if look.size is not None:
        figure.set_size_inches(look.size)
    factor = 1.0 if look.font_size is None else look.font_size / _AXIS
    if look.font is None and factor == 1.0:
        return 1.0
    texts = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axis in figure.axes:
        texts += [axis.title, axis.xaxis.label, axis.yaxis.label, *axis.texts]
        family = {} if look.font is None else {"labelfontfamily": look.font}
        axis.tick_params(which="major", labelsize=_TICKS * factor, **family)
        axis.tick_params(which="minor", labelsize=_MINOR * factor, **family)
    for text in texts:
        text.set_fontsize(text.get_fontsize() * factor)
        if look.font is not None:
            text.set_fontfamily(look.font)
    return factor
