"""Splittings: clients solve local problems around the server's point, and keep a dual.

The ``solver`` of the local problems is one of ``local_solvers``, by default ``gd()``; the server
applies the penalty.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from fcojax import tree
from fcojax.algorithms.base import Algorithm, Facts, takes
from fcojax.algorithms.frame import Correction, Geometry, LocalProblem, ServerStep, method
from fcojax.algorithms.local import Batch
from fcojax.algorithms.local_solvers import gd
from fcojax.problems.losses import Loss
from fcojax.transforms.penalties.separable import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import NonNegative, Params, Positive, PyTree, Scalar


class DualClient(NamedTuple):
    """x_i and lambda_i of the client's last round, and the memory of its solver."""

    model: Params
    dual: Params
    memory: PyTree


def augmented_slope(
    hparams: Any, gradient: Params, x: Params, batch: Batch, anchor: Params, dual: Params
) -> Params:
    r"""Return the gradient of :math:`f_i + \langle \lambda, x \rangle + |x - a|^2 / (2 \eta)`."""
    terms = tree.add_scaled(dual, 1 / hparams.prox_step, tree.sub(x, anchor))
    return tree.add(gradient, terms)


def lagrangian(
    upload: Callable[[DualClient, Params, Params], PyTree],
    relaxation: Callable[[Any], Scalar] | None = None,
) -> Correction:
    r"""Clients minimise an augmented Lagrangian, then update their duals, as in ``fed_dyn``.

    Its anchor is :math:`a = x_0`, or :math:`x_i + \alpha (x_0 - x_i)` with a ``relaxation`` alpha;
    ``upload`` is ``(own, x, x - a) -> upload``, with the client's state before the round.
    """

    def begin(hparams, message, own, local):
        anchor = message
        if relaxation is not None:
            relaxed = tree.scale(relaxation(hparams), tree.sub(message, own.model))
            anchor = tree.add(own.model, relaxed)
        return LocalProblem(anchor, augmented_slope, (anchor, own.dual), own.model, own.memory)

    def keep(hparams, message, own, local, steps):
        moved = tree.sub(steps.end, steps.start)
        dual = tree.add_scaled(own.dual, 1 / hparams.prox_step, moved)
        return DualClient(steps.end, dual, steps.memory), upload(own, steps.end, moved)

    def own(params, memory):
        return DualClient(params, tree.zeros_like(params), memory)

    return Correction("duals" if relaxation is None else "relaxed duals", begin, keep, own)


class Drift(NamedTuple):
    """The model x_0, the drift h, and a mean of client models if it is the model."""

    center: Params
    drift: Params
    average: PyTree


class Moves(NamedTuple):
    """An upload: x_i - x_0, and the change of x_i if the mean of all x_i is the model."""

    from_center: Params
    from_last: PyTree


def with_drift(penalty: Penalty, report: str = "server") -> ServerStep:
    """The cohort's mean point, moved by the drift, the mean of the duals of **all** clients.

    See ``fed_dyn`` for its formula and for ``report``.
    """

    def init(hparams, params):
        return Drift(params, tree.zeros_like(params), () if report == "server" else params)

    def step(hparams, server, mean, fraction, key):
        drift = tree.add_scaled(server.drift, fraction / hparams.prox_step, mean.from_center)
        sampled = tree.add(server.center, mean.from_center)
        target = tree.add_scaled(sampled, hparams.prox_step, drift)
        center = penalty.prox(target, hparams.prox_step, hparams.penalty_scale)
        average = sampled if report == "sampled" else ()
        if report == "all":
            average = tree.add_scaled(server.average, fraction, mean.from_last)
        return Drift(center, drift, average)

    def model(hparams, server):
        return server.center if report == "server" else server.average

    return ServerStep("drift, prox", step, init, lambda hparams, server: server.center, model)


class Split(NamedTuple):
    """The mean of the proposals of all clients, and its prox, the model."""

    total: Params
    center: Params


def mean_of_all(penalty: Penalty | None) -> ServerStep:
    """The prox of the mean of the proposals of **all** clients, to which a cohort adds changes."""

    def step(hparams, server, mean, fraction, key):
        total = center = tree.add_scaled(server.total, fraction, mean)
        if penalty is not None:
            center = penalty.prox(total, hparams.prox_step, hparams.penalty_scale)
        return Split(total, center)

    def center(hparams, server):
        return server.center

    name = "mean of all" if penalty is None else "mean of all, prox"
    return ServerStep(name, step, lambda hparams, params: Split(params, params), center, center)


class FedDynHparams(NamedTuple):
    """``client_lr`` is the local solver's step; ``prox_step`` is eta, 1/alpha in the paper.

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    prox_step: Positive = 1.0
    penalty_scale: NonNegative = 0.1


@takes(FedDynHparams, "penalty")
def fed_dyn(
    loss: Loss,
    penalty: Penalty | None = None,
    *,
    solver: Geometry | None = None,
    report: Literal["server", "sampled", "all"] = "server",
) -> Algorithm:
    r"""Federated dynamic regularisation of the mean loss plus psi, with any cohort.

    A client of the cohort P minimises its augmented Lagrangian, then updates its dual:

    .. math:: x_i \approx \arg\min_x f_i(x) + \langle \lambda_i, x - x_0 \rangle
                         + \tfrac{1}{2 \eta} |x - x_0|^2, \qquad
              \lambda_i \leftarrow \lambda_i + (x_i - x_0) / \eta.

    With weights p_i that sum to one over all clients the server computes

    .. math:: h \leftarrow h + \tfrac{1}{\eta} \sum_{i \in P} p_i (x_i - x_0), \qquad
              x_0 \leftarrow \mathrm{prox}_{\eta \psi}\Big(
                  \frac{\sum_{i \in P} p_i x_i}{\sum_{i \in P} p_i} + \eta h\Big).

    The drift h equals the mean of the duals of all clients in every round, if it does so in the
    first: a difference b between them persists, and the limit then has the mean gradient b. So both
    start at zero; to start from other duals, set ``clients.dual`` of the engine's ``State``, one
    row per client, and ``server.drift`` to their mean. In the paper's symbols the client's gradient
    state is minus the dual, the server's is minus h, and alpha is 1 / eta.

    With full participation, the same solver and the same start this is FedPD without skipping. One
    vector goes up and one down; a client stores two, :math:`x_i` and :math:`\lambda_i`.

    The default solver is ``gd(warm_start=False)``, as in the authors' code. The model, ``report``,
    is x_0, the mean of the cohort's x_i (``"sampled"``), or that of the last x_i of ``"all"``
    clients, which varies least and needs a second vector up; the limit is the same.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.fed_dyn(None, fcojax.transforms.l1()).facts.parts
      ('primal', 'duals', 'drift, prox')

    References:
      Acar, Zhao, Matas Navarro, Mattina, Whatmough and Saligrama, "Federated learning based on
      dynamic regularization", ICLR 2021.
    """

    def upload(own, x, moved):
        return Moves(moved, tree.sub(x, own.model) if report == "all" else ())

    geometry, server = solver or gd(warm_start=False), with_drift(penalty or zero(), report)
    return method(loss, geometry, lagrangian(upload), server, facts=Facts(exact=True))


class FedDRHparams(NamedTuple):
    """``client_lr`` is the local solver's step, ``prox_step`` is eta, ``relaxation`` alpha.

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    prox_step: Positive = 1.0
    relaxation: NonNegative = 1.95
    penalty_scale: NonNegative = 0.1


@takes(FedDRHparams, "penalty")
def fed_dr(
    loss: Loss, penalty: Penalty | None = None, *, solver: Geometry | None = None
) -> Algorithm:
    r"""Randomised Douglas-Rachford splitting of the mean loss plus psi; exact, with any cohort.

    A client of the cohort S computes, from the server's x_0 and a relaxed anchor,

    .. math:: a_i = x_i + \alpha (x_0 - x_i), \quad
              x_i \approx \mathrm{prox}_{\eta f_i}(a_i - \eta \lambda_i), \quad
              \lambda_i \leftarrow \lambda_i + (x_i - a_i) / \eta,

    and sends the change of its proposal :math:`m_i = x_i + \eta \lambda_i`. The server keeps the
    mean of the proposals of **all** clients, to which it adds the mean change, and
    :math:`x_0 = \mathrm{prox}_{\eta \psi}(\sum_i p_i m_i)`.

    In the paper's symbols :math:`y_i = x_i - \eta \lambda_i` and :math:`\hat x_i = m_i`.
    Relaxations between 0 and 2 converge for convex losses and any eta.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.fed_dr(None, fcojax.transforms.l1()).facts.parts
      ('primal', 'relaxed duals', 'mean of all, prox')

    References:
      Tran-Dinh, Pham, Phan and Nguyen, "FedDR: randomized Douglas-Rachford splitting algorithms for
      nonconvex federated composite optimization", NeurIPS 2021 (arXiv 2103.03452), Algorithms 1, 2.
    """
    return _splitting(loss, penalty, solver, lambda hparams: hparams.relaxation)


class FedADMMHparams(NamedTuple):
    """``client_lr`` is the solver's step, ``prox_step`` eta, ``penalty_scale`` psi's strength."""

    client_lr: Positive = 0.01
    prox_step: Positive = 1.0
    penalty_scale: NonNegative = 0.1


@takes(FedADMMHparams, "penalty")
def fed_admm(
    loss: Loss, penalty: Penalty | None = None, *, solver: Geometry | None = None
) -> Algorithm:
    r"""Minimise the mean loss plus psi, exactly, with any cohort S and inexact local solves.

    The clients of S minimise their augmented Lagrangian and update their duals as in ``fed_dyn``,
    and :math:`x_0 = \mathrm{prox}_{\eta \psi}(\sum_i p_i (x_i + \eta \lambda_i))` over **all**
    clients, whose changes the server sums. This is ``fed_dr`` without relaxation; with full
    participation it is ``fed_pd`` without skipping. One vector goes up and one down; a client
    stores two, :math:`x_i` and :math:`\lambda_i`.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.fed_admm(None, fcojax.transforms.l1()).facts.parts
      ('primal', 'relaxed duals', 'mean of all, prox')

    References:
      Wang, Marella and Anderson, "FedADMM: a federated primal-dual algorithm allowing partial
      participation", CDC 2022 (arXiv 2203.15104); Gong, Li and Freris, "FedADMM: a robust federated
      deep learning framework with adaptivity to system heterogeneity", ICDE 2022 (arXiv
      2204.03529), is the same for psi = 0 and the server step of its analysis.
    """
    return _splitting(loss, penalty, solver, lambda hparams: 1.0)


class FedSplitHparams(NamedTuple):
    """``client_lr`` is the local solver's step, ``prox_step`` is s.

    ``penalty_scale`` is the strength of a penalty in the solver, as in ``proxgd(penalty)``.
    """

    client_lr: Positive = 0.01
    prox_step: Positive = 1.0
    penalty_scale: NonNegative = 0.1


@takes(FedSplitHparams)
def fed_split(loss: Loss, *, solver: Geometry | None = None) -> Algorithm:
    r"""Minimise a smooth and strongly convex mean loss; full participation, no penalty.

    Clients compute :math:`x_i = \mathrm{prox}_{s f_i}(2 x_0 - z_i)` and update
    :math:`z_i \leftarrow z_i + 2 (x_i - x_0)`; the model x_0 is the mean of the :math:`z_i`. That
    is ``fed_dr`` with :math:`\alpha = 2`. The prox step s is best near :math:`1 / \sqrt{L \mu}`.

    With a penalty in the solver, as in ``proxgd(penalty)``, the local problems are not smooth, and
    the model converges to a wrong point: use ``fed_dr`` with :math:`\alpha < 2`.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.fed_split(None).facts.parts
      ('primal', 'relaxed duals', 'mean of all')

    References:
      Pathak and Wainwright, "FedSplit: an algorithmic framework for fast federated optimization",
      NeurIPS 2020.
    """
    split = _splitting(loss, None, solver, lambda hparams: 2.0)
    return split._replace(facts=split.facts._replace(needs_everyone=True))


def _splitting(
    loss: Loss,
    penalty: Penalty | None,
    solver: Geometry | None,
    relaxation: Callable[[Any], Scalar],
) -> Algorithm:
    """Douglas-Rachford splitting with a relaxation that is a function of the hyperparameters."""

    def upload(own, x, moved):
        return tree.add(tree.sub(x, own.model), moved)

    correction = lagrangian(upload, relaxation)
    return method(loss, solver or gd(), correction, mean_of_all(penalty), facts=Facts(exact=True))
