"""What every loader says of a file that is missing, broken or foreign, and of a missing package."""

import contextlib
import importlib
import os
import pathlib
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

# What readers raise on bytes that are not of their format, or that end too early. OSError covers
# gzip's BadGzipFile and h5py, ValueError covers json, numpy, scikit-learn and unicode.
_BROKEN = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


class Foreign(ValueError):
    """A file of the right name that does not hold what it should; the message is a clause."""


def find(path: str | os.PathLike, fetch: str) -> pathlib.Path:
    """The path, if there is something there; ``fetch`` says where to get it otherwise."""
    found = pathlib.Path(path)
    if not found.exists():
        raise ValueError(f"there is no {found}; {fetch}")
    return found


def find_either(folder: str | os.PathLike, name: str, fetch: str) -> pathlib.Path:
    """``name`` or ``name.gz`` in a folder."""
    plain = pathlib.Path(folder) / name
    packed = plain.with_name(name + ".gz")
    return packed if packed.exists() and not plain.exists() else find(plain, fetch)


@contextlib.contextmanager
def reading(path: str | os.PathLike, kind: str, *also: type[Exception]) -> Iterator[None]:
    """Turns whatever goes wrong while reading a file into one sentence that names it."""
    try:
        yield
    except Foreign as error:
        raise ValueError(f"{path} is not {kind}: {error}.") from error
    except (*_BROKEN, *also) as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"{path} is not {kind}, or was cut short ({said[0].rstrip('.')}); fetch it again."
        ) from error


def table(path: pathlib.Path, kind: str, **options: Any) -> np.ndarray:
    """A table of text, two axes, with the options of ``numpy.loadtxt``."""
    with reading(path, kind), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it is empty, which is refused here
        rows = np.loadtxt(path, ndmin=2, **options)
        if not rows.size:
            raise Foreign("it is empty")
        return rows


def optional(module: str, extra: str) -> ModuleType:
    """A module that only an extra of this package brings along."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        raise ModuleNotFoundError(
            f"{package} is needed to read these files; pip install 'fcojax[{extra}]'.",
            name=package,
        ) from error
