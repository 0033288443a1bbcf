"""Tables of any library, with a column of clients or one table per client.

A table is anything whose ``table[name]`` numpy reads: a frame of pandas or polars, a table of Arrow
(and so Parquet), a ``Dataset`` of Hugging Face, a dict of arrays.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fcojax.arguments import validated
from fcojax.datasets.arrays import single
from fcojax.datasets.pooled import Pooled

Columns = Mapping[str, str | Sequence[str]]


@validated
def table(source: Any, fields: Columns, *, client: str | None = None) -> Pooled:
    """Read fields and the client column from a table.

    Args:
      source: the table.
      fields: for each field of an example the name of its column, or a list of names for a matrix.
      client: name of the column of clients, or ``None``.

    Example:
      >>> import fcojax, pandas
      >>> frame = pandas.DataFrame({
      ...     "age": [1.0, 2.0, 3.0], "weight": [4.0, 5.0, 6.0], "ill": [0, 1, 0],
      ...     "site": ["b", "a", "b"]})
      >>> pooled = fcojax.datasets.table(
      ...     frame, {"x": ["age", "weight"], "y": "ill"}, client="site")
      >>> data = fcojax.datasets.by_client(pooled)
      >>> data, data.ids.tolist()
      (ClientData(2 clients of 1 to 2 examples, x: float32[3, 2], y: int32[3]), ['a', 'b'])
    """
    examples = {
        field: single(
            _column(source, names)
            if isinstance(names, str)
            else np.stack([single(_column(source, name)) for name in names], axis=1)
        )
        for field, names in fields.items()
    }
    return Pooled(examples, None if client is None else np.asarray(source[client]))


@validated
def tables(parts: Mapping[Any, Any] | Iterable[Any], fields: Columns) -> Pooled:
    """Read one table per client.

    Args:
      parts: the tables, as a dict by client id or as an iterable.
      fields: as for ``table``.

    Example:
      >>> import fcojax, numpy as np
      >>> parts = {"Ghent": {"age": np.ones(2)}, "Lima": {"age": np.zeros(1)}}
      >>> pooled = fcojax.datasets.tables(parts, {"x": "age"})
      >>> pooled.examples["x"].tolist(), pooled.client.tolist()
      ([1.0, 1.0, 0.0], ['Ghent', 'Ghent', 'Lima'])
    """
    named = dict(parts) if isinstance(parts, Mapping) else dict(enumerate(parts))
    read = [table(part, fields).examples for part in named.values()]
    sizes = [len(next(iter(examples.values()))) for examples in read]
    examples = {field: np.concatenate([one[field] for one in read]) for field in fields}
    return Pooled(examples, np.repeat(list(named), sizes))


def _column(source: Any, name: str) -> np.ndarray:
    """Return a column as numbers; rows that are lists become rows of a matrix."""
    column = source[name]
    if hasattr(column, "columns"):  # a frame
        raise ValueError(f"the table has several columns {name}; give each its own name.")
    try:
        values = np.asarray(column)
        if values.dtype.kind == "O":
            values = np.stack([np.asarray(value) for value in values])
    except ValueError as error:  # ragged
        raise ValueError(
            f"the rows of column {name} have different shapes; bring them to one."
        ) from error
    if values.dtype.kind not in "biuf":
        raise ValueError(
            f"column {name} holds {values.dtype}, such as {values.ravel()[0]!r}; pass numbers, "
            "strings as their codes."
        )
    return values
