"""One writer for a folder: a lease in a file that names its process and machine.

The lease of an ended process of this machine is taken over at once. That of another machine is
taken over if it was not refreshed for some time, by the clock of the waiting process.
"""

import contextlib
import pathlib
import socket
from collections.abc import Callable, Iterator

import filelock

from experiments.process.errors import UserError

# Seconds between two refreshes, and seconds without a refresh after which a lease expires.
_BEAT, _SILENT = 5.0, 20.0


@contextlib.contextmanager
def held(path: pathlib.Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock within the ``with`` block; raise ``UserError`` if another process holds it.

    Args:
      path: the lock's file, which is removed afterwards.
      say: called with a message if the lock is taken over or has to be waited for.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder, where a file has to be; remove it.")
    lease = filelock.SoftFileLease(path, lease_duration=_SILENT, heartbeat_interval=_BEAT)
    holder, end = lease.owner, "which has ended"
    patience = 1.0 if holder else 3.0  # a file that names no process is replaced after 2 s
    host = holder.hostname.partition("?")[0] if holder else ""
    whose = f"process {holder.pid} on {host}" if holder else "another process"
    if holder and host != socket.gethostname():
        say(f"{path.parent} was last held by {whose}; waiting to see whether it is alive.")
        patience, end = 1.5 * _SILENT, "which has been silent"
    try:
        lease.acquire(timeout=patience, poll_interval=_BEAT / 50)
    except filelock.Timeout:
        raise UserError(
            f"{whose} is writing to {path.parent}; wait for it, end it, or pass another --workdir."
        ) from None
    try:
        if holder:
            say(f"took over {path.parent} from {whose}, {end}.")
        yield
    finally:
        lease.release()
