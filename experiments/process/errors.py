"""Errors that end a command with one message and an exit code."""

import difflib
import os
import re
import traceback
from collections.abc import Iterable

# The exit code of mistakes of the user and conditions of the machine.
CANNOT = 2
_MEMORY = re.compile(r"RESOURCE_EXHAUSTED|[Oo]ut of memory|Unable to allocate|array is too big")


class UserError(Exception):
    """A mistake that the user can correct; the message is one sentence."""


def suggest(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean X?`` if a known name is close, else the list of all known names."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(names))}."


def sentence(error: BaseException) -> str:
    """Return the reason for an error in one line, with advice if there is any.

    Example:
      >>> sentence(UserError("no such thing; pass another."))
      'no such thing; pass another.'
    """
    if isinstance(error, OSError) and error.errno is not None:
        where = "" if error.filename is None else f"{error.filename}: "
        return f"{where}{os.strerror(error.errno)}; the same command then continues."
    said = " ".join(str(error).split())
    if isinstance(error, MemoryError) or _MEMORY.search(said):
        return (
            f"out of memory ({said[:200]}); pass a smaller problem, or smaller "
            "--config.point_chunk_size and --config.client_chunk_size."
        )
    if said and isinstance(error, UserError | ValueError):
        return said
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}: {said or 'no message'}; pass --traceback to see how."
