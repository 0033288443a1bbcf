r"""FedExP: FedAvg whose server step is as long as the clients disagree.

Jhunjhunwala, Wang and Joshi, "FedExP: speeding up federated averaging via extrapolation", ICLR
2023 (arXiv 2301.09604).
"""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Public, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.problem import Loss
from fcojax.transforms.penalties.l1 import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, Params, PyTree, Scalar


class ExtrapolationRates(NamedTuple):
    """``client_lr`` is eta_c; ``epsilon`` keeps the server's step finite.

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Scalar = 0.01
    epsilon: Scalar = 1e-3
    penalty_scale: Scalar = 0.1


class LastTwo(NamedTuple):
    """The model, and the one before it, if their mean is reported."""

    point: Params
    previous: PyTree


class Displacement(NamedTuple):
    """What a client sends: how far it moved, that squared, and the sum of the steps it took."""

    params: Params
    squared: Array
    elapsed: Public


@takes(ExtrapolationRates, "penalty")
def fed_exp(loss: Loss, penalty: Penalty | None = None, *, report: str = "average") -> Algorithm:
    r"""FedAvg with an adaptive server step, and a prox of the server if there is a penalty.

    Clients move by :math:`d_i` in K local steps from w, as in FedAvg, and with S the cohort

    .. math:: \eta_s = \max\Big(1, \frac{\sum_{i \in S} p_i |d_i|^2}
                                        {2 (|\sum_{i \in S} p_i d_i|^2 + \epsilon)}\Big), \qquad
              w \leftarrow \mathrm{prox}_{\eta_s \eta_c K \psi}\Big(w + \eta_s \sum_i p_i d_i\Big).

    The more the clients' directions cancel, the longer the step. Iterates swing, and the paper
    reports the mean of the last two. Its limit is off by the drift of the local steps, as that of
    FedAvg is. The squared length is a fact about a client's data like :math:`d_i` itself, and an
    uplink treats it so.

    Args:
      loss: one loss per example.
      penalty: psi, applied on the server; none by default.
      report: which model is returned: the ``"average"`` of the last two, or the ``"last"``, which
        has the zeros that the prox made.

    Example:
      >>> import fcojax
      >>> cost = fcojax.check.facts(fcojax.check.subject_of(fcojax.algorithms.fed_exp))
      >>> cost.up, cost.server_proxes  # the way, its squared length and the sum of the steps
      ('1 d + 2', 1)

    References:
      Jhunjhunwala, Wang and Joshi, 2023, Algorithm 1. The prox is ours.
    """
    if report not in ("average", "last"):
        raise ValueError(f"report is {report!r}; pass one of average, last.")
    gradient, penalty, average = mean_gradient(loss), penalty or zero(), report == "average"

    def init(hparams, params):
        return LastTwo(params, params if average else ()), ()

    def broadcast(hparams, server):
        return server.point

    def client_update(hparams, message, client, local, key):
        def step(w, batch):
            return tree.add_scaled(w, -hparams.client_lr, gradient(w, batch))

        moved = tree.sub(local.scan(step, message), message)
        client_lr = jnp.asarray(hparams.client_lr)
        elapsed = Public(local.num_steps.astype(client_lr.dtype) * client_lr)
        return ClientResult(client, Displacement(moved, tree.vdot(moved, moved), elapsed), {})

    def server_update(hparams, server, mean_upload, cohort, key):
        mean, elapsed = mean_upload.params, mean_upload.elapsed.value
        together = tree.vdot(mean, mean)
        agreement = 2 * (together + jnp.asarray(hparams.epsilon, together.dtype))
        server_lr = jnp.maximum(1, mean_upload.squared / agreement)
        target = tree.add_scaled(server.point, server_lr, mean)
        length = server_lr.astype(elapsed.dtype) * elapsed
        point = penalty.prox(target, length, hparams.penalty_scale)
        return LastTwo(point, server.point if average else ())

    def model(hparams, server):
        if not average:
            return server.point
        return tree.scale(0.5, tree.add(server.point, server.previous))

    return Algorithm(init, broadcast, client_update, server_update, model, entrywise=True)
