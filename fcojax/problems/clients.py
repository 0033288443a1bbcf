"""The population as programs read it: rows of examples, and the first row of each client."""

import dataclasses
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.types import Array, PyTree


class Held(NamedTuple):
    """The clients of a larger population whose rows are loaded, and the sizes and weights of all.

    Attributes:
      members: indices of the loaded clients in the whole population, ascending; unused slots last.
      sizes, weights: number of examples, and weight p_m, of each client of the whole population.
    """

    members: Array
    sizes: Array
    weights: Array


@dataclasses.dataclass(frozen=True)
class Clients:
    """The population as a program reads it; see ``ClientData`` for its attributes."""

    examples: PyTree
    offsets: Array
    weights: Array
    num_clients: int
    min_size: int
    max_size: int
    size_bounds: tuple[int, ...]
    mesh: jax.sharding.Mesh | None = None
    held: Held | None = None
    ids: np.ndarray | None = None
    # Not a parameter, so that a population made from this one with other rows has none.
    products: Array | None = dataclasses.field(default=None, init=False)

    @property
    def num_shards(self) -> int:
        """Number of devices that the clients are spread over."""
        return 1 if self.mesh is None else self.mesh.shape["clients"]

    @property
    def num_sweep_shards(self) -> int:
        """Number of parts that a grid of points is cut into; each has a copy of all clients."""
        return 1 if self.mesh is None else self.mesh.shape.get("sweep", 1)

    @property
    def clients_per_shard(self) -> int:
        """Number of clients that one device owns or has loaded, including padding."""
        if self.held is not None:
            return self.held.members.shape[0]
        return -(-self.num_clients // self.num_shards)

    @property
    def shard_spec(self) -> jax.sharding.PartitionSpec:
        """Partition of the arrays on the mesh: along their first axis."""
        return jax.sharding.PartitionSpec(None if self.mesh is None else "clients")

    def local(self) -> Self:
        """Return one device's part as a population of its own, inside ``shard_map``."""
        part = dataclasses.replace(
            self, num_clients=self.clients_per_shard, mesh=None, held=None, ids=None
        )
        return part.with_products(self.products)

    def with_products(self, products: Array | None) -> Self:
        """Return the same population with these products of its rows."""
        data = dataclasses.replace(self)
        object.__setattr__(data, "products", products)
        return data

    @property
    def sizes(self) -> Array:
        """Number of examples of each client."""
        if self.held is not None:
            return self.held.sizes
        sizes = jnp.diff(self.offsets.reshape(self.num_shards, -1), axis=1)
        return sizes.reshape(-1)[: self.num_clients]


def require_one_device(data: Clients) -> None:
    """Raise ``ValueError`` for a population on a mesh, whose offsets count per device."""
    if data.mesh is not None:
        raise ValueError("the population is on a mesh; pass the one it was made from.")
