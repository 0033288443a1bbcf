"""Averages of models: FedAvg, FedProx, local SGD, and mirror descent."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, Facts, takes
from fcojax.algorithms.frame import (
    Correction,
    Geometry,
    ServerStep,
    elapsed,
    method,
    none,
    stepping,
)
from fcojax.algorithms.linear_steps import problem_moves
from fcojax.problems.losses import Loss
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, NonNegative, Params, Positive, Scalar


def primal(penalty: Penalty | None = None, *, warm_start: bool | None = None) -> Geometry:
    r"""Gradient steps :math:`w \leftarrow \mathrm{prox}_{\eta_c \psi}(w - \eta_c \, slope)`.

    A solver of local problems says with ``warm_start`` whether it starts at the client's own last
    point instead of the problem's start.
    """

    def step(hparams, w, slope, _):
        w = tree.add_scaled(w, -hparams.client_lr, slope)
        return w if penalty is None else penalty.prox(w, hparams.client_lr, hparams.penalty_scale)

    return stepping(
        "primal" if penalty is None else "primal, prox",
        step,
        enter=lambda hparams, problem: problem.last if warm_start else problem.start,
        moved=problem_moves if penalty is None and warm_start is None else None,
    )


def pull(
    correction: Correction | None = None,
    *,
    towards: Callable[[Params, Params], Params] | None = None,
) -> Correction:
    r"""Another correction, with the gradient of :math:`\mu |x - start|^2 / 2` added.

    On a manifold ``towards`` is the tangent vector from x to the start.
    """
    inner = none() if correction is None else correction

    def begin(hparams, message, own, local):
        problem = inner.begin(hparams, message, own, local)

        def slope(hparams, gradient, x, batch, start, *constants):
            plain = problem.slope(hparams, gradient, x, batch, *constants)
            if towards is not None:
                return tree.add_scaled(plain, -hparams.prox_scale, towards(x, start))
            return tree.add_scaled(plain, hparams.prox_scale, tree.sub(x, start))

        return problem._replace(slope=slope, constants=(problem.start, *problem.constants))

    name = "pull" if correction is None else f"pull, {inner.name}"
    return inner._replace(name=name, begin=begin)


def average(rate: Callable[[Any], Scalar] = lambda hparams: hparams.server_lr) -> ServerStep:
    r"""The mean displacement: :math:`w \leftarrow w + \eta_s u`."""

    def step(hparams, w, mean, fraction, key):
        return tree.add_scaled(w, rate(hparams), mean)

    return ServerStep("average", step)


class FedAvgHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0


class FedAvgSubgradientHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``penalty_scale`` is the strength of psi."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    penalty_scale: NonNegative = 0.1


@takes(FedAvgHparams)
def fed_avg(loss: Loss) -> Algorithm:
    r"""Federated averaging, for a loss without a penalty.

    With K local steps and cohort S_r a round is

    .. math:: w^m_{k+1} = w^m_k - \eta_c \nabla f(w^m_k; \xi^m_k), \quad w^m_0 = w_r, \qquad
              w_{r+1} = w_r + \eta_s \sum_{m \in S_r} p_m (w^m_K - w_r).

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2).facts.parts
      ('primal', 'none', 'average')

    References:
      McMahan, Moore, Ramage, Hampson and Aguera y Arcas, "Communication-efficient learning of deep
      networks from decentralized data", AISTATS 2017.
    """
    return method(loss, primal(), none(), average())


@takes(FedAvgSubgradientHparams, "penalty")
def fed_avg_subgradient(
    loss: Loss, penalty: Penalty, *, after_gradient_step: bool = True
) -> Algorithm:
    r"""FedAvg on the loss plus a subgradient of the penalty, without any prox.

    The local step adds :math:`s \in \partial \psi` to the gradient, the one that automatic
    differentiation of ``penalty.value`` returns, which for l1 is :math:`\lambda\,\mathrm{sign}(w)`
    with sign(0) = 0. An indicator has no effect.

    Args:
      loss: one loss per example.
      penalty: psi; only its value is used.
      after_gradient_step: take the subgradient at the point after the gradient step, as the
        reference code does; otherwise at the same point as the gradient, as in the paper.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.fed_avg_subgradient(None, fcojax.transforms.l1()).facts.parts
      ('subgradient', 'none', 'average')

    References:
      Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, section 1 and Figure 1,
      where it is called FedAvg(d).
    """
    subgradient = jax.grad(penalty.value)

    def step(hparams, w, slope, _):
        moved = tree.add_scaled(w, -hparams.client_lr, slope)
        at = moved if after_gradient_step else w
        return tree.add_scaled(moved, -hparams.client_lr, subgradient(at, hparams.penalty_scale))

    return method(loss, stepping("subgradient", step), none(), average())


class FedProxHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``prox_scale`` is mu.

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    prox_scale: NonNegative = 0.1
    penalty_scale: NonNegative = 0.1


@takes(FedProxHparams, "penalty")
def fed_prox(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""FedProx: clients take steps on their own objective plus a proximal term.

    .. math:: \min_w \; f_m(w) + \psi(w) + \tfrac{\mu}{2} |w - w_r|^2, \qquad
              w_{r+1} = w_r + \eta_s \sum_{m \in S_r} p_m (w^m_K - w_r)

    A local step is :math:`w \leftarrow \mathrm{prox}_{\eta_c \psi}(w - \eta_c (\nabla f_m(w) +
    \mu (w - w_r)))`; the engine's ``work`` fixes their number, which may differ between clients.
    With mu = 0 it is FedAvg, or FedMiD without its server's prox. The term reduces the drift of
    clients but does not remove it: the error of the limit is of the order of ``client_lr``. The
    model is a mean of sparse models, and so it is dense.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.fed_prox(None, fcojax.transforms.l1()).facts.parts
      ('primal, prox', 'pull', 'average')

    References:
      Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated optimization in heterogeneous
      networks", MLSys 2020.
    """
    return method(loss, primal(penalty), pull(), average())


class FedGDHparams(NamedTuple):
    """``client_lr`` is s, the size of every local step."""

    client_lr: Positive = 0.01


@takes(FedGDHparams)
def fed_gd(loss: Loss) -> Algorithm:
    r"""Federated gradient descent: E full local gradient steps, then the weighted average.

    .. math:: x_{r+1} = \sum_k p_k G_k^E(x_r), \qquad G_k(x) = x - s \nabla f_k(x)

    This is FedAvg with full gradients and a server rate of one; minibatches are refused, and so is
    compression. For E > 1 the limit depends on s and E and is in general not the minimiser of
    :math:`\sum_k p_k f_k`; for quadratic clients ``fcojax.theory.least_squares`` computes it, and
    every iterate, in closed form.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.fed_gd(None).facts.codecs
      'none'

    References:
      Li, Huang, Yang, Wang and Zhang, "On the convergence of FedAvg on non-IID data", ICLR 2020,
      with full participation. ``fcojax.theory`` computes their bound.
    """
    plain = none()

    def begin(hparams, message, own, local):
        if local.work.batch_size is not None:
            raise ValueError(
                f"batch_size is {local.work.batch_size} but fed_gd takes full gradients; pass "
                "local_steps(num_steps) alone, or use local_sgd."
            )
        return plain.begin(hparams, message, own, local)

    correction = plain._replace(begin=begin, facts=Facts(codecs="none"))
    return method(loss, primal(), correction, average(lambda hparams: 1.0))


class LocalSGDHparams(NamedTuple):
    r"""``client_lr`` is :math:`s_0`, the first step size; a ``decay`` of 0 keeps it constant."""

    client_lr: Positive = 0.01
    decay: NonNegative = 0.0


class CountedPoint(NamedTuple):
    """A point, and the number of local steps so far."""

    params: Params
    step: Array


@takes(LocalSGDHparams)
def local_sgd(loss: Loss) -> Algorithm:
    r"""Local SGD: local steps whose size depends on the global step t, then the weighted average.

    .. math:: x^k_{t+1} = x^k_t - s_t \nabla f_k(x^k_t; \xi^k_t), \qquad
              x^k_{t+1} \leftarrow \sum_j p_j x^j_{t+1} \ \text{ if } E \text{ divides } t + 1

    With s_0 the ``client_lr`` and d the ``decay`` the step size is :math:`s_t = s_0 / (1 + d t)`.
    The schedule :math:`2 / (\alpha (\gamma + t))` of the theorem has :math:`s_0 = 2 / (\alpha
    \gamma)` and :math:`d = 1 / \gamma`. It also changes inside a round, so the message carries t
    beside the model. The theorem draws examples with replacement, as ``local_steps(E, batch_size,
    replace=True)`` does; with ``local_steps(E)`` gradients are full, and with a decay of zero this
    is ``fed_gd``. Where clients take different numbers of steps, t grows by their weighted mean, to
    the nearest integer.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.local_sgd(None).facts.parts
      ('primal, decay', 'none', 'average')

    References:
      Li, Huang, Yang, Wang and Zhang, "On the convergence of FedAvg on non-IID data", ICLR 2020,
      section 2 and Theorem 1, with t counted from zero.
    """

    def step(hparams, at, slope, _):
        size = hparams.client_lr / (1 + hparams.decay * at.step.astype(jnp.result_type(float)))
        return CountedPoint(tree.add_scaled(at.params, -size, slope), at.step + 1)

    def averaged(hparams, server, mean, fraction, key):
        num_steps = jnp.round(mean.elapsed.value).astype(server.step.dtype)
        return CountedPoint(tree.add(server.params, mean.params), server.step + num_steps)

    geometry = stepping(
        "primal, decay",
        step,
        model=lambda hparams, start, at: at.params,
        leave=lambda start, end: tree.sub(end.params, start.params),
        start=lambda hparams, params: CountedPoint(params, jnp.zeros((), jnp.int32)),
    )
    server = ServerStep("average", averaged, model=lambda hparams, server: server.params)
    counted = none(lambda hparams, local, steps: local.num_steps)
    return method(loss, geometry, counted, server)


def mirrored(mirror: Mirror, *, prox: bool = True, extragradient: bool = False) -> Geometry:
    r"""Mirror steps :math:`w \leftarrow P_{\eta_c}(\nabla h(w) - \eta_c \, slope)`.

    Without ``prox`` they apply :math:`\nabla h^*` in place of :math:`P_t`.
    """

    def step(hparams, w, slope, _):
        z = tree.add_scaled(mirror.to_dual(w), -hparams.client_lr, slope)
        if not prox:
            return mirror.from_dual(z)
        return mirror.to_primal(z, hparams.client_lr, hparams.penalty_scale)

    def moved(loss, local, step, problem, first):
        is_identity = not prox and mirror.from_dual(mirror.to_dual(first)) is first
        return problem_moves(loss, local, step, problem, first) if is_identity else None

    name = "mirror, extra" if extragradient else "mirror, prox" if prox else "mirror"
    return stepping(name, step, moved=moved, extragradient=extragradient)


def mirror_average(mirror: Mirror, *, prox: bool = True) -> ServerStep:
    r"""One mirror step :math:`w \leftarrow P_{\eta_s e}(\nabla h(w) + \eta_s u)`, e the time."""

    def step(hparams, w, mean, fraction, key):
        z = tree.add_scaled(mirror.to_dual(w), hparams.server_lr, mean.params)
        if not prox:
            return mirror.from_dual(z)
        return mirror.to_primal(z, hparams.server_lr * mean.elapsed.value, hparams.penalty_scale)

    return ServerStep("mirror, prox" if prox else "mirror", step)


class FedMidHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``penalty_scale`` is the strength of psi."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    penalty_scale: NonNegative = 0.1


@takes(FedMidHparams, "mirror")
def fed_mid(
    loss: Loss, mirror: Mirror, *, client_prox: bool = True, server_prox: bool = True
) -> Algorithm:
    r"""Federated mirror descent, with :math:`P_t` the mirror step of ``mirror``.

    .. math::
       w^m_{k+1} &= P_{\eta_c}\big(\nabla h(w^m_k) - \eta_c \nabla f(w^m_k; \xi^m_k)\big) \\
       w_{r+1} &= P_{\eta_s \bar e}\Big(\nabla h(w_r) + \eta_s \sum_m p_m (w^m_K - w_r)\Big),
       \qquad \bar e = \sum_m p_m \eta_c K_m

    The default, which is the form of the paper, applies the penalty twice per round: with small
    steps it converges to the minimiser of F + 2 psi and not of F + psi, for every finite psi.
    Switch one of them off to minimise F + psi: ``server_prox=False`` keeps clients feasible,
    ``client_prox=False`` (FedMiD-OSP) keeps the model sparse; then :math:`\nabla h^*` replaces
    :math:`P_t`. For constraints all three are right.

    The server adds a primal difference to a dual point, as in the paper, which is natural for the
    Euclidean mirror only. With ``euclidean(l0_ball(tau))`` this is Fed-IterHT, hard thresholding
    after each step and average, and FedMiD-OSP is Fed-HT, after each average only (Tong, Liang, Zhu
    and Bi, 2020, arXiv 2101.00052).

    Example:
      >>> import fcojax
      >>> from fcojax.transforms import euclidean, l1
      >>> fcojax.algorithms.fed_mid(None, euclidean(l1()), server_prox=False).facts.parts
      ('mirror, prox', 'none', 'mirror')

    References:
      Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, Algorithm 2, section 5.
    """
    geometry, server = mirrored(mirror, prox=client_prox), mirror_average(mirror, prox=server_prox)
    return method(loss, geometry, none(elapsed), server)


@takes(FedMidHparams, "mirror")
def fed_mid_osp(loss: Loss, mirror: Mirror) -> Algorithm:
    """FedMiD-OSP, "only server proximal": plain local steps, one mirror step on the server.

    The penalty is applied once per round, so with small steps the limit is the minimiser of
    F + psi, up to a drift of the order of ``client_lr`` times the local steps after the first.

    With ``entropic_simplex`` the local steps end on the simplex of sum 1 for every
    ``penalty_scale``, so all gradients after the first are taken there: use ``fed_mid`` for another
    sum.

    Example:
      >>> import fcojax
      >>> from fcojax.transforms import euclidean, l1
      >>> fcojax.algorithms.fed_mid_osp(None, euclidean(l1())).facts.parts
      ('mirror', 'none', 'mirror, prox')

    References:
      Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, section 5.
    """
    return fed_mid(loss, mirror, client_prox=False)
