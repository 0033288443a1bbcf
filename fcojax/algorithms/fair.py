r"""Fair federated averaging: clients with a larger loss weigh more.

Li, Sanjabi, Beirami and Smith, "Fair resource allocation in federated learning", ICLR 2020, for the
powers. Mohri, Sivek and Suresh, "Agnostic federated learning", ICML 2019, for the worst mixture of
clients, which is the limit of the exponential weights of Li, Beirami, Sanjabi and Smith, "Tilted
empirical risk minimization", ICLR 2021.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Public, takes
from fcojax.algorithms.linear_steps import linear_steps
from fcojax.algorithms.local import mean_gradient, mean_loss
from fcojax.problems.losses import Loss
from fcojax.transforms.penalties.l1 import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, NonNegative, Params, Positive


class QFedAvgHparams(NamedTuple):
    """``client_lr`` is eta, ``power`` is q, ``penalty_scale`` is the strength of psi."""

    client_lr: Positive = 0.01
    power: NonNegative = 1.0
    penalty_scale: NonNegative = 0.1


class AgnosticHparams(NamedTuple):
    """``client_lr`` is eta, ``tilt`` is t, ``penalty_scale`` is the strength of psi."""

    client_lr: Positive = 0.01
    tilt: NonNegative = 1.0
    penalty_scale: NonNegative = 0.1


class Weighted(NamedTuple):
    """A client's mean step, a weight times a gradient, and the inverse of the server's step."""

    slope: Params
    inverse: Public


class Tilted(NamedTuple):
    """The model, and the tilted mean of the clients' losses in the last round."""

    params: Params
    level: Array


class TiltedUpload(NamedTuple):
    """A weight times the displacement, the weight, and the weight times the client's total step."""

    moved: Params
    weight: Public
    elapsed: Public


_SMALLEST = 1e-12  # a loss of zero would be divided by
_LARGEST = 60.0  # of an exponent: in float32 e^89 is infinite


@takes(QFedAvgHparams, "penalty")
def q_fed_avg(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""q-FedAvg with a penalty, for losses that are not negative.

    .. math:: \min_w \sum_i p_i \frac{f_i(w)^{q + 1}}{q + 1} + \psi(w)

    After K steps of size :math:`\eta` a client has the mean gradient :math:`g_i`; the server's step
    is the inverse of an estimate of the curvature of the objective,

    .. math:: w^+ = \mathrm{prox}_{\psi / h} \Big(w - \frac1h \sum_i p_i f_i^q g_i\Big), \qquad
              h = \sum_i p_i \Big(q f_i^{q-1} |g_i|^2 + \frac{f_i^q}{K \eta}\Big).

    With q = 0 it is ``fed_mid_osp`` with a Euclidean mirror. The weights are powers of the losses
    at w, which takes one more pass over a client's examples; they bypass codecs and aggregators.

    Args:
      loss: one loss per example, not negative.
      penalty: psi; none by default.

    Example:
      >>> import fcojax, jax, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([0.0, 0.0, 3.0])}, [1, 1, 1])
      >>> algorithm = fcojax.algorithms.q_fed_avg(lambda w, rows: (w - rows["a"]) ** 2 / 2)
      >>> for power in (0.0, 1.0, 10.0):  # the mean, and towards the midpoint
      ...     w, _ = fcojax.run(
      ...         algorithm, algorithm.hparams_type(client_lr=0.5, power=power), jnp.array(1.0),
      ...         data, jax.random.key(0), fcojax.local_steps(1), num_rounds=200)
      ...     print(round(float(w), 2))
      1.0
      1.33
      1.48
    """
    gradient, value, psi = mean_gradient(loss), mean_loss(loss), penalty or zero()

    def client_update(hparams, message, client, local, key):
        moved, elapsed = _steps(loss, gradient, hparams, message, local)
        level = jnp.maximum(value(message, local.full()).astype(elapsed.dtype), _SMALLEST)
        power = jnp.asarray(hparams.power, elapsed.dtype)
        weight = level**power
        slope = tree.scale(-1 / elapsed, moved)
        square = tree.vdot(slope, slope).astype(elapsed.dtype)
        curvature = power * weight / level * square
        upload = Weighted(tree.scale(weight, slope), Public(curvature + weight / elapsed))
        return ClientResult(client, upload, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        step = 1 / mean_upload.inverse.value
        target = tree.add_scaled(server, -step, mean_upload.slope)
        return psi.prox(target, step, hparams.penalty_scale)

    return Algorithm(
        init=lambda hparams, params: (params, ()),
        broadcast=lambda hparams, server: server,
        client_update=client_update,
        server_update=server_update,
        model=lambda hparams, server: server,
    )


@takes(AgnosticHparams, "penalty")
def agnostic(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""Federated averaging for the worst mixture of clients, smoothed by an entropy, and a penalty.

    .. math:: \min_w \max_{\lambda} \Big(\sum_i \lambda_i f_i(w)
              - \tfrac1t \mathrm{KL}(\lambda \,\|\, p)\Big) + \psi(w)
              = \min_w \; \tfrac1t \log \sum_i p_i e^{t f_i(w)} + \psi(w)

    A client weighs its displacement by :math:`e^{t (f_i - c)}`, with c the tilted mean of the last
    round, which cancels and avoids overflow; the server divides by the mean weight and takes one
    prox. Exponents stay between -60 and 60: in the first rounds, until c has reached the losses,
    large ones weigh alike. For t = 0 it is ``fed_mid_osp`` with a Euclidean mirror, for
    :math:`t \to \infty` agnostic federated learning, which minimises the largest loss; steps of up
    to about 1 / (L + t G^2) are safe, with G the largest gradient. Losses are sent as for
    ``q_fed_avg``.

    Args:
      loss: one loss per example.
      penalty: psi; none by default.

    Example:
      >>> import fcojax, jax, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([0.0, 0.0, 3.0])}, [1, 1, 1])
      >>> algorithm = fcojax.algorithms.agnostic(lambda w, rows: (w - rows["a"]) ** 2 / 2)
      >>> for tilt in (0.0, 1.0, 10.0):  # the mean, and towards the midpoint
      ...     w, _ = fcojax.run(
      ...         algorithm, algorithm.hparams_type(client_lr=0.02, tilt=tilt), jnp.array(1.0),
      ...         data, jax.random.key(0), fcojax.local_steps(1), num_rounds=500)
      ...     print(round(float(w), 2))
      1.0
      1.34
      1.48
    """
    gradient, value, psi = mean_gradient(loss), mean_loss(loss), penalty or zero()

    def init(hparams, params):
        return Tilted(params, jnp.zeros_like(jnp.asarray(hparams.client_lr))), ()

    def client_update(hparams, message, client, local, key):
        moved, elapsed = _steps(loss, gradient, hparams, message.params, local)
        level = value(message.params, local.full()).astype(message.level.dtype)
        exponent = jnp.asarray(hparams.tilt, level.dtype) * (level - message.level)
        # An infinite weight would be an upload that does not count: that of the worst client.
        weight = jnp.exp(jnp.clip(exponent, -_LARGEST, _LARGEST))
        upload = TiltedUpload(tree.scale(weight, moved), Public(weight), Public(weight * elapsed))
        return ClientResult(client, upload, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        weight = mean_upload.weight.value
        target = tree.add_scaled(server.params, 1 / weight, mean_upload.moved)
        step = mean_upload.elapsed.value / weight
        tilt = jnp.asarray(hparams.tilt, weight.dtype)
        change = jnp.where(tilt > 0, jnp.log(weight) / jnp.where(tilt > 0, tilt, 1), 0)
        return Tilted(psi.prox(target, step, hparams.penalty_scale), server.level + change)

    return Algorithm(
        init=init,
        broadcast=lambda hparams, server: server,
        client_update=client_update,
        server_update=server_update,
        model=lambda hparams, server: server.params,
    )


def _steps(loss, gradient, hparams, start, local):
    """Return the displacement of the local gradient steps, and the sum of their sizes."""

    def step(w, batch):
        return tree.add_scaled(w, -hparams.client_lr, gradient(w, batch))

    moved = linear_steps(loss, local, step, start)
    rate = jnp.asarray(hparams.client_lr)
    return moved, rate * local.num_steps.astype(rate.dtype)
