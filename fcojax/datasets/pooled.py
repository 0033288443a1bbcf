"""The result of a reader: all examples in flat arrays, with the client of each."""

from typing import Any, NamedTuple

import jax
import numpy as np

from fcojax import ClientData, from_rows
from fcojax.arguments import shown, validated
from fcojax.problems import memory
from fcojax.tree import by_field


class Pooled(NamedTuple):
    """Examples as flat arrays, with the id of the client of each.

    Attributes:
      examples: one array per field, rows first, or ``SparseRows``, as for ``from_rows`` and the
        functions of ``problems.partition``.
      client: one id per row, numbers or strings; ``None`` if the file has no clients.

    Example:
      >>> import numpy as np
      >>> from fcojax.datasets import Pooled, by_client
      >>> pooled = Pooled({"x": np.ones((3, 2))}, client=np.array(["b", "a", "b"]))
      >>> pooled
      Pooled(client: <U1[3], x: float64[3, 2])
      >>> by_client(pooled).sizes.tolist()  # of a, and of b
      [1, 2]
    """

    examples: dict[str, Any]
    client: np.ndarray | None = None

    def __repr__(self) -> str:
        columns = by_field([{**self.examples, "client": self.client}])
        shown = [f"{name}: {leaf.dtype}{list(np.shape(leaf))}" for name, leaf in columns]
        return f"Pooled({', '.join(shown)})"


@validated
def by_client(pooled: Pooled, weights: Any = None) -> ClientData:
    """Build the population in which every id of the client column is one client.

    Clients are sorted by id, and the rows of a client keep the order of the file.

    Args:
      pooled: examples with a client column.
      weights: the weights p_m, as for ``from_rows``.

    Example:
      >>> pooled = Pooled({"x": np.array([[1.0], [2.0], [3.0]])}, np.array(["b", "a", "b"]))
      >>> data = by_client(pooled)
      >>> data.ids.tolist(), data.examples["x"][:, 0].tolist()
      (['a', 'b'], [2.0, 1.0, 3.0])
    """
    if pooled.client is None:
        raise ValueError("there is no client column; pass the examples to problems.partition.")
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
        raise ValueError("the client column has a missing id; drop those rows or fill it in.")
    if client.dtype.kind == "O" and not all(isinstance(name, str) for name in client):
        raise ValueError(
            f"the client column is {shown(client)}; pass whole numbers or strings, and not both."
        )
    ids, index, sizes = np.unique(client, return_inverse=True, return_counts=True)
    examples = pooled.examples
    if (np.diff(index) < 0).any():
        order = np.argsort(index, kind="stable")
        examples = jax.tree.map(lambda leaf: memory.taken(leaf, order), examples)
    return from_rows(examples, sizes, weights, ids=ids)
