"""Tidy rows, one JSON object a line: what a run leaves behind and all that figures read."""

import json
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

Row = dict[str, Any]


def append(path: os.PathLike, rows: Iterable[Row]) -> None:
    """Adds rows to a file and has them on disk before it returns."""
    with open(path, "a", encoding="utf-8") as file:
        file.writelines(json.dumps(_plain(row), allow_nan=False) + "\n" for row in rows)
        file.flush()
        os.fsync(file.fileno())


def load(path: os.PathLike) -> list[Row]:
    """The rows of a file; a last line that was cut short by a crash is left out."""
    return list(_complete_rows(path))


def keep(path: os.PathLike, wanted: Callable[[Row], bool]) -> None:
    """Rewrites a file with only those rows that are ``wanted``; a crash leaves the old one."""
    path = pathlib.Path(path)
    if not path.exists():
        return
    kept = [row for row in _complete_rows(path) if wanted(row)]
    beside = path.with_suffix(".partial")
    beside.unlink(missing_ok=True)
    append(beside, kept)
    beside.replace(path)


def select(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows in which every named column has the given value.

    Example:
      >>> select([{"part": "bias", "x": 1}, {"part": "rate", "x": 2}], part="rate")
      [{'part': 'rate', 'x': 2}]
    """
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def column(rows: Iterable[Row], name: str) -> np.ndarray:
    """One column of the rows as floats; what JSON has as null is NaN."""
    return np.array([row[name] for row in rows], float)


def read(path: os.PathLike):
    """The rows as a pandas frame, for those who have pandas."""
    import pandas  # pyright: ignore[reportMissingImports]

    return pandas.DataFrame(load(path))


def write_json(path: os.PathLike, content: Any) -> None:
    """Writes one JSON file in a single step, so that a reader never sees half of it."""
    path = pathlib.Path(path)
    beside = path.with_suffix(".partial")
    beside.write_text(json.dumps(_plain(content), indent=2, allow_nan=False) + "\n", "utf-8")
    beside.replace(path)


def _complete_rows(path: os.PathLike) -> Iterator[Row]:
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def _plain(value: Any) -> Any:
    """JSON has no infinity and no NaN: both are null, and arrays are lists."""
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
