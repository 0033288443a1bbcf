"""Averages of dual points: FedDualAvg and its forms."""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.frame import Geometry, ServerStep, elapsed, method, none, stepping
from fcojax.problems.losses import Loss
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.types import Array, NonNegative, Params, Positive


class DualPoint(NamedTuple):
    """A dual point z, and the total step size so far, the weight of psi in the model."""

    dual: Params
    elapsed: Array


def dual(mirror: Mirror, *, prox: bool = True, extragradient: bool = False) -> Geometry:
    r"""Dual averaging :math:`z \leftarrow z - \eta_c \, slope` with models :math:`P_T(z)`.

    Clients sum displacements from the server's :math:`(z, T)`, which grows with the rounds. Without
    ``prox`` local models are :math:`\nabla h^*(z)`.
    """

    def model(hparams, start, moved):
        point = tree.add(start, moved)
        if not prox:
            return mirror.from_dual(point.dual)
        return mirror.to_primal(point.dual, point.elapsed, hparams.penalty_scale)

    def step(hparams, moved, slope, _):
        dual = tree.add_scaled(moved.dual, -hparams.client_lr, slope)
        return DualPoint(dual, moved.elapsed + hparams.client_lr)

    def start(hparams, params):
        return DualPoint(mirror.to_dual(params), jnp.zeros_like(jnp.asarray(hparams.client_lr)))

    return stepping(
        "dual, extra" if extragradient else "dual, prox" if prox else "dual",
        step,
        model=model,
        enter=lambda hparams, problem: tree.zeros_like(problem.start),
        leave=lambda start, moved: moved.dual,
        start=start,
        extragradient=extragradient,
    )


class DualSums(NamedTuple):
    """The server's dual point, and the rounding errors of its two sums so far."""

    dual: Params
    elapsed: Array
    residue: DualPoint


def dual_sums(mirror: Mirror) -> ServerStep:
    r"""Sums of the clients' mean dual displacements and step sizes; the model is :math:`P_T(z)`.

    The sums are compensated: in float32 their rounding error does not grow with the rounds.
    """

    def init(hparams, point):
        return DualSums(point.dual, point.elapsed, tree.zeros_like(point))

    def message(hparams, server):
        return DualPoint(server.dual, server.elapsed)

    def model(hparams, server):
        return mirror.to_primal(server.dual, server.elapsed, hparams.penalty_scale)

    def step(hparams, server, mean, fraction, key):
        increment = DualPoint(mean.params, mean.elapsed.value)
        sums, residue = tree.add_compensated(
            message(hparams, server), server.residue, hparams.server_lr, increment
        )
        return DualSums(sums.dual, sums.elapsed, residue)

    return ServerStep("sums, prox", step, init, message, model)


class FedDualAvgHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``penalty_scale`` is the strength of psi."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    penalty_scale: NonNegative = 0.1


@takes(FedDualAvgHparams, "mirror")
def fed_dual_avg(loss: Loss, mirror: Mirror, *, client_prox: bool = True) -> Algorithm:
    r"""Federated dual averaging, with :math:`P_t` the mirror step of ``mirror``.

    The server keeps :math:`(z_r, T_r)`, starting at :math:`(\nabla h(w_0), 0)`; a round is

    .. math::
       w^m_k &= P_{T_r + \eta_c k}(z^m_k), \qquad
       z^m_{k+1} = z^m_k - \eta_c \nabla f(w^m_k; \xi^m_k), \quad z^m_0 = z_r \\
       z_{r+1} &= z_r + \eta_s \sum_m p_m (z^m_K - z_r), \qquad
       T_{r+1} = T_r + \eta_s \sum_m p_m \eta_c K_m

    and the model is :math:`P_{T_r}(z_r)`. Gradients are taken at primal points and summed in the
    dual, where averaging keeps the sparsity that averaging models destroys. T is never reset, so
    the penalty keeps its weight relative to the sum of all gradients. With a schedule of
    ``penalty_scale`` the current strength applies to all of T. Without ``client_prox`` clients map
    dual points to the primal with :math:`\nabla h^*` only, as FedDualAvg-OSP does.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax.transforms import euclidean, l1
      >>> data = fcojax.from_rows({"a": np.array([[1.0, 0.9], [3.0, -0.9]])}, sizes=[1, 1])
      >>> algorithm = fcojax.algorithms.fed_dual_avg(
      ...     lambda w, rows: ((w[None] - rows["a"]) ** 2 / 2).sum(axis=1), euclidean(l1()))
      >>> hparams = algorithm.hparams_type(client_lr=0.1, penalty_scale=0.5)
      >>> w, _ = fcojax.run(
      ...     algorithm, hparams, jnp.zeros(2), data, jax.random.key(0), fcojax.local_steps(3),
      ...     num_rounds=200)
      >>> print(w.round(2))
      [1.5 0. ]

    References:
      Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, Algorithm 3, section 5.
    """
    return method(loss, dual(mirror, prox=client_prox), none(elapsed), dual_sums(mirror))


@takes(FedDualAvgHparams, "mirror")
def fed_dual_avg_osp(loss: Loss, mirror: Mirror) -> Algorithm:
    """FedDualAvg-OSP, "only server proximal": clients do not use the penalty.

    Its dual sequence is FedAvg's sequence of models for any penalty, while the weight of the
    penalty grows with the rounds. With l1 the model therefore tends to zero: the result depends on
    the number of rounds, and the minimiser is not a fixed point.

    With ``entropic_simplex`` all gradients are taken on the simplex of sum 1 for every
    ``penalty_scale``: use ``fed_dual_avg`` for another sum.

    Example:
      >>> import fcojax
      >>> from fcojax.transforms import euclidean, l1
      >>> fcojax.algorithms.fed_dual_avg_osp(None, euclidean(l1())).facts.parts
      ('dual', 'none', 'sums, prox')

    References:
      Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, section 5.
    """
    return fed_dual_avg(loss, mirror, client_prox=False)
