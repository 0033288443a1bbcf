"""Training and validation data: some rows of every client, or all rows of some clients."""

import jax
import numpy as np

from fcojax.problems.clients import ClientData, from_rows, ids_of
from fcojax.types import Key


def hold_out_examples(data: ClientData, share: float, key: Key) -> tuple[ClientData, ClientData]:
    """Every client's rows split at random: the training data, and ``share`` of them to validate.

    Both have the same clients, with their ids and weights; each keeps at least one row in either.

    Raises:
      ValueError: if a client has only one row, which cannot be split.

    Example:
      >>> from fcojax.problems import from_rows
      >>> data = from_rows({"x": np.arange(12.0)}, [8, 4], ids=["ann", "bob"])
      >>> train, validation = hold_out_examples(data, 0.25, jax.random.key(0))
      >>> train.sizes.tolist(), validation.sizes.tolist(), validation.ids.tolist()
      ([6, 3], [2, 1], ['ann', 'bob'])
    """
    _refuse_share(share)
    sizes = np.asarray(data.sizes)
    if sizes.min() < 2:
        few = ids_of(data)[int(np.argmin(sizes))]
        raise ValueError(
            f"client {few} has 1 example, which cannot be split; keep the clients that have two, "
            "data.select(np.flatnonzero(data.sizes > 1)), or hold out clients instead."
        )
    examples, _ = data.rows_of(np.arange(data.num_clients))
    owner = np.repeat(np.arange(data.num_clients), sizes)
    luck = np.asarray(jax.random.bits(key, (owner.size,), "uint32"))
    # The rows that come first in a random order of each client's are held out.
    order = np.lexsort((luck, owner))
    rank = np.arange(owner.size) - (np.cumsum(sizes) - sizes)[owner]
    num_held = np.clip(np.rint(share * sizes).astype(int), 1, sizes - 1)
    held = np.empty(owner.size, bool)
    held[order] = rank < num_held[owner]
    weights = np.asarray(data.weights)

    def part(rows, sizes):
        chosen = jax.tree.map(lambda leaf: leaf[rows], examples)
        return from_rows(chosen, sizes, weights, ids=ids_of(data))

    return part(~held, sizes - num_held), part(held, num_held)


def hold_out_clients(data: ClientData, share: float, key: Key) -> tuple[ClientData, ClientData]:
    """The clients split at random: those to train on, and ``share`` of them that no one has seen.

    At least one client is on either side. All keep their ids and weights.

    Example:
      >>> from fcojax.problems import from_rows
      >>> data = from_rows({"x": np.arange(10.0)}, [1] * 10)
      >>> train, unseen = hold_out_clients(data, 0.3, jax.random.key(0))
      >>> train.num_clients, unseen.num_clients
      (7, 3)
    """
    _refuse_share(share)
    if data.num_clients < 2:
        raise ValueError("there is 1 client; holding out clients needs at least 2.")
    luck = np.asarray(jax.random.bits(key, (data.num_clients,), "uint32"))
    num_held = int(np.clip(np.rint(share * data.num_clients), 1, data.num_clients - 1))
    order = np.argsort(luck, kind="stable")
    return data.select(order[num_held:]), data.select(order[:num_held])


def check_same_clients(train: ClientData, validation: ClientData) -> None:
    """Raises ``ValueError`` unless both have the same clients, as after a split by example.

    Example:
      >>> import fcojax, numpy as np
      >>> train = fcojax.from_rows({"a": np.arange(3.0)}, [2, 1], ids=["ann", "bob"])
      >>> validation = fcojax.from_rows({"a": np.arange(2.0)}, [1, 1], ids=["bob", "cy"])
      >>> fcojax.problems.check_same_clients(train, validation)
      Traceback (most recent call last):
          ...
      ValueError: ...
    """
    for one, other, names in (
        (train, validation, ("training", "validation")),
        (validation, train, ("validation", "training")),
    ):
        missing = np.setdiff1d(ids_of(one), ids_of(other))
        if missing.size:
            raise ValueError(
                f"client {missing[0]} is in the {names[0]} data and not in the {names[1]} data; "
                "both need the same clients."
            )


def check_unseen_clients(train: ClientData, validation: ClientData) -> None:
    """Raises ``ValueError`` if a client is in both, which a split by client must not do.

    Example:
      >>> import fcojax, numpy as np
      >>> train = fcojax.from_rows({"a": np.arange(3.0)}, [2, 1], ids=["ann", "bob"])
      >>> validation = fcojax.from_rows({"a": np.arange(2.0)}, [1, 1], ids=["bob", "cy"])
      >>> fcojax.problems.check_unseen_clients(train, validation)
      Traceback (most recent call last):
          ...
      ValueError: ...
    """
    both = np.intersect1d(ids_of(train), ids_of(validation))
    if both.size:
        raise ValueError(
            f"client {both[0]} is in the training data and in the validation data; clients that "
            "are held out must be in one only."
        )


def _refuse_share(share: float) -> None:
    if not 0 < share < 1:
        raise ValueError(f"share is {share}; pass a number strictly between 0 and 1.")
