r"""FedAvg and its subgradient form: local steps, averaged in the primal.

McMahan, Moore, Ramage, Hampson and Aguera y Arcas, "Communication-efficient learning of deep
networks from decentralized data", AISTATS 2017; in the notation of Yuan, Zaheer and Reddi,
"Federated composite optimization", ICML 2021, Algorithm 1.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, takes
from fcojax.algorithms.linear_steps import linear_steps
from fcojax.algorithms.local import Local, mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.penalty import Penalty
from fcojax.types import NonNegative, Params, Positive


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

    Its server state and its message are the parameters; clients keep no state.

    Args:
      loss: one loss per example.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, sizes=[1, 1], weights=[3, 1])
      >>> algorithm = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> w, _ = fcojax.run(
      ...     algorithm, algorithm.hparams_type(client_lr=0.5), jnp.array(0.0), data,
      ...     jax.random.key(0), fcojax.local_steps(2), num_rounds=30)
      >>> round(float(w), 3)
      1.5
    """
    gradient = mean_gradient(loss)

    def displacement(hparams, start, local):
        def step(w, batch):
            return tree.add_scaled(w, -hparams.client_lr, gradient(w, batch))

        return linear_steps(loss, local, step, start)

    return _averaging(displacement)


@takes(FedAvgSubgradientHparams, "penalty")
def fed_avg_subgradient(
    loss: Loss, penalty: Penalty, *, after_gradient_step: bool = True
) -> Algorithm:
    r"""FedAvg on the loss plus a subgradient of the penalty, without any prox.

    The local step adds :math:`s \in \partial \psi` to the gradient. The subgradient is the one that
    automatic differentiation of ``penalty.value`` returns, which for l1 is
    :math:`\lambda\,\mathrm{sign}(w)` with sign(0) = 0. An indicator has no effect: its value has
    gradient zero inside its set.

    Args:
      loss: one loss per example.
      penalty: psi; only its value is used.
      after_gradient_step: take the subgradient at the point after the gradient step, as the
        reference code does; otherwise at the same point as the gradient, as in the paper.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_clients([{"h": np.ones(1)}, {"h": 3 * np.ones(1)}])
      >>> loss = lambda x, rows: rows["h"] / 2 * (x - rows["h"]) ** 2  # minimiser with |x|: 2
      >>> algorithm = fcojax.algorithms.fed_avg_subgradient(loss, fcojax.transforms.l1())
      >>> hparams = algorithm.hparams_type(client_lr=0.1, penalty_scale=1.0)
      >>> plan, key = fcojax.local_steps(2), jax.random.key(0)
      >>> x, _ = fcojax.run(algorithm, hparams, jnp.array(0.0), data, key, plan, num_rounds=100)
      >>> round(float(x), 2)
      1.94

    References:
      Yuan, Zaheer and Reddi, 2021, section 1 and Figure 1, where it is called FedAvg(d).
    """
    gradient = mean_gradient(loss)
    subgradient = jax.grad(penalty.value)

    def displacement(hparams, start, local):
        def step(w, batch):
            descended = tree.add_scaled(w, -hparams.client_lr, gradient(w, batch))
            at = descended if after_gradient_step else w
            return tree.add_scaled(
                descended, -hparams.client_lr, subgradient(at, hparams.penalty_scale)
            )

        return tree.sub(local.scan(step, start), start)

    return _averaging(displacement)


def _averaging(displacement: Callable[[Any, Params, Local], Params]) -> Algorithm:
    """Local steps from the server's point, then the mean displacement times ``server_lr``."""

    def init(hparams, params):
        return params, ()

    def broadcast(hparams, server):
        return server

    def client_update(hparams, message, client, local, key):
        return ClientResult(client, displacement(hparams, message, local), {})

    def server_update(hparams, server, mean_upload, fraction, key):
        return tree.add_scaled(server, hparams.server_lr, mean_upload)

    def model(hparams, server):
        return server

    return Algorithm(init, broadcast, client_update, server_update, model)
