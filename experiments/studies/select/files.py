"""Read a user's file: named features, a target and, if the file has them, the sites of rows."""

import csv
import importlib
import pathlib
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from experiments.study import Config
from fcojax import datasets
from fcojax.datasets.reading import Foreign, reading
from fcojax.problems import SparseRows, sparse_rows

_MOST_ENTRIES = 1 << 25  # of a dense matrix: four copies in double precision are a gigabyte
# What pandas, R, SAS and SQL write for a missing value; other texts are refused as no number.
_MISSING = ("", "NA", "N/A", "NULL", "null", "?", ".")
_INDEX = ("", "Unnamed: 0", "__index_level_0__")  # names of an index that pandas wrote
_MOST_FEATURES = 100_000_000  # their names take ten gigabytes
_NPZ = "a numpy npz file"
_PARTS = ("data", "indices", "indptr", "shape")  # of a matrix in compressed rows


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
    """Return the table in ``config.data_dir``: an npz, CSV, Parquet or LIBSVM file, or its folder.

    In an npz file ``features``, ``target`` and ``client`` name arrays; ``names`` names the array of
    feature names and, after a comma, the array of client names. Sparse features F are four arrays:
    ``F_data``, ``F_indices``, ``F_indptr`` and ``F_shape``. In a CSV or Parquet file they name
    columns, and an empty ``features`` means all others. Any other file is read as LIBSVM text, and
    ``client`` names a file beside it with one id per line. ``client`` is empty without sites.
    """
    path = _single_file(pathlib.Path(config.data_dir))
    if path.suffix == ".csv":
        return _of_csv(path, config)
    if path.suffix == ".parquet":
        return _of_parquet(path, config)
    if config.loss == "cox":
        raise ValueError(f"loss is cox but {path.name} has no columns; pass a CSV or Parquet file.")
    table = _of_npz(path, config) if path.suffix == ".npz" else _of_libsvm(path, config)
    drop = _dropped(path, table.names, config)
    kept = np.array([name not in drop for name in table.names])
    if isinstance(table.x, SparseRows):  # a column of zeros is never selected
        x = table.x
        return table._replace(x=SparseRows(x.index, x.value * kept[x.index], x.num_features))
    names = [name for name, keep in zip(table.names, kept, strict=True) if keep]
    return table._replace(x=table.x[:, kept], names=names)


def _single_file(path: pathlib.Path) -> pathlib.Path:
    if path.is_file():
        return path
    found = sorted(
        file
        for file in path.glob("*")
        if file.suffix in (".npz", ".csv", ".parquet", ".svm", ".libsvm") or not file.suffix
    )
    if len(found) != 1:
        raise ValueError(
            f"data_dir is {str(path)!r}, which has {len(found)} files; pass the path of one "
            "npz, CSV, Parquet or LIBSVM file."
        )
    return found[0]


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
            "columns; pass one name a column."
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
    return Table(x, found["y"], site, [str(name) for name in names])


def _check_array(
    path: pathlib.Path, name: str, array: Any, ndim: int, rows: int | None = None, kinds="biuf"
) -> None:
    """Raise ``ValueError`` unless an array is numeric with these numbers of dimensions and rows."""
    if not isinstance(array, SparseRows) and array.dtype.kind not in kinds:
        raise ValueError(f"{name} in {path} is an array of {array.dtype}; write numbers.")
    if len(array.shape) != ndim or 0 in array.shape:
        needed = "[rows, features]" if ndim == 2 else "[rows], one number an example"
        raise ValueError(f"{name} in {path} has shape {array.shape}; pass {needed}.")
    if rows not in (None, array.shape[0]):
        raise ValueError(
            f"{name} in {path} has {array.shape[0]} rows but the features have {rows}; pass arrays "
            "with one row an example."
        )


def _compressed(path: pathlib.Path, name: str, parts: dict) -> np.ndarray | SparseRows:
    """Return features stored as a sparse matrix in compressed rows."""
    with reading(path, f"a file with a matrix in compressed rows, {name}"):
        content = parts["data"].astype(np.float32), parts["indices"], parts["indptr"]
        rows = scipy.sparse.csr_array(content, shape=tuple(parts["shape"].tolist()))
        rows.check_format()
    return _dense_if_small(sparse_rows(rows))


def _dense_if_small(x: SparseRows) -> np.ndarray | SparseRows:
    return x.to_dense() if x.shape[0] * x.shape[1] <= _MOST_ENTRIES else x


class _Column(NamedTuple):
    """A column of a file: its cells, empty if missing, and the place of each in words."""

    name: str
    cells: Sequence[Any]
    places: Sequence[str]

    def numbers(self, advice: str) -> np.ndarray:
        """Return the cells as numbers, NaN if missing; ``advice`` ends the message of an error."""
        found = np.full(len(self.cells), np.nan)
        for row, cell in enumerate(self.cells):
            if cell in _MISSING:
                continue
            try:
                found[row] = float(cell)
            except (TypeError, ValueError):
                raise self._error(row, f"{str(cell)!r}, which is not a number", advice) from None
            if np.isinf(found[row]):
                raise self._error(row, f"{str(cell)!r}, which is not finite", advice)
        return found

    def words(self) -> np.ndarray:
        """Return the cells as names of sites; raise ``ValueError`` if one is missing or ambiguous.

        Two Unicode forms of a name are one site. Names that differ only in case, or as 1 and 1.0,
        are refused, because they probably mean the same site.
        """
        first: dict[str, str] = {}
        found = []
        for row, cell in enumerate(self.cells):
            name = unicodedata.normalize("NFC", str(cell)).strip()
            if name in _MISSING:
                given = repr(name) if name else "empty"
                raise self._error(row, given, "name the site or remove the row")
            same = first.setdefault(_as_number(name).casefold(), name)
            if same != name:
                raise self._error(row, f"{name!r} and {same!r} elsewhere", "write it in one way")
            found.append(name)
        return np.array(found)

    def _error(self, row: int, value: str, advice: str) -> ValueError:
        return ValueError(f"{self.places[row]}: {self.name} is {value}; {advice}.")


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
    if len(read_lines) < 2:
        raise ValueError(f"{path} has no rows; pass a file with a header and one row an example.")
    header = [name.strip() for name in read_lines[0][0]]
    if len(header) == 1:
        raise ValueError(f"{path} has one column, {header[0]!r}; separate cells by commas.")
    lines, places = zip(*read_lines[1:], strict=True)
    for line, place in zip(lines, places, strict=True):
        if len(line) != len(header):
            raise ValueError(f"{place}: has {len(line)} cells where the header has {len(header)}.")

    def column(name):
        at = header.index(name)
        return _Column(name, [line[at].strip() for line in lines], places)

    return _of_columns(path, header, config, column)


def _of_parquet(path: pathlib.Path, config: Config) -> Table:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise ValueError(f"{path} is Parquet, which pyarrow reads; pip install pyarrow.") from error
    with reading(path, "a Parquet file"):
        columns = parquet.read_table(path)
    places = [f"{path.name}, row {row + 1}" for row in range(columns.num_rows)]

    def column(name):
        cells = columns.column(name).to_pylist()
        return _Column(
            name, ["" if cell is None or cell != cell else cell for cell in cells], places
        )

    return _of_columns(path, columns.column_names, config, column)


def _of_columns(
    path: pathlib.Path, header: Sequence[str], config: Config, column: Callable[[str], _Column]
) -> Table:
    """Return the table of a file with named columns; dropped columns are not read."""
    chosen = [name.strip() for name in dict.fromkeys(config.features.split(",")) if name.strip()]
    client = [config.client] if config.client else []
    target = (config.time, config.event) if config.loss == "cox" else (config.target,)
    if both := {*chosen} & {*target, *client}:
        raise ValueError(f"features names {both.pop()!r}, which is the target or the site.")
    for name in (*target, *client, *chosen):
        if name not in header:
            raise ValueError(f"{path} has no column {name!r}, only {', '.join(header)}.")
    names = chosen or [name for name in header if name not in (*target, *client)]
    for name in (*target, *client, *names):
        if header.count(name) > 1:
            raise ValueError(f"{path} has {header.count(name)} columns {name!r}; rename one.")
    kept = [name for name in names if name not in _dropped(path, names, config)]
    if not kept:
        raise ValueError(f"no column of {path} is left as a feature, only target and site.")
    if not chosen and (index := [name for name in kept if name in _INDEX]):
        raise ValueError(
            f"{path} has a feature {index[0]!r}, as pandas names the index of its rows; write the "
            "file with index=False, or give the column a name."
        )
    y, *event = (
        column(name).numbers("it is the target: write numbers, 0 and 1 for two classes")
        for name in target
    )
    x = np.stack(
        [
            column(name).numbers(
                f"pass --config.drop={name} to leave that column out, or write "
                "numbers, such as 0 and 1"
            )
            for name in kept
        ],
        axis=1,
    )
    site = column(config.client).words() if client else None
    return Table(x, y, site, kept, *event)


def _dropped(path: pathlib.Path, names: Sequence[str], config: Config) -> set[str]:
    """Return the features that the config drops; raise ``ValueError`` for an unknown one."""
    drop = {name.strip() for name in ",".join(config.drop).split(",")} - {""}
    if unknown := sorted(drop - set(names)):
        raise ValueError(f"drop names {unknown[0]}, and {path.name} has no such feature.")
    return drop


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
        ids = [line.strip() for line in beside.read_text("utf-8").splitlines() if line.strip()]
    if len(ids) != x.shape[0]:
        raise ValueError(
            f"{config.client} has {len(ids)} ids but {path} has {x.shape[0]} rows; write one for "
            "each, line by line."
        )
    return table._replace(site=np.array(ids))


def numbered(count: int) -> list[str]:
    """Return names for features without names."""
    return [f"x{index + 1}" for index in range(count)]
