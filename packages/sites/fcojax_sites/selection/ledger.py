"""Traffic of a path or a selection, by client and by part of the work."""

from typing import NamedTuple

import numpy as np

from fcojax import ClientData
from fcojax.extend import Outcome


class Entry(NamedTuple):
    """Traffic of one part of the work.

    Attributes:
      part: its name.
      down: bytes sent to each client.
      up: bytes sent by each client.
      rounds: number of rounds of all its solves.

    Example:
      >>> Entry("path", np.array([8.0, 8.0]), np.array([16.0, 0.0]), rounds=30).rounds
      30
    """

    part: str
    down: np.ndarray
    up: np.ndarray
    rounds: int = 0


class Ledger(NamedTuple):
    """All traffic, including tuning.

    Attributes:
      entries: one for each part of the work.
      ids: the clients' names.

    Example:
      >>> ledger = Ledger((Entry("path", np.array([8.0, 8.0]), np.array([16.0, 0.0])),), ("a", "b"))
      >>> print(ledger)
      part           down      up
      path           16 B    16 B
      total          16 B    16 B
      >>> ledger.by_client()
      {'a': (8, 16), 'b': (8, 0)}
    """

    entries: tuple[Entry, ...]
    ids: tuple

    @property
    def bytes_down(self) -> int:
        """Bytes sent to all clients together."""
        return int(sum(entry.down.sum() for entry in self.entries))

    @property
    def bytes_up(self) -> int:
        """Bytes sent by all clients together."""
        return int(sum(entry.up.sum() for entry in self.entries))

    @property
    def rounds(self) -> int:
        """Rounds of all solves together, for which noise is accounted."""
        return sum(entry.rounds for entry in self.entries)

    def by_client(self) -> dict:
        """Return the bytes down and up of each client, by its name."""
        down, up = (
            np.sum([getattr(entry, way) for entry in self.entries], axis=0)
            for way in ("down", "up")
        )
        names = [name.item() if hasattr(name, "item") else name for name in self.ids]
        return {name: (int(d), int(u)) for name, d, u in zip(names, down, up, strict=True)}

    def __str__(self) -> str:
        rows = [(entry.part, entry.down.sum(), entry.up.sum()) for entry in self.entries]
        rows.append(("total", self.bytes_down, self.bytes_up))
        lines = [f"{'part':10} {'down':>8} {'up':>7}"]
        lines += [f"{part:10} {shown_bytes(d):>8} {shown_bytes(u):>7}" for part, d, u in rows]
        return "\n".join(lines)


class Exchanges(NamedTuple):
    """Number of exchanges with every client besides rounds and certificates.

    Attributes:
      gradients: exchanges that send a model and return the gradient.
      products: exchanges that send a model and a direction, and return the Hessian product.
    """

    gradients: int
    products: int

    def entry(self, part: str, model_bytes: int, weights: np.ndarray) -> Entry:
        """Return their traffic.

        Args:
          part: the entry's name.
          model_bytes: bytes of one model.
          weights: [clients], or [folds, clients] for a sum over folds; weight 0 takes no part.
        """
        times = (weights > 0).reshape(-1, weights.shape[-1]).sum(axis=0) * float(model_bytes)
        return Entry(
            part,
            times * (self.gradients + 2 * self.products),
            times * (self.gradients + self.products),
        )


def entry_of_solves(part: str, outcome: Outcome) -> Entry:
    """Return the traffic of all solves of an outcome together."""
    down, up = (
        np.asarray(sent, float).reshape(-1, sent.shape[-1]).sum(axis=0)
        for sent in (outcome.bytes_down, outcome.bytes_up)
    )
    return Entry(part, down, up, int(np.sum(outcome.rounds)))


def client_names(data: ClientData) -> tuple:
    """Return the clients' names, or their indices if they have none."""
    return tuple(range(data.num_clients) if data.ids is None else data.ids.tolist())


def shown_bytes(number: float) -> str:
    """Format a number of bytes with a unit.

    Example:
      >>> shown_bytes(2048), shown_bytes(3.5e6)
      ('2.0 kB', '3.5 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} B"
