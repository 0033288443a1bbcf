"""Errors of all readers: missing, broken or unknown files, and missing packages."""

import contextlib
import importlib
import os
import pathlib
from collections.abc import Iterator
from types import ModuleType

_MOST_LETTERS = 160  # a library's message may quote the whole file


class Foreign(ValueError):
    """A file with the right name and the wrong content; the message is a clause."""


def find(path: str | os.PathLike, fetch: str) -> pathlib.Path:
    """Return the path if it exists; else raise, with ``fetch`` saying how to get the file."""
    found = pathlib.Path(path)
    if not os.path.exists(found):  # false where a path cannot be
        raise ValueError(f"there is no {found}; {fetch}")
    return found


def find_either(folder: str | os.PathLike, name: str, fetch: str) -> pathlib.Path:
    """Return ``name`` or ``name.gz`` in a folder, whichever exists."""
    plain = pathlib.Path(folder) / name
    packed = plain.with_name(name + ".gz")
    return packed if packed.exists() and not plain.exists() else find(plain, fetch)


@contextlib.contextmanager
def reading(path: str | os.PathLike, kind: str) -> Iterator[None]:
    """Convert any error of reading a file to a ``ValueError`` of one sentence that names it."""
    try:
        yield
    except Foreign as error:
        raise ValueError(f"{path} is not {kind}: {error}.") from error
    except ImportError:
        raise
    except Exception as error:  # libraries raise anything on bytes of another format
        reason = str(error).strip().splitlines() or [type(error).__name__]
        why = reason[0].rstrip(".")
        why = why if len(why) <= _MOST_LETTERS else why[:_MOST_LETTERS] + "..."
        raise ValueError(
            f"{path} is not {kind}, or was cut short ({why}); fetch it again."
        ) from error


def optional(module: str, extra: str) -> ModuleType:
    """Import a module that is installed only by an extra of this package."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        raise ModuleNotFoundError(
            f"{package} is needed to read these files; in a checkout pip install -e '.[{extra}]'.",
            name=package,
        ) from error
