"""The compared methods, and the penalty with its constraint."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fcojax import algorithms
from fcojax.algorithms.base import Factory
from fcojax.extend import memoised
from fcojax.transforms import (
    Mirror,
    euclidean,
    l1,
    on_singular_values,
    with_box,
)


class Method(NamedTuple):
    """A row of the tables.

    Attributes:
      text: the name of the method in the tables.
      key: the algorithm that gives the colour.
      line: the line style of its curves.
      build: ``(loss, mirror) -> Algorithm``.
    """

    text: str
    key: str
    line: str
    build: Callable[[Any, Mirror], Any]


def _client_prox(factory: Factory) -> Callable[[Any, Mirror], Any]:
    return lambda loss, mirror: factory(loss, mirror, server_prox=False)


METHODS = {
    "fe_dual_ex": Method("FeDualEx", "fe_dual_ex", "-", algorithms.fe_dual_ex),
    "fed_mip": Method("FedMiP as printed", "fed_mip", "--", algorithms.fed_mip),
    "fed_mip_client": Method(
        "FedMiP, client prox only", "fed_mip", "-", _client_prox(algorithms.fed_mip)
    ),
    "fed_dual_avg": Method("FedDualAvg", "fed_dual_avg", "-", algorithms.fed_dual_avg),
    "fed_mid": Method("FedMiD as printed", "fed_mid", "--", algorithms.fed_mid),
    "fed_mid_client": Method(
        "FedMiD, client prox only", "fed_mid", "-", _client_prox(algorithms.fed_mid)
    ),
}


@memoised
def mirror(num_columns: int, bound: float) -> Mirror:
    """Return the mirror of the l1 norm in a box, or of the nuclear norm in a spectral ball."""
    if not num_columns:
        return euclidean(with_box(l1(), -bound, bound))
    return euclidean(on_singular_values(with_box(l1(), -bound, bound)))
