"""How much a client works in a round: so many steps, or so many walks through its examples."""

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fcojax.problems.fields import shown

_MOST = np.iinfo(np.int32).max  # rounds, steps and clients are counted in int32


class Work(NamedTuple):
    """What one client does in one round; made by ``local_steps`` or ``local_epochs``.

    Attributes:
      num_steps: steps, the most that any client takes, or ``None`` if epochs are counted.
      num_epochs: epochs, likewise, or ``None`` if steps are counted.
      batch_size: examples a step, or ``None`` for all.
      replace: whether a batch may hold an example twice.
      fewest: the least steps or epochs of any client, or ``None`` if all do the same.
      counts: the steps or epochs of each client, or ``None`` if they are not fixed one by one.

    Example:
      >>> import fcojax
      >>> work = fcojax.local_steps([2, 5], batch_size=10)
      >>> work.counts, work.fewest, work.most
      ((2, 5), 2, 5)
    """

    num_steps: int | None
    num_epochs: int | None
    batch_size: int | None
    replace: bool
    fewest: int | None = None
    counts: tuple[int, ...] | None = None

    @property
    def most(self) -> int:
        """Steps or epochs, whichever are counted, of the client that does most."""
        most = self.num_epochs if self.num_steps is None else self.num_steps
        assert most is not None
        return most

    def max_steps(self, max_size: int) -> int:
        """Steps of a client with ``max_size`` examples, the most that any client takes."""
        return self._steps(self.most, max_size)

    def min_steps(self, min_size: int) -> int:
        """Steps of a client with ``min_size`` examples, the fewest that any client takes."""
        return self._steps(self.fewest or self.most, min_size)

    def _steps(self, count: int, size: int) -> int:
        if self.num_epochs is None:
            return count
        return -(-count * size // (self.batch_size or size))


def local_steps(
    num_steps: int | Sequence[int],
    batch_size: int | None = None,
    *,
    replace: bool = False,
    fewest: int | None = None,
) -> Work:
    """Every client takes exactly ``num_steps`` steps, as in the paper.

    Each step draws ``batch_size`` examples of the client, independently of its other steps.

    Args:
      num_steps: K, the same for every client; or one number per client.
      batch_size: examples a step; ``None`` for all of them. A client with fewer uses all it has.
      replace: draw with replacement. By default the examples of one batch are distinct.
      fewest: if given, every client draws its own number of steps for each round, uniformly from
        ``fewest`` to ``num_steps``.

    Example:
      >>> import fcojax
      >>> fcojax.local_steps(10, batch_size=4).max_steps(max_size=100)
      10
    """
    batch_size = checked_count("batch_size", batch_size, optional=True)
    if replace and batch_size is None:
        raise ValueError(
            "replace is True but batch_size is None, for all examples; pass a batch_size with it."
        )
    most, fewest, counts = _amount("num_steps", num_steps, fewest)
    return Work(most, None, batch_size, replace, fewest, counts)


def local_epochs(
    num_epochs: int | Sequence[int],
    batch_size: int | None = None,
    *,
    fewest: int | None = None,
) -> Work:
    """Every client walks ``num_epochs`` times through its examples, as in the reference code.

    The examples are reshuffled for each epoch, then cut into batches that may straddle two
    epochs; the last, short batch is kept. Client m takes ``ceil(num_epochs * n_m / batch_size)``
    steps, so clients of different sizes take different numbers of steps.

    Args:
      num_epochs: E, the same for every client; or one number per client.
      batch_size: examples a step; ``None`` for all of them.
      fewest: if given, every client draws its own number of epochs for each round, uniformly from
        ``fewest`` to ``num_epochs``.

    Example:
      >>> import fcojax
      >>> work = fcojax.local_epochs(2, batch_size=4)
      >>> work.max_steps(max_size=10), work.min_steps(min_size=3)
      (5, 2)
    """
    batch_size = checked_count("batch_size", batch_size, optional=True)
    most, fewest, counts = _amount("num_epochs", num_epochs, fewest)
    return Work(None, most, batch_size, False, fewest, counts)


def checked_count(name: str, value: Any, optional: bool = False, least: int = 1) -> Any:
    """The count as a Python integer, also of numpy's, if it is a whole number of at least 1."""
    if value is None and optional:
        return None
    try:
        count = least - 1 if isinstance(value, bool) else operator.index(value)  # pyright: ignore
    except TypeError:
        count = least - 1
    if count < least:
        alternative = " or None" if optional else ""
        raise ValueError(
            f"{name} is {shown(value)}; pass a whole number of at least {least}{alternative}."
        )
    if count > _MOST:
        raise ValueError(f"{name} is {count}; pass at most {_MOST}.")
    return count


def as_number(value: Any) -> float:
    """The value as a Python float, or NaN if it is no single number."""
    try:
        alone = np.ndim(value) == 0 and not isinstance(value, str | bytes)
        return float(value) if alone else float("nan")
    except (TypeError, ValueError):
        return float("nan")


def _amount(
    name: str, value: Any, fewest: int | None
) -> tuple[int, int | None, tuple[int, ...] | None]:
    """The most, the fewest and the counts of ``Work``."""
    value = np.asarray(value) if isinstance(value, jax.Array) else value
    several = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
    if not several or (isinstance(value, np.ndarray) and value.ndim == 0):
        most = checked_count(name, value)
        fewest = checked_count("fewest", fewest, optional=True)
        if fewest is not None and fewest > most:
            raise ValueError(f"fewest is {fewest} but {name} is {most}; pass at most {most}.")
        return most, fewest, None
    if fewest is not None or len(value) == 0:
        raise ValueError(
            f"{name} is {shown(value)}, fewest {fewest}; pass one count per client alone."
        )
    counts = tuple(
        checked_count(f"{name} of client {client}", count) for client, count in enumerate(value)
    )
    return max(counts), min(counts), counts
