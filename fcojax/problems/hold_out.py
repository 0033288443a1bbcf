"""Training and validation data: some rows of every client."""

import jax
import numpy as np

from fcojax.arguments import validated
from fcojax.problems import memory
from fcojax.problems.building import from_rows
from fcojax.problems.client_data import ClientData, ids_of
from fcojax.problems.clients import require_one_device
from fcojax.types import Key, Share


@validated
def hold_out_examples(data: ClientData, share: Share, key: Key) -> tuple[ClientData, ClientData]:
    """Split every client's rows at random into training and validation data.

    Both have the same clients, with their ids and weights, and at least one row of each.

    Args:
      data: clients with at least two examples each.
      share: fraction of each client's rows to hold out for validation.
      key: PRNG key of the split.

    Returns:
      The training data and the validation data.

    Raises:
      ValueError: if a client has only one row, which cannot be split.

    Example:
      >>> from fcojax import from_rows
      >>> data = from_rows({"x": np.arange(12.0)}, [8, 4], ids=["ann", "bob"])
      >>> train, validation = hold_out_examples(data, 0.25, jax.random.key(0))
      >>> train.sizes.tolist(), validation.sizes.tolist(), validation.ids.tolist()
      ([6, 3], [2, 1], ['ann', 'bob'])
    """
    sizes = np.asarray(data.sizes)
    if sizes.min() < 2:
        few = ids_of(data)[int(np.argmin(sizes))]
        raise ValueError(
            f"client {few} has 1 example, which cannot be split; keep the clients that have two, "
            "data.select(np.flatnonzero(data.sizes > 1)), or hold out clients instead."
        )
    require_one_device(data)
    owner = np.repeat(np.arange(data.num_clients), sizes)
    priority = np.asarray(jax.random.bits(key, (owner.size,), "uint32"))
    # The first rows in a random order of each client's rows are held out.
    order = np.lexsort((priority, owner))
    rank = np.arange(owner.size) - (np.cumsum(sizes) - sizes)[owner]
    num_held = np.clip(np.rint(share * sizes).astype(int), 1, sizes - 1)
    held = np.empty(owner.size, bool)
    held[order] = rank < num_held[owner]
    weights = np.asarray(data.weights)

    def part(rows, sizes):
        rows = np.flatnonzero(rows)
        chosen = jax.tree.map(lambda leaf: memory.taken(leaf, rows), data.examples)
        return from_rows(chosen, sizes, weights, ids=ids_of(data))

    return part(~held, sizes - num_held), part(held, num_held)
