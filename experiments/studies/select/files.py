"""A user's own file as features by name, a target and a site for every row."""

import csv
import importlib
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fcojax.problems import SparseRows, loaders

_MOST_ENTRIES = 1 << 25  # of a dense matrix; four copies of it in double precision are a gigabyte


class Table(NamedTuple):
    """What a file holds.

    Attributes:
      x: one row an example; NaN where a value is missing. Of LIBSVM files that are larger than a
        dense matrix may be, sparse rows.
      y: the target.
      site: the name of each row's client.
      names: of the features.
    """

    x: np.ndarray | SparseRows
    y: np.ndarray
    site: np.ndarray
    names: list[str]


def read(config) -> Table:
    """The table in ``config.data_dir``: an npz, CSV, Parquet or LIBSVM file, or its folder.

    In an npz file ``features``, ``target`` and ``client`` name arrays, and ``names`` those of the
    features' names and, after a comma, of the clients' names. In a CSV or Parquet file they name
    columns; ``features`` may be empty for all others. Any other file is taken for LIBSVM text, and
    ``client`` names a file beside it with an id a line.
    """
    path = _the_file(pathlib.Path(config.data_dir))
    if path.suffix == ".npz":
        table = _of_npz(path, config)
    elif path.suffix == ".csv":
        table = _of_csv(path, config)
    elif path.suffix == ".parquet":
        table = _of_parquet(path, config)
    else:
        table = _of_libsvm(path, config)
    drop = set(",".join(config.drop).split(","))
    kept = np.array([name not in drop for name in table.names])
    if isinstance(table.x, SparseRows):  # a column of zeros is never selected
        x = table.x
        return table._replace(x=SparseRows(x.index, x.value * kept[x.index], x.num_features))
    names = [name for name, keep in zip(table.names, kept, strict=True) if keep]
    return table._replace(x=table.x[:, kept], names=names)


def _the_file(path: pathlib.Path) -> pathlib.Path:
    if path.is_file():
        return path
    found = sorted(
        file
        for file in path.glob("*")
        if file.suffix in (".npz", ".csv", ".parquet", ".svm", ".libsvm") or not file.suffix
    )
    if len(found) != 1:
        raise ValueError(
            f"data_dir is {str(path)!r}, where there are {len(found)} files to read; pass the path "
            "of one npz, CSV, Parquet or LIBSVM file."
        )
    return found[0]


def _of_npz(path: pathlib.Path, config) -> Table:
    fields = {"x": config.features, "y": config.target}
    pooled = loaders.npz(path, fields, client=config.client)
    x, site = pooled.examples["x"], np.asarray(pooled.client)
    names, sites = (*config.names.split(","), "")[:2] if config.names else ("", "")
    with np.load(path, allow_pickle=False) as arrays:
        known = [str(name) for name in arrays[names]] if names else numbered(x.shape[1])
        if sites:
            site = arrays[sites][site.astype(int)]
    return Table(x, pooled.examples["y"], site, known)


def _of_csv(path: pathlib.Path, config) -> Table:
    with open(path, newline="", encoding="utf-8") as file:
        header, *lines = list(csv.reader(file))
    place = {name: column for column, name in enumerate(header)}

    def numbers(name):
        cells = [line[place[name]].strip() for line in lines]
        return np.array([float(cell) if cell not in ("", "NA", "?") else np.nan for cell in cells])

    return _of_columns(
        path, header, config, numbers, lambda name: np.array([line[place[name]] for line in lines])
    )


def _of_parquet(path: pathlib.Path, config) -> Table:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise ValueError(f"{path} is Parquet, which pyarrow reads; pip install pyarrow.") from error
    columns = parquet.read_table(path)

    def numbers(name):
        cells = columns.column(name).to_pylist()
        return np.array([np.nan if cell is None else float(cell) for cell in cells])

    return _of_columns(
        path, columns.column_names, config, numbers,
        lambda name: np.array(columns.column(name).to_pylist()).astype(str),
    )  # fmt: skip


def _of_columns(
    path: pathlib.Path, header: Sequence[str], config, numbers: Callable, words: Callable
) -> Table:
    """The table of a file with named columns, each asked for as numbers or as words."""
    chosen = [name for name in config.features.split(",") if name]
    for name in (config.target, config.client, *chosen):
        if name not in header:
            raise ValueError(f"{path} has no column {name!r}, only {', '.join(header)}.")
    names = chosen or [name for name in header if name not in (config.target, config.client)]
    x = np.stack([numbers(name) for name in names], axis=1)
    return Table(x, numbers(config.target), words(config.client), names)


def _of_libsvm(path: pathlib.Path, config) -> Table:
    pooled = loaders.libsvm(path, sparse=True, regression=config.loss in ("linear", "poisson"))
    x = pooled.examples["x"]
    if x.shape[0] * x.shape[1] <= _MOST_ENTRIES:
        x = x.to_dense()
    site = np.loadtxt(path.parent / config.client, dtype=str)
    if site.shape != (x.shape[0],):
        raise ValueError(
            f"{config.client} has {site.size} ids but {path} has {x.shape[0]} rows; write one for "
            "each, line by line."
        )
    return Table(x, pooled.examples["y"], site, numbered(x.shape[1]))


def numbered(count: int) -> list[str]:
    """Names for features that have none."""
    return [f"x{index + 1}" for index in range(count)]
