"""What was sent, by whom, for which part of the work."""

from typing import NamedTuple

import numpy as np


class Entry(NamedTuple):
    """One part of the work.

    Attributes:
      part: which.
      down: bytes that each client was sent.
      up: bytes that each client sent.
    """

    part: str
    down: np.ndarray
    up: np.ndarray


class Ledger(NamedTuple):
    """Everything that was sent, tuning included.

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
        """Bytes that all clients together were sent."""
        return int(sum(entry.down.sum() for entry in self.entries))

    @property
    def bytes_up(self) -> int:
        """Bytes that all clients together sent."""
        return int(sum(entry.up.sum() for entry in self.entries))

    def by_client(self) -> dict:
        """Bytes down and up of each client by its name."""
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


def shown_bytes(number: float) -> str:
    """A number of bytes in a unit of its size.

    Example:
      >>> shown_bytes(2048), shown_bytes(3.5e6)
      ('2.0 kB', '3.5 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} B"
