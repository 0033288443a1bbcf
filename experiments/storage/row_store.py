"""All rows of a run, in its file and in memory, without incomplete or damaged lines."""

import errno
import hashlib
import json
import os
import pathlib
from collections.abc import Iterable

from experiments.report import rows as tidy
from experiments.report.rows import Row

_sorted = json.JSONEncoder(sort_keys=True).encode


class RowStore:
    """The rows of a run by algorithm; rows of a study are under the empty name."""

    def __init__(self, path: pathlib.Path):
        """Read the file; invalid lines are dropped when it is next rewritten.

        Set ``writes`` to false if another process writes the same rows.
        """
        self.path = path
        self.writes = True
        self.rows: dict[str, list[Row]] = {}
        self._hashes: dict[int, int] = {}  # of rows that are here, by id: each is hashed once
        self._sound = True
        if path.is_file():
            for line in path.read_bytes().splitlines(keepends=True):
                row = _parsed(line)
                if row is None:
                    self._sound = False
                else:
                    self.rows.setdefault(_label(row), []).append(row)

    def of(self, label: str) -> list[Row]:
        """Return the rows of one algorithm."""
        return self.rows.setdefault(label, [])

    def append(self, rows: Iterable[Row]) -> None:
        """Append rows of JSON values; ``sync`` waits until they are on disk."""
        rows = list(rows)
        if self.writes:
            self._write(rows)
        for row in rows:
            self.of(_label(row)).append(row)

    def sync(self) -> None:
        """Wait until the rows are on disk, which must happen before a checkpoint is written."""
        if self.writes and self.path.exists():
            tidy.sync(self.path)

    def replace(self, label: str, rows: list[Row]) -> None:
        """Keep only these rows of an algorithm."""
        if len(rows) != len(self.of(label)):
            self.rows[label] = rows
            self._hashes = {}
            self._rewrite()

    def fingerprint(self, rows: Iterable[Row]) -> str:
        """Return the fingerprint of some of these rows, which no longer change."""
        known = self._hashes
        found = [known.get(id(row)) or known.setdefault(id(row), _hash(row)) for row in rows]
        return _text(found)

    def _write(self, rows: list[Row]) -> None:
        if any(self.rows.values()) and not self.path.exists():
            # The folder was removed; a new file would lack the rows so far.
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(self.path))
        if not self._sound:
            self._rewrite()
        # If the disk is full, some of these lines may be in the file but none in memory.
        self._sound = False
        tidy.append(self.path, rows)
        self._sound = True

    def _rewrite(self) -> None:
        if self.writes:
            tidy.write(self.path, [row for rows in self.rows.values() for row in rows])
            self._sound = True

    def fingerprints(self) -> dict[str, str]:
        """Return the fingerprint of each algorithm's rows."""
        return fingerprints(row for rows in self.rows.values() for row in rows)


def fingerprint(rows: Iterable[Row]) -> str:
    """Return the number of rows and a hash of them that does not depend on their order.

    It is a sum of hashes, which detects lost, duplicate and changed rows.

    Example:
      >>> rows = [{"round": 0}, {"round": 10}]
      >>> fingerprint(rows) == fingerprint(rows[::-1]) != fingerprint(rows + rows[:1])
      True
    """
    return _text([_hash(row) for row in rows])


def fingerprints(rows: Iterable[Row]) -> dict[str, str]:
    """Return the fingerprint of each algorithm's rows."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(_label(row), []).append(row)
    return {label: fingerprint(own) for label, own in sorted(found.items())}


def _hash(row: Row) -> int:
    return int.from_bytes(hashlib.sha256(_sorted(row).encode()).digest()[:16])


def _text(hashes: list[int]) -> str:
    return f"{len(hashes)} rows {sum(hashes) % 2**128:032x}"


def _label(row: Row) -> str:
    return str(row.get("algorithm", ""))


def _parsed(line: bytes) -> Row | None:
    """Return the row of a line; ``None`` if it is incomplete or damaged."""
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return row if isinstance(row, dict) else None
