"""Tidy rows, one JSON object per line, which record a run and from which figures are drawn."""

import contextlib
import json
import math
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np

from fcojax import rows as public_rows

Row = dict[str, Any]
Summary = dict[str, Any]
_encode = json.JSONEncoder(allow_nan=False).encode


def line(row: Row) -> str:
    """Return a row of JSON values as a line of a file."""
    return _encode(row) + "\n"


def load(path: os.PathLike) -> list[Row]:
    """Return the rows of a file without an incomplete last line; no rows if there is no file."""
    return public_rows.load(path) if os.path.exists(path) else []


@contextlib.contextmanager
def replacing(path: os.PathLike, beside: str = "") -> Iterator[IO[bytes]]:
    """Yield a new file that replaces ``path`` once it is on disk; a crash leaves the old file.

    Args:
      path: the file to replace.
      beside: the name of the new file until then; by default that of ``path`` with the ending
        ``.partial``. A link of this name, which somebody else may have planted, is not followed.
    """
    path = pathlib.Path(path)
    partial = path.with_name(beside) if beside else path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with open(partial, "xb") as file:  # with O_EXCL the system follows no link
        yield file
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def write(path: os.PathLike, rows: Iterable[Row]) -> None:
    """Replace a file by these rows; a crash leaves the old file."""
    with replacing(path) as file:
        file.writelines(line(plain(row)).encode() for row in rows)


def select(rows: Iterable[Row], **values: Any) -> list[Row]:
    """Return the rows in which every named column has the given value.

    Example:
      >>> select([{"part": "bias", "x": 1}, {"part": "rate", "x": 2}], part="rate")
      [{'part': 'rate', 'x': 2}]
    """
    return [row for row in rows if all(row.get(name) == value for name, value in values.items())]


def by_seed(rows: Sequence[Row]) -> dict[int, list[Row]]:
    """Return the rows of each seed, in the order of the seeds."""
    return {seed: select(rows, seed=seed) for seed in sorted({row["seed"] for row in rows})}


def column(rows: Iterable[Row], name: str) -> np.ndarray:
    """Return one column of the rows as floats; null is NaN."""
    return np.array([row[name] for row in rows], float)


def write_json(path: os.PathLike, content: Any) -> None:
    """Write a JSON file atomically."""
    with replacing(path) as file:
        file.write(json.dumps(plain(content), indent=2, allow_nan=False).encode() + b"\n")


def plain(value: Any) -> Any:
    """Return a value that JSON can represent: arrays as lists, infinity and NaN as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    return [plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def points_of(grid: Any) -> list[dict[str, float]]:
    """Return the points of a grid as rows store them: to seven digits, the precision of float32.

    Example:
      >>> from fcojax.algorithms import fed_avg
      >>> points_of(fed_avg.Hparams(client_lr=[0.1, 1 / 3], server_lr=[1.0, 1.0]))
      [{'client_lr': 0.1, 'server_lr': 1.0}, {'client_lr': 0.3333333, 'server_lr': 1.0}]
    """
    columns = [np.asarray(column).tolist() for column in grid]
    return [
        {field: float(f"{value:.7g}") for field, value in zip(grid._fields, point, strict=True)}
        for point in zip(*columns, strict=True)
    ]


def hparams_of(row: Row, fields: Sequence[str]) -> tuple:
    """Return the point of the grid that a row belongs to."""
    return tuple(row.get(field) for field in fields)
