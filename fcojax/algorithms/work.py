"""The amount of work of a client in a round: a number of steps, or of passes over its examples."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from fcojax.arguments import at_most, checked_value, shown, validated
from fcojax.types import Count, Positive


class Work(NamedTuple):
    """The work of a client in one round; made by ``local_steps`` or ``local_epochs``.

    ``num_steps`` or ``num_epochs`` is the most of any client, and the other one is ``None``. So are
    ``batch_size`` for all examples, ``fewest`` if all clients take the same number, ``counts`` if
    they are not given one by one, and ``by_round`` if the steps do not depend on the round.

    Example:
      >>> import fcojax
      >>> fcojax.local_steps([2, 5], batch_size=10).counts
      (2, 5)
    """

    num_steps: int | None
    num_epochs: int | Fraction | None
    batch_size: int | None
    replace: bool
    fewest: int | Fraction | None = None
    counts: tuple[int | Fraction, ...] | None = None
    by_round: tuple[int, ...] | None = None

    example = "local_steps(10, 32)"

    @property
    def most(self) -> int | Fraction:
        """The largest number of steps, or of epochs, of any client."""
        most = self.num_epochs if self.num_steps is None else self.num_steps
        assert most is not None
        return most

    def max_steps(self, max_size: int) -> int:
        """The largest number of steps of a client, given the size of the largest."""
        return self.steps(self.most, max_size)

    def min_steps(self, min_size: int) -> int:
        """The smallest number of steps of a client, given the size of the smallest client."""
        return self.steps(self.fewest or self.most, min_size)

    def steps(self, count: int | Fraction, size: int) -> int:
        """The number of steps, given what is counted and the size of the client."""
        if self.num_epochs is None:
            return int(count)
        return -(-count * size // (self.batch_size or size))


@validated
def local_steps(
    num_steps: int | Sequence[int],
    batch_size: Count | None = None,
    *,
    replace: bool = False,
    fewest: Count | None = None,
    by_round: Sequence[Count] | None = None,
) -> Work:
    """Every client takes ``num_steps`` steps, as in the papers.

    Each step draws ``batch_size`` examples of the client, independently of its other steps.

    Args:
      num_steps: K, the same for every client; or one number per client.
      batch_size: examples per step; ``None`` for all of them. A client with fewer uses all it has.
      replace: draw with replacement. By default the examples of one batch are distinct.
      fewest: if given, every client draws its own number of steps for each round, uniformly from
        ``fewest`` to ``num_steps``.
      by_round: if given, the number of steps in each round, at most ``num_steps``; rounds after the
        last one take its number.

    Example:
      >>> import fcojax
      >>> fcojax.local_steps(10, batch_size=4).max_steps(max_size=100)
      10
    """
    if replace and batch_size is None:
        raise ValueError("replace is True but batch_size is None; pass a batch_size with it.")
    most, fewest, counts = _amount("num_steps", num_steps, fewest, _whole)
    if by_round is not None:
        if counts is not None or fewest is not None or not len(by_round):
            raise ValueError("by_round needs one num_steps for all clients, without fewest.")
        by_round = tuple(np.asarray(by_round).tolist())
        at_most("by_round", max(by_round), most, f" but num_steps is {most}")
        fewest = min(by_round)
    return Work(most, None, batch_size, replace, fewest, counts, by_round)


@validated
def local_epochs(
    num_epochs: float | Sequence[float],
    batch_size: Count | None = None,
    *,
    fewest: Count | None = None,
) -> Work:
    """Every client makes ``num_epochs`` passes over its examples, as in the reference code.

    The examples are reshuffled for each epoch, then cut into batches that may span two epochs; the
    last, short batch is kept. Client m takes ``ceil(num_epochs * n_m / batch_size)``
    steps, so clients of different sizes take different numbers of steps. Half an epoch is the first
    half of the batches of an epoch.

    Args:
      num_epochs: E, the same for every client; or one number per client. It may be a fraction if
        there is a ``batch_size``, and is rounded to one with a denominator of at most 1,000.
      batch_size: examples per step; ``None`` for all of them.
      fewest: as in ``local_steps``, for epochs.

    Example:
      >>> import fcojax
      >>> work = fcojax.local_epochs(2, batch_size=4)
      >>> work.max_steps(max_size=10), work.min_steps(min_size=3)
      (5, 2)
    """
    kind = _fraction if batch_size is not None and fewest is None else _whole
    most, fewest, counts = _amount("num_epochs", num_epochs, fewest, kind)
    return Work(None, most, batch_size, False, fewest, counts)


def _whole(name: str, value: Any) -> int:
    return checked_value(name, value, Count)


def _fraction(name: str, value: Any) -> int | Fraction:
    # Exact, so that a third of 30 examples is 10 and not 11, in numbers that fit into int32.
    found = Fraction(float(checked_value(name, value, Positive))).limit_denominator(1000)
    if not found:
        raise ValueError(f"{name} is {value}; pass at least 0.001.")
    return int(found) if found.denominator == 1 else found


def _amount(
    name: str, value: Any, fewest: int | None, number: Callable[[str, Any], Any]
) -> tuple[Any, Any, tuple[Any, ...] | None]:
    """Return ``most``, ``fewest`` and ``counts`` of ``Work``."""
    if np.ndim(value) == 0:
        most = number(name, value)
        if fewest is not None:
            at_most("fewest", fewest, most, f" but {name} is {most}")
        return most, fewest, None
    if fewest is not None or len(value) == 0:
        raise ValueError(
            f"{name} is {shown(value)}, fewest {fewest}; pass one count per client, without fewest."
        )
    counts = tuple(
        number(f"{name} of client {client}", count)
        for client, count in enumerate(np.asarray(value).tolist())
    )
    return max(counts), min(counts), counts
