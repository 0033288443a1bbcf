"""Suggestions for misspelt names."""

import difflib
from collections.abc import Iterable


def suggest(name: str, known: Iterable[str]) -> str:
    """``did you mean X?`` if a known name is close, else all known names."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(names))}."
