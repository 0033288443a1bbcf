"""Commands as the user types them: through ``fcojax`` or as modules."""

import contextlib
import os
import pathlib
import sys
from typing import NoReturn

from fcojax.__main__ import COMMANDS

# An installed wheel has the launcher in a separate folder, which only ``fcojax`` finds.
_PACKAGED = pathlib.Path(__file__).parents[2].name == "_launcher"


def command(name: str) -> list[str]:
    """Return the command line of this process; ``name`` is the word after ``fcojax``."""
    place = _place(name)
    if place is not None:
        return ["fcojax", *sys.orig_argv[place + 1 :]]
    typed = ["fcojax", name] if _PACKAGED else ["python", "-m", str(COMMANDS[name].module)]
    return [*typed, *sys.argv[1:]]


def speak(name: str, message: str) -> None:
    """Print a message for the user, after the name of the command as it was typed."""
    typed = f"fcojax {name}" if through_fcojax(name) else str(COMMANDS[name].module)
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{typed}: {message}\n")
        sys.stderr.flush()


def write_any_letter() -> None:
    r"""Write letters that a stream's encoding lacks as ``\xfc``; the default is to fail."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue]


def end(code: int, message: str = "") -> NoReturn:
    """End the process after a message, without waiting for threads; results are on disk."""
    if message:
        speak("run", message)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(code)


def through_fcojax(name: str) -> bool:
    """Return whether this process was started as ``fcojax name``."""
    return _PACKAGED or _place(name) is not None


def _place(name: str) -> int | None:
    """Return the position of ``fcojax`` followed by this name in the command line."""
    given = sys.orig_argv
    for place, word in enumerate(given[:-1]):
        if pathlib.Path(word).stem == "fcojax" and given[place + 1] == name:
            return place
    return None
