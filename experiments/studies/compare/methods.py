"""The compared methods: how each is built, tuned and drawn."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from experiments.studies.compare.late import late
from experiments.studies.compare.smoothing import SmoothedHparams, decreasing, smoothed
from fcojax import algorithms
from fcojax.algorithms import Algorithm
from fcojax.algorithms.local_solvers import exact, gd
from fcojax.transforms import euclidean


class Method(NamedTuple):
    """A row of the tables.

    Attributes:
      text: the name of the method in the tables.
      key: the algorithm that gives the colour and the hyperparameters.
      line: the line style of its curve; empty if the curve is not drawn.
      build: ``(loss, penalty) -> Algorithm``.
      tuned: ``"round"``, steps as multiples of 1 / (K L); ``"step"``, of 1 / L; ``"prox"``, the
        prox step as a multiple of 1 / L.
      exact: whether its limit is claimed to be the optimum; ``None`` if nothing is claimed.
      claimed: whether the source makes this claim; otherwise it is our expectation.
      one_step: whether clients take one local step instead of K.
      half: whether half of the clients take part in a round, instead of all.
      fixed: hyperparameters that are not tuned, computed from L and the smallest curvature.
    """

    text: str
    key: str
    line: str
    build: Callable[[Any, Any], Any]
    tuned: str = "round"
    exact: bool | None = True
    claimed: bool = True
    one_step: bool = False
    half: bool = False
    fixed: Callable[[float, float], dict[str, float]] = lambda largest, least: {}

    @property
    def hparams(self) -> type:
        """The type of its hyperparameters."""
        if self.build is smoothed:
            return SmoothedHparams
        return getattr(algorithms, "fed_mid_osp" if self.key == "prox_gd" else self.key).Hparams


def _mirrored(name: str, **options) -> Callable[[Any, Any], Algorithm]:
    factory = getattr(algorithms, name)
    return lambda loss, penalty: factory(loss, euclidean(penalty), **options)


def _constant(**numbers) -> Callable[[float, float], dict[str, float]]:
    return lambda largest, least: numbers


_pd_exactly = functools.partial(algorithms.fed_pd, solver=exact())
_pd = functools.partial(algorithms.fed_pd, solver=gd())
_dyn = functools.partial(algorithms.fed_dyn, solver=gd())
_dr = functools.partial(algorithms.fed_dr, solver=gd())


def _late(loss, penalty):
    return late(_dr(loss, penalty), 3)


_dr_exactly = functools.partial(algorithms.fed_dr, solver=exact())
_server_prox = functools.partial(algorithms.scaffold, prox="server")
_feedback = functools.partial(algorithms.scaffold, prox="feedback")
METHODS = {
    "prox_gd": Method(
        "ProxGD, centralised", "prox_gd", "-", _mirrored("fed_mid_osp"), one_step=True
    ),
    "subgradient": Method(
        "FedAvg, subgradient",
        "fed_avg_subgradient",
        "",
        algorithms.fed_avg_subgradient,
        exact=False,
    ),
    "smoothed": Method(
        "FedAvg, smoothed penalty",
        "fed_avg_subgradient",
        "",
        smoothed,
        exact=None,
        fixed=lambda largest, least: {"smoothing": decreasing(1 / largest, 0.5, 20_000)},
    ),
    "fed_mid": Method("FedMiD as printed", "fed_mid", "", _mirrored("fed_mid"), exact=None),
    "fed_mid_client": Method(
        "FedMiD, client prox only",
        "fed_mid",
        "",
        _mirrored("fed_mid", server_prox=False),
        exact=False,
    ),
    "fed_mid_osp": Method("FedMiD-OSP", "fed_mid_osp", "", _mirrored("fed_mid_osp"), exact=False),
    "fed_dual_avg": Method(
        "FedDualAvg", "fed_dual_avg", "-", _mirrored("fed_dual_avg"), exact=False
    ),
    "osp": Method(
        "FedDualAvg-OSP", "fed_dual_avg_osp", "", _mirrored("fed_dual_avg_osp"), exact=None
    ),
    "dual_tracking": Method(
        "FedDualAvg, tracking",
        "fed_dual_avg_tracking",
        "--",
        _mirrored("fed_dual_avg_tracking"),
        claimed=False,
    ),
    "fast": Method(
        "Fast-FedDualAvg",
        "fast_fed_dual_avg",
        "",
        _mirrored("fast_fed_dual_avg"),
        exact=None,
        fixed=lambda largest, least: {"strong_convexity": least},
    ),
    "composite_fl": Method(  # its source proves a neighbourhood
        "Composite FL", "composite_fl", "-", algorithms.composite_fl, claimed=False
    ),
    "scaffold": Method("SCAFFOLD, client prox", "scaffold", "-", algorithms.scaffold),
    "scaffold_server": Method("SCAFFOLD, server prox", "scaffold", "", _server_prox, exact=None),
    "feedback": Method(
        "SCAFFOLD, server prox, feedback", "scaffold", "--", _feedback, claimed=False
    ),
    "fast_scaffold": Method(
        "SCAFFOLD, feedback, momentum",
        "fast_scaffold",
        ":",
        algorithms.fast_scaffold,
        claimed=False,
    ),
    "mime": Method("MimeSVRG", "mime", "-.", algorithms.mime),
    "prox_skip": Method("ProxSkip, p = 1/K", "prox_skip", "-", algorithms.prox_skip, "step"),
    "normal_map": Method(
        "Normal map",
        "fed_normal_map",
        "-.",
        algorithms.fed_normal_map,
        fixed=lambda largest, least: {"prox_step": 4 / largest},
    ),
    "fed_dr": Method(
        "FedDR, exact, alpha 1", "fed_dr", "", _dr_exactly, "prox", fixed=_constant(relaxation=1.0)
    ),
    "fed_dr_over": Method(
        "FedDR, exact, alpha 1.9",
        "fed_dr",
        "-",
        _dr_exactly,
        "prox",
        fixed=_constant(relaxation=1.9),
    ),
    "fed_dr_gd": Method(
        "FedDR, K steps, alpha 1", "fed_dr", "--", _dr, "prox", fixed=_constant(relaxation=1.0)
    ),
    "fed_dr_late": Method(
        "FedDR, K steps, up to 3 rounds late",
        "fed_dr",
        "",
        _late,
        "prox",
        fixed=_constant(relaxation=1.0),
    ),
    "fed_admm": Method(
        "FedADMM, K steps",
        "fed_admm",
        ":",
        functools.partial(algorithms.fed_admm, solver=gd()),
        "prox",
    ),
    "fed_pd": Method("FedPD, exact solves", "fed_pd", "", _pd_exactly, "prox"),
    "fed_pd_gd": Method("FedPD, K steps", "fed_pd", "--", _pd, "prox"),
    "skipping": Method(
        "FedPD, exact, skips half",
        "fed_pd",
        "",
        _pd_exactly,
        "prox",
        exact=None,
        fixed=_constant(skip_probability=0.5),
    ),
    "fed_dyn": Method("FedDyn, K steps", "fed_dyn", "-.", _dyn, "prox"),
    "composite_fl_half": Method(
        "Composite FL, half the clients",
        "composite_fl",
        "-",
        algorithms.composite_fl,
        claimed=False,
        half=True,
    ),
    "prox_skip_half": Method(
        "ProxSkip, half the clients",
        "prox_skip",
        "--",
        algorithms.prox_skip,
        "step",
        claimed=False,
        half=True,
    ),
    "fed_dyn_half": Method("FedDyn, half the clients", "fed_dyn", "-.", _dyn, "prox", half=True),
}
