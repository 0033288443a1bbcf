r"""Theory of FeDualEx: an average of its extrapolated points, and bounds on its duality gap.

Bai and Bullins, "Local composite saddle point optimization", ICLR 2024, Theorems 1 and 4, for
homogeneous clients that all take part.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms import (
    Algorithm,
    ClientResult,
    Displacement,
    Public,
    fed_dual_avg,
    mean_gradient,
    takes,
)
from fcojax.algorithms.dual_averages import DualPoint, FedDualAvgHparams
from fcojax.algorithms.frame import elapsed
from fcojax.arguments import at_most, validated
from fcojax.problems.losses import Loss
from fcojax.theory.averages import Averaged, average_of_rounds
from fcojax.theory.fco import Constants
from fcojax.transforms import Mirror
from fcojax.types import Count, NonNegative, Params, Positive


class Path(NamedTuple):
    """The displacement of a client's dual, and that of the extrapolated dual at each step."""

    moved: Displacement
    extrapolated: Params


@takes(FedDualAvgHparams, "mirror")
def extrapolated_average(loss: Loss, mirror: Mirror) -> Algorithm:
    r"""FeDualEx, whose model is the average that its theorem bounds.

    .. math:: \hat w = \frac{1}{K R} \sum_{r,k} P_{T_r + \eta_c (k + 1)}\Big(
              \tfrac{1}{M} \sum_m \big(z^m_{r,k} - \eta_c g_m(w^m_{r,k})\big)\Big)

    The average is over primal images of the mean dual, not over the clients' points, so every
    client uploads its whole path, K times the traffic. Every client takes the same K steps.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.

    References:
      Bai and Bullins, 2024, Algorithm 1, line 14, and equation 4.
    """
    averaging, gradient = fed_dual_avg(loss, mirror), mean_gradient(loss)

    def client_update(hparams, message, client, local, key):
        def along(moved, ahead, batch):
            w = averaging.model(hparams, tree.add(message, ahead))
            dual = tree.add_scaled(moved.dual, -hparams.client_lr, gradient(w, batch))
            return DualPoint(dual, moved.elapsed + hparams.client_lr)

        end, path = local.scan(
            lambda moved, batch: along(moved, along(moved, moved, batch), batch),
            tree.zeros_like(message),
            emit=lambda moved, batch: along(moved, moved, batch).dual,
        )
        moved = Displacement(end.dual, Public(elapsed(hparams, local)))
        return ClientResult(client, Path(moved, path), {})

    def server_update(hparams, server, mean_upload, fraction, key):
        before = averaging.broadcast(hparams, server.inner)
        num_steps = jax.tree.leaves(mean_upload.extrapolated)[0].shape[0]
        times = jnp.arange(1, num_steps + 1, dtype=before.elapsed.dtype) * hparams.client_lr

        def primal(moved, time):
            return averaging.model(hparams, tree.add(before, DualPoint(moved, time)))

        points = jax.vmap(primal)(mean_upload.extrapolated, times)
        count = server.count + num_steps
        change = jax.tree.map(lambda all, mean: jnp.mean(all, axis=0) - mean, points, server.mean)
        mean = tree.add_scaled(server.mean, num_steps / count.astype(times.dtype), change)
        moved = mean_upload.moved
        return Averaged(
            averaging.server_update(hparams, server.inner, moved, fraction, key), mean, count
        )

    of_rounds = average_of_rounds(averaging)
    return of_rounds._replace(client_update=client_update, server_update=server_update)


@validated
def gap_bound(
    constants: Constants,
    client_lr: Positive,
    num_steps: Count,
    num_rounds: Count,
    gradient_bound: NonNegative,
) -> float:
    r"""Bound the expected duality gap of the average, at server rate one.

    .. math:: \frac{B}{\eta K R} + 20 \beta^2 \eta^3 K^2 G^2 + \frac{5 \sigma^2 \eta}{M}
              + 2^{3/2} \beta \eta K G B^{1/2}

    Args:
      constants: B bounds every Bregman divergence within the domain; beta, the Lipschitz constant
        of the operator, is the smoothness.
      client_lr: eta, at most 1 / (sqrt(5) beta).
      num_steps: K.
      num_rounds: R.
      gradient_bound: G, a bound on the dual norm of stochastic gradients.

    References:
      Bai and Bullins, 2024, Theorem 1.
    """
    distance, smoothness, variance, num_clients = constants
    at_most("client_lr", client_lr, 1 / (5**0.5 * smoothness))
    drift = client_lr * num_steps * gradient_bound
    return (
        distance / (client_lr * num_steps * num_rounds)
        + 20 * smoothness**2 * client_lr * drift**2
        + 5 * variance * client_lr / num_clients
        + 2**1.5 * smoothness * drift * distance**0.5
    )


@validated
def exact_gap_bound(distance: NonNegative, client_lr: Positive, num_steps: Count) -> float:
    r"""Bound the gap of the average for one client with exact gradients by :math:`B / (\eta T)`.

    Args:
      distance: B.
      client_lr: eta, at most :math:`1 / \beta`.
      num_steps: T.

    References:
      Bai and Bullins, 2024, Theorem 4.
    """
    return distance / (client_lr * num_steps)
