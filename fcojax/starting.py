"""Signals while the command imports the package: a line, and the exit code that shells know.

The package itself imports this module first, because ``python -m fcojax`` runs it before the
command. Imported by a program, it does nothing.
"""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

REPLACED = {}  # the handlers of Python, by signal; one that is ignored stays so


def _end(number: int, frame: FrameType | None) -> NoReturn:
    # At once: Python prints and ignores an exception that is raised in a callback of JAX.
    name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    try:
        os.write(2, f"fcojax: stopped by {name} before the command began.\n".encode())
    finally:
        os._exit(128 + number)


def _is_command() -> bool:
    """Return whether Python was started for the command, as ``-m fcojax`` or as the script."""
    first = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    if first == "-m":  # while Python looks for the module
        first = sys.orig_argv[-len(sys.argv)].removeprefix("-m")
    return os.path.splitext(first)[0] == "fcojax"


if _is_command():
    for _number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(_number) in (signal.SIG_DFL, signal.default_int_handler):
            REPLACED[_number] = signal.signal(_number, _end)
