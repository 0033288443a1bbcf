"""Signals: finish and save the current block, then end the command with the signal's code.

Batch systems send SIGTERM or SIGHUP and kill a few seconds later. A block that takes longer is
abandoned; the last checkpoint is on disk.
"""

import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from experiments.process.invocation import end

# Batch systems kill after five seconds or more, a part of which the end of the process takes.
_PATIENCE = 3.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal to end the command; no ``except Exception`` catches it."""

    def __init__(self, number: int, saved: bool = False):
        how = "goes on from here" if saved else "starts over, as nothing was saved"
        super().__init__(f"stopped by {_name(number)}; the same command {how}.")
        self.number = number

    @property
    def exit_code(self) -> int:
        """Return the code that shells report for a process that the signal ended."""
        return 128 + self.number


class Watch:
    """The signal that asked the command to end, if any, and whether a checkpoint is on disk."""

    def __init__(self):
        self.asked: int | None = None
        self.saved = False
        self._deferred = 0
        self._is_raised = False

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Do not raise ``Stopped`` within the ``with`` block, which has to check ``asked``.

        While a block of rounds runs its donated buffers are invalid, so nothing could be saved.
        """
        self._deferred += 1
        try:
            yield
        finally:
            self._deferred -= 1
        if not self._deferred:
            self.stop_if_asked()

    def stop_if_asked(self) -> None:
        """Raise ``Stopped`` if a signal has arrived; call it where nothing would be lost."""
        if self.asked is not None:
            self._is_raised = True
            raise Stopped(self.asked, self.saved)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: raise ``Stopped`` unless it is deferred; a second Ctrl-C always does.

        ``Stopped`` is raised once: signals during the end of the command have no effect.
        """
        if self._is_raised:
            return
        again, self.asked = self.asked is not None, number
        if not self._deferred or (again and number == signal.SIGINT):
            self._is_raised = True
            raise Stopped(number, self.saved)


@contextlib.contextmanager
def watched() -> Iterator[Watch]:
    """Turn signals into ``Stopped`` within the block, and end the process if it reacts slowly.

    A signal that is being ignored stays ignored, as under ``nohup``.
    """
    watch = Watch()
    hook, sys.unraisablehook = sys.unraisablehook, _report_all_but_stopped
    ours = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    # Python's handlers run only after the compiled program; this byte is written at once.
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    handlers = {number: signal.signal(number, watch.handle) for number in ours}
    threading.Thread(
        target=_end_the_slow, args=(watch, reader, writer, set(ours)), daemon=True
    ).start()
    try:
        yield watch
    finally:
        if watch.asked is None:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)
            sys.unraisablehook = hook
            writer.close()


def _end_the_slow(
    watch: Watch, reader: socket.socket, writer: socket.socket, ours: set[int]
) -> None:
    """Wait for the first signal and then end the process after ``_PATIENCE``."""
    # ``writer`` stays open: the handlers in C write to its number until the process ends.
    number = 0
    while number not in ours and writer.fileno() >= 0:
        byte = reader.recv(1)
        number = byte[0] if byte else 0
    if not number:
        reader.close()
        return
    threading.Event().wait(_PATIENCE)
    how = "goes on from the last checkpoint" if watch.saved else "starts over, as nothing was saved"
    end(
        128 + number,
        f"stopped by {_name(number)} before the block was done; the same command {how}.",
    )


def _report_all_but_stopped(unraisable: Any) -> None:
    """Be silent about a ``Stopped`` that Python ignores, as in garbage collection.

    The process then ends at the next ``stop_if_asked``, or after ``_PATIENCE``.
    """
    if not isinstance(unraisable.exc_value, Stopped):
        sys.__unraisablehook__(unraisable)


def _name(number: int) -> str:
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
