"""What a loader returns: all examples in one place, with the owner of each."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fcojax.problems.clients import ClientData, from_rows
from fcojax.problems.fields import shown


class Pooled(NamedTuple):
    """Examples as flat arrays, and the id of the client that each belongs to.

    Attributes:
      examples: one array per field, rows first, or ``SparseRows``; what ``from_rows`` and
        partitioners take.
      client: an id per row, numbers or strings, or ``None`` where the file knows no clients.

    Example:
      >>> import numpy as np
      >>> from fcojax.problems.loaders import Pooled, by_client
      >>> pooled = Pooled({"x": np.ones((3, 2))}, client=np.array(["b", "a", "b"]))
      >>> by_client(pooled).sizes.tolist()  # of a, and of b
      [1, 2]
    """

    examples: dict[str, Any]
    client: np.ndarray | None = None


def by_client(pooled: Pooled, weights: Any = None) -> ClientData:
    """The population in which every id of the client column is one client.

    Clients come in the order of their ids, and a client's rows keep the order of the file.

    Args:
      pooled: examples with a client column.
      weights: the p_m, as ``from_rows`` takes them.

    Example:
      >>> pooled = Pooled({"x": np.array([[1.0], [2.0], [3.0]])}, np.array(["b", "a", "b"]))
      >>> data = by_client(pooled)
      >>> data.ids.tolist(), data.examples["x"][:, 0].tolist()
      (['a', 'b'], [2.0, 1.0, 3.0])
    """
    _check_pooled(pooled)
    if pooled.client is None:
        raise ValueError("these data have no client column; split them with a partitioner.")
    client = np.asarray(pooled.client)
    for name, values in pooled.examples.items():
        if client.shape != values.shape[:1]:
            raise ValueError(
                f"the client column has shape {client.shape} but field {name} has "
                f"{values.shape[0]} rows; pass one id per row."
            )
    missing = client.dtype.kind == "f" and not np.isfinite(client).all()
    if missing or (
        client.dtype.kind == "O" and any(name is None or name != name for name in client)
    ):
        raise ValueError("the client column has a missing id; drop those rows or name the client.")
    ids, index, sizes = np.unique(client, return_inverse=True, return_counts=True)
    examples = pooled.examples
    if (np.diff(index) < 0).any():
        order = np.argsort(index, kind="stable")
        examples = {name: values[order] for name, values in examples.items()}
    return from_rows(examples, sizes, weights, ids=ids)


def drop_incomplete(pooled: Pooled, field: str = "x") -> Pooled:
    """Without the rows in which a value of ``field`` is missing (NaN).

    Example:
      >>> pooled = Pooled({"x": np.array([[1.0], [np.nan]]), "y": np.array([0, 1])})
      >>> drop_incomplete(pooled).examples["y"].tolist()
      [0]
    """
    _check_pooled(pooled)
    values = pooled.examples[field]
    complete = ~np.isnan(values).reshape(values.shape[0], -1).any(axis=1)
    client = None if pooled.client is None else np.asarray(pooled.client)[complete]
    return Pooled({name: rows[complete] for name, rows in pooled.examples.items()}, client)


def _check_pooled(pooled: Any) -> None:
    """Raises ``ValueError`` unless it is one, with fields by name."""
    wanted = "Pooled({'x': x, 'y': y}, client), the fields by name and a client id per row"
    if not isinstance(pooled, Pooled):
        raise ValueError(f"the data are {shown(pooled)}; pass {wanted}.")
    if not isinstance(pooled.examples, Mapping):
        raise ValueError(f"the examples of Pooled are {shown(pooled.examples)}; pass {wanted}.")
