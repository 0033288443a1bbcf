"""Commands as the user types them, and how they end: with a message, or by a signal.

One handler of signals sets a flag while a sweep can save, and else ends the command. Batch systems
send SIGTERM or SIGHUP and kill some seconds later. A sweep finishes and saves the current block; a
second signal, or a kill, ends it at once, with the last checkpoint on disk.
"""

import contextlib
import difflib
import os
import pathlib
import re
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import NoReturn

from fcojax.__main__ import COMMANDS

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
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


def command(name: str) -> list[str]:
    """Return the command line of this process; ``name`` is the word after ``fcojax``."""
    given = sys.orig_argv
    for place, word in enumerate(given[:-1]):
        if pathlib.Path(word).stem == "fcojax" and given[place + 1] == name:
            return ["fcojax", *given[place + 1 :]]
    return ["python", "-m", str(COMMANDS[name]), *sys.argv[1:]]


def speak(name: str, message: str) -> None:
    """Print a message for the user, after the name of the command."""
    with contextlib.suppress(OSError, ValueError):
        print(f"fcojax {name}: {message}", file=sys.stderr, flush=True)


def end(code: int, message: str = "") -> NoReturn:
    """End the process after a message, without waiting for threads; results are on disk."""
    if message:
        speak("run", message)
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stdout.flush()
    os._exit(code)


class Watch:
    """The signal that asked the command to end, if any."""

    def __init__(self):
        self.asked: int | None = None
        self._saves = False

    def listen(self) -> None:
        """Handle all signals but those that are ignored, as under ``nohup``."""
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Let the block check ``asked`` and save; while rounds run nothing can be saved."""
        self._saves = True
        try:
            yield
        finally:
            self._saves = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._saves or self.asked is not None:
            self.end(number)
        self.asked = number

    def end(self, number: int) -> NoReturn:
        """End the process with the code that shells know."""
        # With a call of the system: the signal may have come while a stream was written.
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        with contextlib.suppress(OSError):
            os.write(2, f"fcojax run: stopped by {name}; the same command goes on.\n".encode())
        os._exit(128 + number)
