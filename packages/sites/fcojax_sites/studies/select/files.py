"""Read a user's file: named features, a target and, if the file has them, the sites of rows.

A ``Description`` says what the columns of a table are. It is the only place that does: the launcher
reads pooled files by it, and every site of a federation reads its own file by it.
"""

import collections
import csv
import importlib
import os
import pathlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fcojax import datasets
from fcojax.datasets.reading import Foreign, reading
from fcojax.problems import SparseRows, sparse_rows
from fcojax.problems.fields import visible

if TYPE_CHECKING:
    from fcojax.experiments import Config
else:
    Config = Any  # the launcher needs matplotlib, and a site does not

_MOST_ENTRIES = 1 << 25  # dense; four copies in double precision are a gigabyte
# What other programs write for a missing value, in upper or lower case; other texts that are not
# numbers are refused.
_MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "?", ".")
# What pandas reads files of other programs with.
_READERS = {
    ".json": "read_json",
    ".jsonl": "read_json",
    ".xls": "read_excel",
    ".ods": "read_excel",
    ".tsv": "read_table",
    ".feather": "read_feather",
    ".dta": "read_stata",
    ".sav": "read_spss",
    ".sas7bdat": "read_sas",
    ".xpt": "read_sas",
    ".html": "read_html",
    ".xml": "read_xml",
}
_CONTROL = re.compile(r"[\0-\x08\x0e-\x1f]")  # other than those of white space
_MOST_LEVELS = 30  # of a column of words that an error lists
_INDEX = ("", "Unnamed: 0", "__index_level_0__")  # names of an index that pandas wrote
_MOST_FEATURES = 100_000_000  # their names take ten gigabytes
_NPZ = "a numpy npz file"
_PACKED = (".gz", ".bz2", ".xz", ".zip", ".zst")
_PARTS = ("data", "indices", "indptr", "shape")  # the arrays of a matrix in compressed rows


class Description(NamedTuple):
    """What the columns of a table are, as in the keys of a config.

    Attributes:
      loss: with ``cox`` the outcome is ``time`` and ``event``, otherwise ``target``.
      target: the column to predict.
      time: the column of survival times.
      event: the column with 1 for an event and 0 for a censored time.
      client: the column of sites; empty if there is none.
      features: the features, separated by commas; empty for all other columns.
      drop: columns that are ignored.
      missing: further texts for a missing value.
      categories: columns of words with their levels, the reference first, as in
        ``ward=surgery|icu,sex=f|m``. Every other level becomes a feature that is 1 or 0.
      units: the change of a feature for which a ratio is reported, as in ``age=10``; 1 for others.
    """

    loss: str
    target: str
    time: str = ""
    event: str = ""
    client: str = ""
    features: str = ""
    drop: Sequence[str] = ()
    missing: str = ""
    categories: str = ""
    units: str = ""

    @classmethod
    def of(cls, config: Config) -> "Description":
        """Return the description in a config, which may lack some of the keys."""
        default: dict[str, Any] = cls._field_defaults
        given: Any = {name: getattr(config, name, default.get(name)) for name in cls._fields}
        return cls(**given)

    @property
    def outcome(self) -> tuple[str, ...]:
        """The keys of the columns that the loss predicts."""
        return ("time", "event") if self.loss == "cox" else ("target",)

    def levels(self) -> dict[str, list[str]]:
        """Return the levels of each column of words, the reference first."""
        found = {}
        for part in filter(None, map(_plain, self.categories.split(","))):
            name, _, levels = part.partition("=")
            found[name.strip()] = [_plain(level) for level in levels.split("|")]
            if len({*found[name.strip()], ""}) < len(levels.split("|")) + 1 or "|" not in levels:
                raise ValueError(
                    f"categories has {part!r}; write NAME=REFERENCE|LEVEL with distinct levels, as "
                    "in ward=surgery|icu."
                )
        return found

    def columns(self, header: Sequence[str], where: str) -> list[str]:
        """Return the columns that are features; raise ``ValueError`` if the roles do not fit.

        Args:
          header: the names of all columns.
          where: the table in words.
        """
        named = [(key, _plain(getattr(self, key))) for key in self.outcome]
        named += [("client", _plain(self.client))] if self.client else []
        taken, chosen, drop = [name for _, name in named], names_in(self.features), _drop(self)
        if len({*taken}) < len(taken):
            keys = f"{', '.join(self.outcome)} and client"
            raise ValueError(f"{keys} name {', '.join(taken)}; name a column once.")
        if both := {*chosen} & {*taken}:
            raise ValueError(f"features names {both.pop()!r}, which is the target or the site.")
        if "" in taken:
            keys = ", ".join(self.outcome)
            raise ValueError(f"{keys} is empty; name a column of {where}: {', '.join(header)}.")
        named += [("features", name) for name in chosen]
        named += [("categories", name) for name in self.levels()]
        counts = collections.Counter(header)
        for key, name in named:
            if name not in counts:
                raise ValueError(
                    f"{where} has no column {name!r}; for --config.{key} pass one of "
                    f"{', '.join(header)}."
                )
        names = chosen or [name for name in header if name not in taken]
        _check_once((*taken, *names), counts, where)
        if unknown := sorted(drop - {*names}):
            raise ValueError(f"drop names {unknown[0]}, and {where} has no such feature.")
        names = [name for name in names if name not in drop]
        if not names:
            raise ValueError(f"no column of {where} is left as a feature, only target and site.")
        for key in ("target", "time", "event"):  # of another loss, which would predict itself
            if key not in self.outcome and (name := _plain(getattr(self, key))) in names:
                raise ValueError(
                    f"{name} is the outcome {key} of another loss and would be a feature; pass "
                    f"--config.drop={name} to ignore it, or --config.{key}= if it is none."
                )
        if not chosen and (index := [name for name in names if name in _INDEX]):
            raise ValueError(
                f"{where} has a feature {index[0]!r}, as pandas names the index of its rows; write "
                "the file with index=False, or give the column a name."
            )
        return names

    def per(self, names: Sequence[str]) -> list[float]:
        """Return the change of each feature for which its effect is reported."""
        found = dict.fromkeys(names, 1.0)
        for part in names_in(self.units):
            name, _, number = part.rpartition("=")
            try:
                found[name] = {name: float(number)}[name] if name in found else float("nan")
            except ValueError:
                found[name] = float("nan")
            if not 0 < found[name] < float("inf"):
                raise ValueError(
                    f"units has {part!r}; write FEATURE=NUMBER, as in age=10, for one of "
                    f"{', '.join(names)}."
                )
        return [found[name] for name in names]

    def feature_names(self, columns: Sequence[str]) -> list[str]:
        """Return the names of the features, one for each level but the reference."""
        levels = self.levels()
        return [
            name
            for column in columns
            for name in (
                [f"{column}: {level}" for level in levels[column][1:]]
                if column in levels
                else [column]
            )
        ]

    def counted(self, names: Sequence[str]) -> np.ndarray:
        """Return which features count the missing values: of a column of words only the first."""
        levels = self.levels().items()
        later = {f"{column}: {level}" for column, words in levels for level in words[2:]}
        return np.array([name not in later for name in names])


def _check_once(names: Iterable[str], counts: Mapping[str, int], where: str) -> None:
    """Raise ``ValueError`` if one of the columns occurs several times."""
    for name in names:
        if counts[name] > 1:
            raise ValueError(f"{where} has {counts[name]} columns {name!r}; rename one.")


class Table(NamedTuple):
    """The content of a file.

    Attributes:
      x: one row per example, NaN for a missing value; ``SparseRows`` for large sparse files.
      y: the target.
      site: the name of each row's client; ``None`` if the file has no sites.
      names: the names of the features.
      event: for survival times, 1 for an event and 0 for a censored time.
    """

    x: np.ndarray | SparseRows
    y: np.ndarray
    site: np.ndarray | None
    names: list[str]
    event: np.ndarray | None = None


def read(config: Config) -> Table:
    """Return the table in ``config.data_dir``: the path of a file, or of the folder with it.

    Files are npz, CSV, Parquet, Excel or LIBSVM text. In an npz file ``features``, ``target`` and
    ``client`` name arrays; ``names`` names the array of feature names and, after a comma, the array
    of client names. Sparse features F are four arrays: ``F_data``, ``F_indices``, ``F_indptr`` and
    ``F_shape``. In a CSV, Parquet or Excel file these keys name columns, and an empty ``features``
    means all other columns; a folder may hold one such file per site, which names the site if
    ``client`` is empty. Any other file is read as LIBSVM text, and ``client`` names a file beside
    it with one id per line. ``client`` is empty if the file has no sites.
    """
    files = _files(pathlib.Path(config.data_dir))
    if len(files) > 1:
        return _joined({file: read_file(file, config) for file in files})
    return read_file(files[0], config)


def read_file(path: pathlib.Path, config: Config) -> Table:
    """Return the table in one file, such as that of a site; see ``read``."""
    if path.suffix in _WITH_COLUMNS:
        return _WITH_COLUMNS[path.suffix](path, config)
    if path.suffix in _READERS:
        raise ValueError(
            f"{path} is read by pandas.{_READERS[path.suffix]} and not here; write the frame as "
            "CSV, frame.to_csv(FILE, index=False)."
        )
    if path.suffix in _PACKED and pathlib.Path(path.stem).suffix in (*_WITH_COLUMNS, *_READERS):
        raise ValueError(f"{path} is packed; unpack it, and pass {path.stem}.")
    if config.loss == "cox":
        raise ValueError(f"loss is cox but {path.name} has no columns; pass a CSV or Parquet file.")
    for key in ("missing", "categories"):
        if text := getattr(config, key, ""):
            raise ValueError(
                f"{key} is {text!r} but {path.name} has no texts; write NaN in its place."
            )
    table = _of_npz(path, config) if path.suffix == ".npz" else _of_libsvm(path, config)
    drop = _drop(Description.of(config))
    if unknown := sorted(drop - {*table.names}):
        raise ValueError(f"drop names {unknown[0]}, and {path.name} has no such feature.")
    kept = np.array([name not in drop for name in table.names])
    if isinstance(table.x, SparseRows):  # a column of zeros is never selected
        x = table.x
        return table._replace(x=SparseRows(x.index, x.value * kept[x.index], x.num_features))
    names = [name for name, keep in zip(table.names, kept, strict=True) if keep]
    return table._replace(x=table.x[:, kept], names=names)


def tables_in(path: pathlib.Path) -> list[pathlib.Path]:
    """Return the tables of a folder, one for each site; raise ``ValueError`` if there is none."""
    files = [file for file in _files(path) if file.suffix in _WITH_COLUMNS]
    if not path.is_dir() or not files:
        raise ValueError(f"data_dir is {str(path)!r}; pass a folder with a table for each site.")
    return files


def header_of(path: pathlib.Path) -> list[str]:
    """Return the names of the columns of a CSV file."""
    if path.suffix != ".csv":
        raise ValueError(f"{path.name} is no CSV file; name its columns as --config.features.")
    with open(path, newline="", encoding="utf-8-sig") as file:
        return [_plain(name) for name in next(csv.reader(file), [])]


def _joined(tables: dict[pathlib.Path, Table]) -> Table:
    """Return the rows of one file per site, whose columns may be in any order."""
    first = next(iter(tables.values()))
    for file, table in tables.items():
        if lacks := sorted({*first.names} ^ {*table.names}):
            where = file.name if lacks[0] not in table.names else next(iter(tables)).name
            raise ValueError(f"{where} has no column {lacks[0]!r}, which another file has.")
    x: list[Any] = []
    sites, places = [], []
    for file, table in tables.items():
        place = {name: index for index, name in enumerate(table.names)}
        x.append(table.x[:, [place[name] for name in first.names]])
        sites += [file.stem] * len(table.y) if table.site is None else table.site.tolist()
        places += [file.name] * len(table.y)
    events = [t.event for t in tables.values() if t.event is not None]
    return Table(
        np.concatenate(x),
        np.concatenate([table.y for table in tables.values()]),
        _Column("the site", sites, places).words(),
        first.names,
        np.concatenate(events) if events else None,
    )


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    """Return the file, or all files of a folder if they are tables of one format."""
    if path.is_file():
        return [path]
    suffixes = (*_WITH_COLUMNS, ".npz", ".svm", ".libsvm", "")
    found = sorted(file for file in path.glob("*") if file.suffix in suffixes and file.is_file())
    kinds = {file.suffix for file in found}
    if len(found) != 1 and not (len(kinds) == 1 and kinds <= _WITH_COLUMNS.keys()):
        what = f"has {len(found)} files" if path.is_dir() else "is neither a file nor a folder"
        raise ValueError(
            f"data_dir is {str(path)!r}, which {what}; pass the path of one npz, CSV, Parquet, "
            "Excel or LIBSVM file, or of a folder with a table for each site."
        )
    return found


def _of_npz(path: pathlib.Path, config: Config) -> Table:
    with reading(path, _NPZ):
        stored = np.load(path, allow_pickle=False)
        if isinstance(stored, np.ndarray):
            raise Foreign("it is one array, an npy file; write it with numpy.savez")
        with stored:
            known = stored.files
    feature = config.features
    if not feature:
        raise ValueError(f"features is empty; name an array of {path}: {', '.join(known)}.")
    is_sparse = f"{feature}_indptr" in known
    parts = {part: f"{feature}_{part}" for part in _PARTS} if is_sparse else {"x": feature}
    labels = dict(zip(("names", "sites"), config.names.split(","), strict=False))
    labels = {field: name.strip() for field, name in labels.items() if name.strip()}
    fields = {"y": config.target} | parts | labels
    pooled = datasets.npz(path, fields, client=config.client or None)
    found, site = pooled.examples, pooled.client
    x = _compressed(path, feature, found) if is_sparse else found["x"]
    _check_array(path, feature, x, 2)
    _check_array(path, config.target, found["y"], 1, x.shape[0])
    names = found.get("names", np.array(numbered(x.shape[1])))
    if names.shape != (x.shape[1],):
        raise ValueError(
            f"{labels['names']} in {path} has shape {names.shape} but {feature} has {x.shape[1]} "
            "columns; pass one name per column."
        )
    if site is not None:
        kinds = "iuf" if "sites" in found else "iufUS"
        _check_array(path, config.client, site, 1, x.shape[0], kinds)
    if "sites" in found and site is not None:
        rows = np.arange(len(found["sites"]))
        if found["sites"].ndim != 1 or not np.isin(site, rows).all():
            raise ValueError(
                f"{labels['sites']} in {path} has shape {found['sites'].shape}, but "
                f"{config.client} is {site.max()} in a row; pass a name for each, from 0."
            )
        site = found["sites"][site.astype(int)]
    if site is not None and site.dtype.kind == "U":
        places = [f"{path.name}, row {row + 1}" for row in range(site.size)]
        site = _Column(config.client, site.tolist(), places).words()
    names = [_plain(name) for name in names]
    _check_once(names, collections.Counter(names), os.fspath(path))
    return Table(x, found["y"], site, names)


def _check_array(
    path: pathlib.Path, name: str, array: Any, ndim: int, rows: int | None = None, kinds="biuf"
) -> None:
    """Raise ``ValueError`` unless an array is numeric with these numbers of dimensions and rows."""
    if not isinstance(array, SparseRows) and array.dtype.kind not in kinds:
        raise ValueError(f"{name} in {path} is an array of {array.dtype}; write numbers.")
    if len(array.shape) != ndim or 0 in array.shape:
        needed = "[rows, features]" if ndim == 2 else "[rows], one number per example"
        raise ValueError(f"{name} in {path} has shape {array.shape}; pass {needed}.")
    if rows not in (None, array.shape[0]):
        raise ValueError(
            f"{name} in {path} has {array.shape[0]} rows but the features have {rows}; pass arrays "
            "with one row per example."
        )


def _compressed(path: pathlib.Path, name: str, parts: dict) -> np.ndarray | SparseRows:
    """Return features stored as a sparse matrix in compressed rows."""
    import scipy.sparse  # for this format alone

    with reading(path, f"a file with a matrix in compressed rows, {name}"):
        content = parts["data"].astype(np.float32), parts["indices"], parts["indptr"]
        rows = scipy.sparse.csr_array(content, shape=tuple(parts["shape"].tolist()))
        rows.check_format()
    return _dense_if_small(sparse_rows(rows))


def _dense_if_small(x: SparseRows) -> np.ndarray | SparseRows:
    return x.to_dense() if x.shape[0] * x.shape[1] <= _MOST_ENTRIES else x


class _Column(NamedTuple):
    """A column of a file: its cells, their places in words, and the texts for missing values."""

    name: str
    cells: Sequence[Any]
    places: Sequence[str]
    missing: frozenset[str] = frozenset(_MISSING)

    def numbers(self, advice: str | None) -> np.ndarray:
        """Return the cells as numbers, NaN if missing; ``advice`` ends the message of an error."""
        advice = self._advice() if advice is None else advice
        found = np.full(len(self.cells), np.nan)
        for row, cell in enumerate(self.cells):
            if str(cell).casefold() in self.missing:
                continue
            try:
                if "_" in str(cell):  # Python reads 1_000 as a number
                    raise ValueError
                number = float(cell)
            except (TypeError, ValueError):
                raise self._error(row, f"{str(cell)!r}, which is not a number", advice) from None
            if np.isinf(number):
                raise self._error(row, f"{str(cell)!r}, which is not finite", advice)
            if repr(number) not in self.missing:
                found[row] = number
        return found

    def indicators(self, levels: Sequence[str]) -> np.ndarray:
        """Return a column of 1 and 0 for each level but the first; NaN for a missing cell."""
        found = np.full((len(self.cells), len(levels) - 1), np.nan)
        for row, name in self._texts():
            if name not in levels:
                advice = f"add it to --config.categories={self.name}={'|'.join(levels)}"
                raise self._error(row, f"{name!r}, which is not a level", advice)
            found[row] = [name == level for level in levels[1:]]
        return found

    def _texts(self) -> Iterator[tuple[int, str]]:
        """Yield the place and the text of each cell that is not missing."""
        for row, cell in enumerate(self.cells):
            if (name := _plain(cell)).casefold() not in self.missing:
                yield row, name

    def _advice(self) -> str:
        """Return what to do about a word in a feature, with the levels if there are few."""
        levels = sorted({name for _, name in self._texts()})
        drop = f"pass --config.drop={self.name} to leave that column out"
        if not 1 < len(levels) <= _MOST_LEVELS or any(set("|,=") & {*name} for name in levels):
            return f"{drop}, or write numbers, such as 0 and 1"
        return (
            f"{drop}, or '--config.categories={self.name}={'|'.join(levels)}' with the reference "
            "first"
        )

    def words(self) -> np.ndarray:
        """Return the cells as names of sites; raise ``ValueError`` if one is missing or ambiguous.

        Names that look the same are one site. Names that differ only in case, or as 1 and 1.0,
        are refused, because they probably mean the same site.
        """
        first: dict[str, str] = {}
        found = []
        for row, cell in enumerate(self.cells):
            name = _plain(cell)
            if name.casefold() in self.missing:
                given = repr(name) if name else "empty"
                raise self._error(row, given, "name the site or remove the row")
            same = first.setdefault(_as_number(name).casefold(), name)
            if same != name:
                raise self._error(row, f"{name!r} and {same!r} elsewhere", "write it in one way")
            found.append(name)
        return np.array(found)

    def _error(self, row: int, value: str, advice: str) -> ValueError:
        return ValueError(f"{self.places[row]}: {self.name} is {value}; {advice}.")


def _plain(text: Any) -> str:
    """Return a text as it is seen."""
    return visible(str(text))


def names_in(text: str) -> list[str]:
    """Return the distinct names in a text, separated by commas."""
    return [name for name in dict.fromkeys(map(_plain, text.split(","))) if name]


def _as_number(name: str) -> str:
    """Return numbers in one form, such as ``1`` for ``1.0``, and other text unchanged."""
    try:
        return repr(float(name))
    except ValueError:
        return name


def _of_csv(path: pathlib.Path, config: Config) -> Table:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            # Strict: otherwise an open quote takes the rest of the file into one cell.
            reader = csv.reader(file, strict=True)
            read_lines = [(line, f"{path.name}, line {reader.line_num}") for line in reader if line]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8; save it as UTF-8.") from error
    except csv.Error as error:
        where = f"{path.name}, line {reader.line_num}"
        raise ValueError(f"{where}: {error}; is there an open quote?") from error
    for line, place in read_lines:
        if any(_CONTROL.search(cell) for cell in line):
            raise ValueError(f"{place}: has a control character; save the file as text.")
    lines, places = [line for line, _ in read_lines], [place for _, place in read_lines]
    return _of_lines(path, config, lines, places)


def _of_parquet(path: pathlib.Path, config: Config) -> Table:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise ValueError(f"{path} is Parquet, which pyarrow reads; pip install pyarrow.") from error
    with reading(path, "a Parquet file"):
        columns = parquet.read_table(path)
    places = [f"{path.name}, row {row + 1}" for row in range(columns.num_rows)]

    names = columns.column_names

    def cells_of(place):
        cells = columns.column(place).to_pylist()
        return ["" if cell is None or cell != cell else cell for cell in cells]

    return _of_columns(path, names, config, cells_of, places)


def _of_excel(path: pathlib.Path, config: Config) -> Table:
    try:
        openpyxl = importlib.import_module("openpyxl")
    except ModuleNotFoundError as error:
        raise ValueError(f"{path} is Excel, which openpyxl reads; pip install openpyxl.") from error
    with reading(path, "an Excel file"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about styles
        sheets = openpyxl.load_workbook(path, data_only=True).worksheets  # results of formulas
        for sheet in sheets:
            if sheet.max_row * sheet.max_column > _MOST_ENTRIES:
                raise Foreign(f"its cells are {sheet.dimensions}; delete those beside the table")
        sheets = [sheet for sheet in sheets if any(any(row) for row in sheet.values)]
        if len(sheets) != 1:
            raise Foreign(f"it has {len(sheets)} sheets with cells, where one is read")
        (sheet,) = sheets
        lines = [["" if cell is None else cell for cell in row] for row in sheet.values]
    used = [place for place, cells in enumerate(zip(*lines, strict=True)) if any(_has_text(cells))]
    filled = [row for row, line in enumerate(lines) if any(_has_text(line))]
    return _of_lines(
        path,
        config,
        [[lines[row][place] for place in used] for row in filled],
        [f"{path.name}, row {row + 1}" for row in filled],
    )


def _has_text(cells: Iterable[Any]) -> Iterator[bool]:
    return (cell != "" for cell in cells)


def _of_lines(
    path: pathlib.Path, config: Config, lines: Sequence[Sequence[Any]], places: Sequence[str]
) -> Table:
    """Return the table from lines of cells; the first line is the header."""
    if len(lines) < 2:
        raise ValueError(f"{path} has no rows; pass a file with a header and one row per example.")
    header = lines[0]
    if len(header) == 1:
        raise ValueError(f"{path} has one column, {header[0]!r}; separate cells by commas.")
    for line, place in zip(lines, places, strict=True):
        if len(line) != len(header):
            raise ValueError(f"{place}: has {len(line)} cells where the header has {len(header)}.")

    def cells_of(place):
        cells = [line[place] for line in lines[1:]]
        return [cell.strip() if isinstance(cell, str) else cell for cell in cells]

    return _of_columns(path, header, config, cells_of, places[1:])


def _of_columns(
    path: pathlib.Path,
    header: Sequence[Any],
    config: Config,
    cells_of: Callable[[int], Sequence[Any]],
    places: Sequence[str],
) -> Table:
    """Return the table of a file with named columns; dropped columns are not read.

    Args:
      path: the file.
      header: the names of its columns.
      config: names the columns of features, target and site.
      cells_of: ``(place) -> cells`` of the column at a place in the header; missing cells are
        empty.
      places: the place of each row in the file, in words.
    """
    header, given = [_plain(name) for name in header], Description.of(config)
    said = [name.casefold() for name in names_in(given.missing)]
    missing = {text for name in said for text in (name, _as_number(name))}
    missing, levels = frozenset({*_MISSING, *missing}), given.levels()
    names = given.columns(header, os.fspath(path))

    place_of = {name: place for place, name in enumerate(header)}

    def column(name):
        return _Column(name, cells_of(place_of[name]), places, missing)

    y, *event = (
        column(_plain(getattr(given, key))).numbers(
            "it is the target: write numbers, 0 and 1 for two classes"
        )
        for key in given.outcome
    )
    x = [
        column(name).indicators(levels[name])
        if name in levels
        else column(name).numbers(None)[:, None]
        for name in names
    ]
    site = column(_plain(given.client)).words() if given.client else None
    return Table(np.concatenate(x, axis=1), y, site, given.feature_names(names), *event)


def _drop(given: Description) -> set[str]:
    return {*names_in(",".join(given.drop))}


def _of_libsvm(path: pathlib.Path, config: Config) -> Table:
    pooled = datasets.libsvm(path, sparse=True, regression=True)
    x, y = pooled.examples["x"], pooled.examples["y"]
    if not 0 < x.shape[1] <= _MOST_FEATURES:
        raise ValueError(
            f"{path} has features up to number {x.shape[1]}; number them from 1 to at most "
            f"{_MOST_FEATURES}."
        )
    table = Table(_dense_if_small(x), y, None, numbered(x.shape[1]))
    if not config.client:
        return table
    beside = path.parent / config.client
    if not beside.is_file():
        raise ValueError(
            f"there is no {beside} with an id for each row of {path}; write one, or pass "
            "--config.client= to divide the rows among clients."
        )
    with reading(beside, "text in UTF-8"):
        lines = enumerate(beside.read_text("utf-8").splitlines(), 1)
        ids = {f"{beside.name}, line {at}": line for at, line in lines if line.strip()}
    if len(ids) != x.shape[0]:
        raise ValueError(
            f"{config.client} has {len(ids)} ids but {path} has {x.shape[0]} rows; write one for "
            "each, line by line."
        )
    return table._replace(site=_Column("the site", [*ids.values()], [*ids]).words())


_WITH_COLUMNS = {".csv": _of_csv, ".parquet": _of_parquet, ".xlsx": _of_excel}


def numbered(count: int) -> list[str]:
    """Return names for features without names."""
    return [f"x{index + 1}" for index in range(count)]
