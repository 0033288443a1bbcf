"""The methods that are compared: how each is built, tuned and drawn."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from fcojax import algorithms
from fcojax.algorithms.local_solvers import exact, gd
from fcojax.transforms import euclidean


class Method(NamedTuple):
    """A line of the tables.

    Attributes:
      text: its name there.
      key: the algorithm whose colour and hyperparameters it has.
      line: the line style of its curve.
      build: ``(loss, penalty) -> Algorithm``.
      one_step: whether clients take one local step instead of K.
      half: whether half of the clients take part in a round, instead of all.
      skip_probability: of FedPD.
    """

    text: str
    key: str
    line: str
    build: Callable[[Any, Any], Any]
    one_step: bool = False
    half: bool = False
    skip_probability: float = 0.0

    @property
    def splits(self):
        """Whether the prox step is tuned instead of the rates."""
        return self.key in ("fed_pd", "fed_dyn")


def _mirrored(name, **options):
    factory = getattr(algorithms, name)
    return lambda loss, penalty: factory(loss, euclidean(penalty), **options)


_pd_exactly = functools.partial(algorithms.fed_pd, solver=exact())
_pd = functools.partial(algorithms.fed_pd, solver=gd())
_dyn = functools.partial(algorithms.fed_dyn, solver=gd())
_subgradient, _client_prox = algorithms.fed_avg_subgradient, _mirrored("fed_mid", server_prox=False)
METHODS = {
    "prox_gd": Method("ProxGD, centralised", "prox_gd", "-", _mirrored("fed_mid_osp"), True),
    "subgradient": Method("FedAvg, subgradient", "fed_avg_subgradient", "-", _subgradient),
    "fed_mid": Method("FedMiD as printed", "fed_mid", "-", _mirrored("fed_mid")),
    "fed_mid_client": Method("FedMiD, client prox only", "fed_mid", ":", _client_prox),
    "fed_mid_osp": Method("FedMiD-OSP", "fed_mid_osp", "-", _mirrored("fed_mid_osp")),
    "fed_dual_avg": Method("FedDualAvg", "fed_dual_avg", "-", _mirrored("fed_dual_avg")),
    "osp": Method("FedDualAvg-OSP", "fed_dual_avg_osp", "-", _mirrored("fed_dual_avg_osp")),
    "fed_pd": Method("FedPD, exact solves", "fed_pd", "-", _pd_exactly),
    "fed_pd_gd": Method("FedPD, K steps", "fed_pd", "--", _pd),
    "skipping": Method(
        "FedPD, exact, skips half", "fed_pd", ":", _pd_exactly, skip_probability=0.5
    ),
    "fed_dyn": Method("FedDyn, K steps", "fed_dyn", "--", _dyn),
    "fed_dyn_half": Method("FedDyn, half the clients", "fed_dyn", ":", _dyn, half=True),
}
