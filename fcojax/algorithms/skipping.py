"""Skipped exchanges: clients that take several rounds, or many steps, between two exchanges."""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.averages import primal
from fcojax.algorithms.base import Algorithm, Displacement, Facts, Public, takes
from fcojax.algorithms.frame import (
    Correction,
    Geometry,
    LocalProblem,
    ServerStep,
    count_of,
    method,
)
from fcojax.algorithms.local_solvers import gd
from fcojax.algorithms.splittings import augmented_slope
from fcojax.problems.losses import Loss
from fcojax.transforms.penalties.separable import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, NonNegative, Params, Positive, Probability, PyTree, Scalar


class SkippingClient(NamedTuple):
    """x_i, lambda_i, the client's own copy of x_0, and the memory of its solver."""

    model: Params
    dual: Params
    anchor: Params
    memory: PyTree


def skipping() -> Correction:
    r"""The problems of ``lagrangian``, around :math:`x_i + \eta \lambda_i` after a skip."""

    def begin(hparams, message, own, local):
        # A client learns in this round whether the last one was a synchronisation.
        anchor = tree.where(message.synced, message.center, own.anchor)
        return LocalProblem(anchor, augmented_slope, (anchor, own.dual), own.model, own.memory)

    def keep(hparams, message, own, local, steps):
        dual = tree.add_scaled(own.dual, 1 / hparams.prox_step, tree.sub(steps.end, steps.start))
        proposal = tree.add_scaled(steps.end, hparams.prox_step, dual)
        kept = SkippingClient(steps.end, dual, proposal, steps.memory)
        return kept, tree.sub(proposal, message.center)

    def own(params, memory):
        return SkippingClient(params, tree.zeros_like(params), params, memory)

    facts = Facts(needs_everyone=True, codecs="without feedback")
    return Correction("skipped duals", begin, keep, own, facts)


class Center(NamedTuple):
    """The model x_0 of the last exchange, and whether the last round ended with one."""

    center: Params
    synced: Array


def by_coin(penalty: Penalty) -> ServerStep:
    """The prox of the mean proposal, kept with probability 1 - p: one coin for all clients."""

    def step(hparams, server, mean, fraction, key):
        # Both outcomes are computed and one is kept: a coin is a value, not a branch.
        synced = ~jax.random.bernoulli(key, hparams.skip_probability)
        target = tree.add(server.center, mean)
        center = penalty.prox(target, hparams.prox_step, hparams.penalty_scale)
        return Center(tree.where(synced, center, server.center), synced)

    def sent(hparams, before, after):
        # Down if the last round synchronised, up if this one does.
        return before.synced, after.synced

    return ServerStep(
        "coin, prox",
        step,
        lambda hparams, params: Center(params, jnp.asarray(True)),
        model=lambda hparams, server: server.center,
        sent=sent,
    )


class FedPDHparams(NamedTuple):
    """``client_lr`` is the local solver's step; ``prox_step`` is eta.

    ``skip_probability`` is p, and ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    prox_step: Positive = 1.0
    skip_probability: Probability = 0.0
    penalty_scale: NonNegative = 0.1


@takes(FedPDHparams, "penalty")
def fed_pd(
    loss: Loss, penalty: Penalty | None = None, *, solver: Geometry | None = None
) -> Algorithm:
    r"""Federated primal-dual optimisation of the mean loss plus psi, with every client each round.

    A client minimises its augmented Lagrangian around :math:`x_{0,i}` and updates its dual as in
    ``fed_dyn``, and proposes :math:`m_i = x_i + \eta \lambda_i`. With probability 1 - p, one draw
    for all clients, all continue from :math:`x_{0,i} = x_0 = \mathrm{prox}_{\eta \psi}(\sum_i p_i
    m_i)`, otherwise each from its own :math:`m_i`. At the fixed point :math:`x_i = x_0` and
    :math:`\lambda_i = -\nabla f_i(x_0)`.

    For convex losses every :math:`\eta` converges if p = 0. With p > 0 the clients approach their
    own minimisers while they skip, and the model stalls at a distance that grows with :math:`\eta`
    and p; a schedule of ``skip_probability`` that falls to zero removes it.

    In a skipped round nothing is sent: a round counts uploads if it ends with an exchange, and
    downloads if the round before did or if it is the first. The model is the one of the last
    exchange. Duals start at zero; to start from others, set ``clients.dual`` of the engine's
    ``State``, one row per client. A client stores three vectors.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.fed_pd(None, fcojax.transforms.l1()).facts.parts
      ('primal', 'skipped duals', 'coin, prox')

    References:
      Zhang, Hong, Dhople, Yin and Liu, "FedPD: a federated learning framework with adaptivity to
      non-IID data", IEEE Trans. Signal Process. 2021 (arXiv 2005.11418), Algorithm 1; Wang, Marella
      and Anderson, "FedADMM: a federated primal-dual algorithm allowing partial participation", CDC
      2022 (arXiv 2203.15104), for the penalty. The authors' MATLAB code proposes :math:`x_i + \eta
      \lambda_i` with the old dual; here, as in the paper, the dual is the new one.
    """
    server = by_coin(penalty or zero())
    return method(loss, solver or gd(), skipping(), server, facts=Facts(exact=True))


def _delta(hparams: Any, num_steps: Array, geometric: bool) -> Scalar:
    """The step size of a whole round of ``prox_skip``."""
    if geometric:
        return hparams.client_lr / (1 - hparams.skip_probability)
    return hparams.client_lr * num_steps


def bank(*, geometric: bool = False) -> Correction:
    r"""Steps follow :math:`\nabla f_i - h_i`; clients store :math:`b_i = w - \delta h_i`.

    So :math:`b_i \leftarrow b_i + x_i - w` needs no reply of the server, and no prox. The number of
    steps is that of the plan, or ``geometric``: drawn by the server, and in its message.
    """

    def begin(hparams, message, own, local):
        if not geometric and not local.all_steps_equal:
            raise ValueError(
                "clients take different numbers of steps, but prox_skip needs equal numbers; pass "
                "local_steps(K), or steps='geometric'."
            )
        delta = _delta(hparams, count_of(hparams, local), geometric)
        control = tree.scale(1 / delta, tree.sub(message.center, own))

        def slope(hparams, gradient, x, batch, control):
            return tree.sub(gradient, control)

        fewer = message.num_steps if geometric else None
        return LocalProblem(message.center, slope, (control,), num_steps=fewer)

    def keep(hparams, message, own, local, steps):
        upload = Displacement(steps.moved, Public(count_of(hparams, local)))
        return tree.add(own, steps.moved), upload

    return Correction("bank", begin, keep, lambda params, memory: params)


class Exchange(NamedTuple):
    """The model w, the mean of all b_i, and the next K if it is random, or ``()``."""

    center: Params
    mean: Params
    num_steps: PyTree


def banked(penalty: Penalty, *, geometric: bool = False) -> ServerStep:
    r"""One prox of the mean of the :math:`b_i` of **all** clients, moved by the cohort."""

    def init(hparams, params):
        mean_steps = jnp.ceil(1 / jnp.asarray(1 - hparams.skip_probability)).astype(jnp.int32)
        return Exchange(params, params, mean_steps if geometric else ())

    def step(hparams, server, mean, fraction, key):
        target = tree.add(server.mean, mean.params)
        delta = _delta(hparams, mean.elapsed.value, geometric)
        center = penalty.prox(target, delta, hparams.penalty_scale)
        kept, num_steps = tree.add_scaled(server.mean, fraction, mean.params), ()
        if geometric:  # the server draws for all: clients stop after the same step
            num_steps = jax.random.geometric(key, 1 - hparams.skip_probability, dtype=jnp.int32)
        return Exchange(center, kept, num_steps)

    return ServerStep(
        "bank, prox",
        step,
        init,
        lambda hparams, server: server._replace(mean=()),
        lambda hparams, server: server.center,
    )


class ProxSkipHparams(NamedTuple):
    """``client_lr`` is gamma, ``penalty_scale`` is the strength of psi.

    ``skip_probability`` is 1 - p, used by ``steps="geometric"`` only.
    """

    client_lr: Positive = 0.01
    skip_probability: Probability = 0.9
    penalty_scale: NonNegative = 0.1


@takes(ProxSkipHparams, "penalty")
def prox_skip(
    loss: Loss, penalty: Penalty | None = None, *, steps: Literal["all", "geometric"] = "all"
) -> Algorithm:
    r"""Local steps with control variates and one prox per exchange; exact, one vector each way.

    Clients step by :math:`x_i \leftarrow x_i - \gamma (\nabla f_i(x_i) - h_i)` from the model w. An
    exchange, on average after every 1/p steps, is with :math:`\delta = \gamma / p`

    .. math:: w^+ = \mathrm{prox}_{\delta \psi}\Big(\sum_i p_i (x_i - \delta h_i)\Big), \qquad
              h_i \leftarrow h_i + (w^+ - x_i) / \delta, \qquad x_i \leftarrow w^+.

    Clients store :math:`b_i = w - \delta h_i`, initially w. Then an exchange is :math:`b_i
    \leftarrow b_i + x_i - w`, which needs no reply, and :math:`w^+` the prox of :math:`\bar b +
    \sum_{i \in S} p_i (x_i - w)`, with S the cohort and :math:`\bar b` the mean over **all**
    clients, which the server keeps. If all clients take part, this is the method of the paper. It
    is also exact with any cohort and with lost uploads; an average of the cohort's own :math:`h_i`
    would not be. Steps up to 1 / L are safe; p about :math:`\sqrt{\mu / L}` needs the fewest
    exchanges.

    Without a penalty this is Scaffnew. With ``steps="all"`` clients take the K steps of the
    engine's ``work``, with :math:`p = 1 / K`; ``"geometric"`` draws one K per round for all, as the
    coins of the paper do, at most the K of ``work``; the first round takes the mean.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.prox_skip(None, fcojax.transforms.l1()).facts.parts
      ('primal', 'bank', 'bank, prox')

    References:
      Mishchenko, Malinovsky, Stich and Richtarik, "ProxSkip: yes! Local gradient steps provably
      lead to communication acceleration! Finally!", ICML 2022 (arXiv 2202.09357), Algorithms 1, 2.
    """
    geometric = steps == "geometric"
    server = banked(penalty or zero(), geometric=geometric)
    return method(loss, primal(), bank(geometric=geometric), server, facts=Facts(exact=True))
