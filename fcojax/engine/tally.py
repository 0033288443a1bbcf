"""Running sums over the clients of a round: their collected uploads, and how many counted."""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax.engine.uploads.collect import WEIGHTED_SUM
from fcojax.engine.uploads.uplink import Uplink
from fcojax.types import Array, PyTree


class Tally(NamedTuple):
    """Sums over the clients so far.

    Attributes:
      collected: the terms of uploads as the uplink collects them, and the sums of public parts and
        of metrics, each times its client's weight.
      weight: the weights of counted clients.
      participants: number of clients that worked.
      dropped: number of those whose results are not finite.
      lost: number of those whose finite upload did not arrive.
      outliers: number of those whose upload arrived and was refused.
    """

    collected: tuple[PyTree, list, dict]
    weight: Array
    participants: Array
    dropped: Array
    lost: Array
    outliers: Array


def empty_tally(uplink: Uplink, shapes: tuple, num_places: int, dtype) -> Tally:
    """Return the tally before the first client.

    Args:
      uplink: the uplink.
      shapes: of one client's term, public parts and metrics.
      num_places: places in a cohort.
      dtype: of weights.
    """
    collected = tuple(
        collector.start(part, num_places)
        for collector, part in zip(_collectors(uplink), shapes, strict=True)
    )
    zero = jnp.zeros((), jnp.int32)
    return Tally(collected, jnp.zeros((), dtype), zero, zero, zero, zero)


def added(
    uplink: Uplink,
    tally: Tally,
    terms: tuple,
    verdicts: tuple[Array, Array | None, Array | None],
    weights: Array,
    places: Array,
) -> tuple[Tally, Array]:
    """Return the tally with one more chunk in it, and which of its clients are counted.

    Args:
      uplink: the uplink.
      tally: the tally so far.
      terms: term, public parts and metrics of each client.
      verdicts: whether each result is finite, arrives, and is no outlier.
      weights: weight of each client, 0 if it is absent.
      places: place of each client in the draw.
    """
    finite, arrives, admitted = verdicts
    present = weights > 0
    sound = present & finite
    arrived = sound if arrives is None else sound & arrives
    counted = arrived if admitted is None else arrived & admitted
    weights = jnp.where(counted, weights, 0)
    collected = tuple(
        collector.add(total, part, weights, places)
        for collector, total, part in zip(_collectors(uplink), tally.collected, terms, strict=True)
    )

    def count(which):
        return jnp.sum(which, dtype=jnp.int32)

    return Tally(
        collected,
        tally.weight + jnp.sum(weights),
        tally.participants + count(present),
        tally.dropped + count(present & ~finite),
        tally.lost + count(sound & ~arrived),
        tally.outliers + count(arrived & ~counted),
    ), counted


def merged(theirs: dict[str, Array], ours: dict[str, Array], function: str) -> dict[str, Array]:
    """Merge the user's measures with the engine's; raise ``ValueError`` for a name in both.

    Args:
      theirs: measures that the user's function returned.
      ours: the engine's.
      function: name of the user's function.
    """
    taken = sorted(set(theirs) & set(ours))
    if taken:
        raise ValueError(
            f"{function} returns a measure called {taken[0]}, which the engine counts itself; "
            "choose another name."
        )
    return theirs | ours


def _collectors(uplink: Uplink) -> tuple:
    return uplink.collector, WEIGHTED_SUM, WEIGHTED_SUM
