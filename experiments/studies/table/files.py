"""Read a user's CSV file: named features, a target, and the client of each row.

With Python's ``csv``: pandas fills short lines with missing values, takes the first column of long
ones for an index, renames equal headers, and needs a hundred times as long for 100,000 columns.
"""

import collections
import csv
import difflib
import io
import itertools
import math
import os
import pathlib
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.study import Config
from fcojax.problems.fields import visible

# What other programs write for a missing value, in upper or lower case.
_MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "?", ".")
# Control characters other than white space, and what stands for bytes that are not UTF-8.
_FOREIGN = re.compile("[\0-\x08\x0e-\x1f\ufffd]")
_NUMBERLIKE = re.compile(r"[-+]?\.?\d")  # begins 1,5 and 12 kg, which are no words
_ID = re.compile(r"(.*[ _.-])?id|index|unnamed: 0|__index_level_0__|", re.IGNORECASE)
_AUTO = "auto"
_MOST_LEVELS = 30  # of a column of words
_FEWEST_ROWS = 10  # in which a column that differs in all rows is an id
_SHOWN = 8  # names in a sentence


class Table(NamedTuple):
    """The rows of a file that have a target.

    Attributes:
      x: the features, NaN for a missing value.
      y: the target.
      client: the name of each row's client; ``None`` if the file has no clients.
      names: the names of the features.
      remarks: what was left out, in sentences.
    """

    x: np.ndarray
    y: np.ndarray
    client: np.ndarray | None
    names: list[str]
    remarks: Sequence[str] = ()


class _Column(NamedTuple):
    """A column of the rows that have a target.

    Attributes:
      name: its name.
      cells: its texts.
      blank: which of them stand for a missing value.
      values: its numbers, NaN where a cell has none.
      words: the texts that are neither missing nor finite numbers, with their first rows.
    """

    name: str
    cells: Sequence[str]
    blank: Sequence[bool]
    values: np.ndarray
    words: dict[str, int]

    def has_numbers(self) -> bool:
        """Return whether any cell is a number."""
        return not np.isnan(self.values).all()

    def levels(self) -> list[str]:
        """Return its words as levels; none if it has one, or as many as ids have, or numbers."""
        differ = len(self.words) == len(self.cells) >= _FEWEST_ROWS
        some = 1 < len(self.words) <= _MOST_LEVELS and not (differ or self.has_numbers())
        return sorted(self.words) if some else []


def _is_id(name: str, values: np.ndarray) -> bool:
    """Return whether numbers are whole, and named as ids or a sequence without a gap."""
    named = bool(_ID.fullmatch(name))
    if (values % 1 > 0).any() or not named and len(values) < _FEWEST_ROWS:
        return False
    return named or np.ptp(values) + 1 == len(values) == len({*values})


def _number(cell: str) -> float | None:
    """Return the number in a cell, if it is finite; Python also reads 1_000 and inf."""
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in cell else None


def _column(name: str, cells: Sequence[str], is_missing: Callable[[str], bool]) -> _Column:
    """Return the numbers and the words of a column."""
    blank, words, values = [*map(is_missing, cells)], {}, []
    for row, cell in enumerate(cells):
        number = _number(cell)
        if number is None and not blank[row]:
            words.setdefault(cell, row)
        values.append(math.nan if number is None or blank[row] else number)
    return _Column(name, cells, blank, np.array(values), words)


def read(config: Config) -> Table:
    """Return the table in the file ``config.data``; raise ``ValueError`` if it cannot be used."""
    path, said, remarks = pathlib.Path(config.data), split(config.missing), []
    texts, numbers = {*_MISSING, *map(str.casefold, said)}, {*map(_number, said)} - {None}

    def is_missing(cell):
        return cell.casefold() in texts or _number(cell) in numbers

    columns, lines = _columns(path)
    target, client = visible(config.target), visible(config.client)
    names = _features(config, levels := _levels(config.categories), columns, path.name)
    present = [not is_missing(cell) for cell in columns[target]]
    if not any(present):
        raise ValueError(f"{target} is missing in all rows; pass another --config.target.")
    clients = _clients(client, columns[client], lines, is_missing) if client else ()
    kept = [*itertools.compress(clients, present)]
    if unlabelled := present.count(False):
        remarks.append(f"{unlabelled:,} rows without {target} are left out.")
        if lost := {*clients} - {*kept}:
            raise ValueError(
                f"no row of {min(lost)} has a value of {target}; remove the rows of that client."
            )
    lines = [*itertools.compress(lines, present)]
    blocks: dict[str, np.ndarray] = {}
    left, faults = [], []
    for name in (target, *names):
        column = _column(name, [*itertools.compress(columns[name], present)], is_missing)
        found = _block(column, levels, lines, name == target or bool(config.features))
        if isinstance(found, str):
            left.append(f"{name or 'a column without a name'} ({found})")
        elif found is None:
            faults.append(column)
        else:
            blocks[name] = found
        if name == target and name not in levels and len(words := sorted(column.words)) == 2:
            remarks.append(f"{name} is 1 for {words[1]} and 0 for {words[0]}.")
    if faults:
        raise ValueError(f"{path.name} {_refusal(faults, target, config, lines)}")
    y = blocks.pop(target)
    if y.shape[1] > 1 or not blocks:
        what = f"{target} has more than two levels" if blocks else "no column is left as a feature"
        raise ValueError(f"{path.name}: {what}; change --config.categories or --config.features.")
    if left:
        remarks.append(
            f"Left out: {_listed(left)}; --config.features or --config.categories keeps a column."
        )
    x = np.concatenate([*blocks.values()], axis=1)
    if filled := np.isnan(x).sum():
        remarks.append(f"{filled:,} missing values are the means of their features.")
    of = [name for name, block in blocks.items() for _ in range(block.shape[1])]
    return Table(x, y[:, 0], np.array(kept) if client else None, of, remarks)


def _block(
    column: _Column, levels: Mapping[str, list[str]], lines: Sequence[int], is_needed: bool
) -> np.ndarray | str | None:
    """Return the features of a column, why it is left out, or ``None`` if it has to be mended.

    Words are a column of 1 and 0 for each level but the first; a missing cell is a level too.
    """
    known = levels.get(column.name)
    if known is None:
        if column.has_numbers() and not column.words:
            is_id = not is_needed and _is_id(column.name, column.values)
            return "an id" if is_id else column.values[:, None]
        is_mixed = column.has_numbers() or any(map(_NUMBERLIKE.match, column.words))
        if _AUTO not in levels or is_mixed or not column.words:
            return None
        if not (known := column.levels()):
            return None if is_needed else f"{len(column.words)} different texts"
    for row, cell in enumerate(column.cells):
        if cell not in known and not column.blank[row]:
            raise ValueError(
                f"line {lines[row]}: {column.name} is {cell!r}, which is not a level; add it to "
                f"--config.categories={column.name}={'|'.join(known)}."
            )
    found = np.equal(np.array(column.cells)[:, None], np.array(known[1:])).astype(float)
    return np.column_stack([found, column.blank]) if any(column.blank) else found


def _columns(path: pathlib.Path) -> tuple[dict[str, Sequence[str]], list[int]]:
    """Return the cells of each column, and the line of each row."""
    if path.suffix.lower() != ".csv":
        raise ValueError(
            f"{path} is no CSV file; write it as one, as pandas does: "
            "pandas.read_excel(FILE).to_csv('table.csv', index=False)."
        )
    if not (path.is_file() and os.access(path, os.R_OK)):
        raise ValueError(f"there is no file {path} that can be read; pass the path of a CSV file.")
    text = path.read_bytes().decode("utf-8-sig", "replace")
    if found := _FOREIGN.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise ValueError(
            f"{path.name}, line {line}: has bytes that are no text in UTF-8; save the file as that."
        )
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        rows = [([*map(visible, cells)], reader.line_num) for cells in reader if cells]
    except csv.Error as error:  # without strict an open quote takes the rest of the file
        where = f"{path.name}, line {reader.line_num}"
        raise ValueError(f"{where}: {error}; is there an open quote?") from error
    if len(rows) < 2:
        raise ValueError(f"{path} has no rows; pass a file with a header and one row per example.")
    (header, _), *rows = rows
    if len(header) == 1:
        raise ValueError(f"{path} has one column, {header[0]!r}; separate cells by commas.")
    for cells, line in rows:
        if len(cells) != len(header):
            counts = f"{len(cells)} cells where the header has {len(header)}"
            raise ValueError(f"{path.name}, line {line}: has {counts}.")
    columns = zip(header, zip(*(cells for cells, _ in rows), strict=True), strict=True)
    pairs = [(name, cells) for name, cells in columns if name or any(cells)]
    [(name, count)] = collections.Counter(name for name, _ in pairs).most_common(1)
    if count > 1:
        raise ValueError(f"{path.name} has {count} columns {name!r}; rename one.")
    return dict(pairs), [line for _, line in rows]


def _features(
    config: Config, levels: Collection[str], columns: Collection[str], where: str
) -> list[str]:
    """Return the columns that are features; raise ``ValueError`` if the keys do not fit them."""
    chosen, drop, taken = split(config.features), split(",".join(config.drop)), {}
    target, client = visible(config.target), visible(config.client)
    named = {"target": [target], "client": [client] * bool(client), "features": chosen}
    named |= {"drop": drop, "categories": [name for name in levels if name != _AUTO]}
    for key, names in named.items():
        for name in names:
            if name not in columns:
                close = difflib.get_close_matches(name, columns, n=1)
                what = f"did you mean {close[0]}?" if close else f"it has {_listed(columns)}."
                raise ValueError(f"{where} has no column {name!r} for --config.{key}; {what}")
            if name in taken and key != "categories":
                raise ValueError(f"{taken[name]} and {key} both name {name}; name a column once.")
            if key in ("target", "client"):
                taken[name] = key
    names = [name for name in chosen or columns if name not in taken and name not in drop]
    if not names:
        raise ValueError(f"no column of {where} is left as a feature, only target and client.")
    return names


def _levels(categories: str) -> dict[str, list[str]]:
    """Return the levels of each column of words, the reference first; ``auto`` has none."""
    found = {}
    for part in split(categories):
        name, _, levels = part.partition("=")
        found[name.strip()] = each = [level.strip() for level in levels.split("|")]
        if part != _AUTO and (len({*each, ""}) <= len(each) or len(each) < 2):
            raise ValueError(
                f"categories has {part!r}; write auto, or NAME=REFERENCE|LEVEL with distinct "
                "levels, as in ward=surgery|icu."
            )
    return found


def _clients(
    name: str, cells: Sequence[str], lines: Sequence[int], is_missing: Callable[[str], bool]
) -> Sequence[str]:
    """Return the names of clients; raise ``ValueError`` if one is missing or ambiguous.

    Names that differ only in case or spaces, or as 1 and 1.0, probably mean the same client.
    """
    first: dict[str | float | None, str] = {}
    seen: dict[str, int] = {}
    for cell, line in zip(cells, lines, strict=True):
        seen.setdefault(cell, line)
    for cell, line in seen.items():
        if is_missing(cell):
            raise ValueError(f"line {line}: {name} is {cell!r}; name the client or remove the row.")
        number = _number(cell)
        whole = number is not None and abs(number) < 2**53  # others are rounded
        known = first.setdefault(number if whole else " ".join(cell.casefold().split()), cell)
        if known != cell:
            raise ValueError(
                f"line {line}: {name} is {cell!r} and {known!r} elsewhere; write it in one way."
            )
    return cells


def _refusal(faults: Sequence[_Column], target: str, config: Config, lines: Sequence[int]) -> str:
    """Return which columns are not numbers, and the arguments that mend it, ready to paste."""
    shown, levels, drop, advice = [], [], split(",".join(config.drop)), []
    for column in faults:
        name, words = column.name, sorted(column.words)
        word, row = next(iter(column.words.items()), ("", 0))
        shown.append(f"{name} ({f'{word!r} in line {lines[row]}' if words else 'no value'})")
        if name == target and len(words) != 2:
            advice.append(f"{target} is the target: write numbers, 0 and 1 for two classes")
        elif column.levels() and not {*",|="} & {*name, *"".join(words)}:
            levels.append(f"{name}={'|'.join(words)}")
        else:
            drop.append(name)
        if words and column.has_numbers():
            pasted = shlex.quote(f"--config.missing={word}")
            advice.append(f"if {word!r} stands for a missing value, {pasted}")
    arguments = [f"--config.drop={','.join(drop)}"] * bool(drop)
    if levels:
        arguments.append(f"--config.categories={','.join([config.categories, *levels]).strip(',')}")
    if arguments:
        others = ", each reference first" * bool(levels)
        others += ", or --config.categories=auto" * (not config.categories and bool(levels))
        advice.insert(0, f"pass {' '.join(map(shlex.quote, arguments))}{others}")
    what = "columns that are not numbers" if len(faults) > 1 else "column that is not numbers"
    return f"has {len(faults)} {what}: {_listed(shown)}; {'; '.join(advice)}."


def split(text: str) -> list[str]:
    """Return the distinct names in a text, separated by commas."""
    return [name for name in dict.fromkeys(map(visible, text.split(","))) if name]


def _listed(names: Collection[str]) -> str:
    """Return the first of many names."""
    more = [f"and {len(names) - _SHOWN:,} more"] if len(names) > _SHOWN else []
    return ", ".join([*itertools.islice(names, _SHOWN), *more])
