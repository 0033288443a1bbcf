"""Errors that end a command with one message and an exit code."""

import difflib
import errno
import os
import re
import traceback
from collections.abc import Iterable

# The exit code of mistakes of the user and conditions of the machine.
CANNOT = 2


class UserError(Exception):
    """A mistake that the user can correct; the message is one sentence."""


def suggest(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean X?`` if a known name is close, else the list of all known names."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(names))}."


# Conditions of the machine, and advice for each.
_REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EROFS: "pass a --workdir that can be written to",
    errno.EACCES: "pass a --workdir that can be written to",
    errno.EPERM: "pass a --workdir that can be written to",
    errno.EFBIG: "raise the limit of file sizes, as in ulimit -f unlimited",
    errno.EMFILE: "raise the limit of open files, as in ulimit -n 4096",
    errno.ENFILE: "close other programs",
    errno.EIO: "see to the disk",
    errno.ESTALE: "see to the network disk",
    errno.ENOENT: "it is missing or was removed",
    errno.ENAMETOOLONG: "pass a shorter one",
    errno.EISDIR: "remove it",
    errno.ENOTDIR: "pass another one",
    errno.ELOOP: "pass another one",
}
_MEMORY = re.compile(
    r"RESOURCE_EXHAUSTED|[Oo]ut of memory|Unable to allocate|array is too big|"
    r"(?:Maximum|maximum) allowed (?:dimension|size) exceeded"
)


def sentence(error: BaseException) -> str:
    """Return the reason for an error in one line, with advice if there is any."""
    if isinstance(error, UserError):
        return _one_line(str(error))
    number, where = _condition(error)
    if number in _REMEDIES:
        what = os.strerror(number) if where is None else f"{where}: {os.strerror(number)}"
        return f"{what}; {_REMEDIES[number]}; the same command then continues."
    if isinstance(error, MemoryError) or _MEMORY.search(str(error)):
        return (
            f"out of memory ({_first_line(error)}); pass a smaller problem, or smaller "
            "--config.point_chunk_size and --config.client_chunk_size."
        )
    if isinstance(error, ValueError):
        return _one_line(str(error)) or _located(error)
    return _located(error)


def _condition(error: BaseException) -> tuple[int | None, str | None]:
    """Return an error's errno, which may occur only in its text, and its file."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    for link in chain:
        if isinstance(link, OSError) and link.errno is not None:
            named = [getattr(other, "filename", None) for other in (link, *chain)]
            return link.errno, next((name for name in named if name is not None), None)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EROFS, errno.EIO):
        if any(os.strerror(number) in str(link) for link in chain):
            return number, None
    return None, None


def _located(error: BaseException) -> str:
    """Return the error's type and message, and the line it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}: {_first_line(error)}; pass --traceback to see how."


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".;") if lines else "no message"


def _one_line(text: str) -> str:
    return " ".join(text.split())
