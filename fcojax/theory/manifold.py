r"""Federated learning on manifolds: the quantity that is bounded, and the floor of averaging.

The loss is the clients' mean loss F on a submanifold M. These functions run on the device and are
pure.

Zhang, Hu, So and Johansson, "Nonconvex federated learning on compact smooth submanifolds with
heterogeneous data", NeurIPS 2024.
"""

import dataclasses

import jax
import jax.numpy as jnp

from fcojax import ClientData, tree
from fcojax.arguments import validated
from fcojax.problems import population_loss
from fcojax.problems.losses import Loss
from fcojax.transforms import Manifold, riemannian_gradient
from fcojax.transforms.manifolds.manifold import ambient_norm
from fcojax.types import Array, Count, NonNegative, Params, Positive


@validated
def gradient(loss: Loss, manifold: Manifold, data: ClientData, x: Params) -> Params:
    """Return grad F(x), the Riemannian gradient of the clients' weighted mean loss."""
    euclidean = jax.grad(lambda y: population_loss(loss, y, data))(x)
    return riemannian_gradient(manifold, x, euclidean)


@validated
def stationarity(
    loss: Loss, manifold: Manifold, data: ClientData, x: Params, length: Positive
) -> Array:
    r"""The norm of :math:`G(x) = (x - P(x - \tilde\eta\,\mathrm{grad} F(x))) / \tilde\eta`.

    P is the projection on M and :math:`\tilde\eta = \eta_g \eta K` (``length``) the step of a
    round of K steps. By the theorem, the mean of :math:`|G|^2` over R rounds of ``fed_manifold`` is
    :math:`O(1 / (\tilde\eta R) + \sigma^2 / (M K b))`: with full batches it falls like 1/R, with
    minibatches to a floor proportional to one over clients, steps and batch size
    (``stationarity_bound``).
    On the Stiefel manifold :math:`|g| - \tilde\eta |g|^2 / 2 \le |G| \le |g|` for
    :math:`g = \mathrm{grad} F(x)`.

    Example:
      >>> import fcojax
      >>> data = fcojax.from_clients([jnp.array([[3.0, 4.0]])])
      >>> sphere = fcojax.transforms.sphere()
      >>> loss = lambda x, rows: -rows @ x
      >>> stationarity(loss, sphere, data, jnp.array([0.6, 0.8]), 0.1) < 1e-6
      Array(True, dtype=bool)
    """
    moved = tree.add_scaled(x, -length, gradient(loss, manifold, data, x))
    return ambient_norm(manifold, x, tree.sub(x, manifold.project(moved))) / length


@validated
def stationarity_bound(
    gap: NonNegative,
    length: Positive,
    num_rounds: Count,
    *,
    variance: NonNegative = 0.0,
    num_clients: Count = 1,
    num_steps: Count = 1,
    batch_size: Count = 1,
    leading: tuple[NonNegative, NonNegative] = (8.0, 64.0),
) -> float:
    r"""The right-hand side of the theorem: a bound of the mean of ``stationarity(...)**2``.

    .. math:: \frac{1}{R} \sum_r E |G(x_r)|^2
              \le \frac{a\,(F(x_1) - F^*)}{\tilde\eta R} + \frac{b\,\sigma^2}{M K B}

    over the first R rounds of ``fed_manifold`` with full participation, for small enough rates.
    With :math:`\eta_g = \sqrt{M}` the first term is the published :math:`O(1 / (\sqrt{M} K R
    \eta))`.

    Args:
      gap: :math:`F(x_1) - F^*` at the start.
      length: :math:`\tilde\eta = \eta_g \eta K`, the step of a round.
      num_rounds: R.
      variance: :math:`\sigma^2`, of the gradient of one example; zero for full batches.
      num_clients: M.
      num_steps: K.
      batch_size: B, the examples of a step.
      leading: a and b. The paper's abstract form hides them; 8 and 64 are from a copy of its proof
        that could not be compared with the published one.

    Example:
      >>> stationarity_bound(2.0, 0.1, 100), stationarity_bound(2.0, 0.1, 200)
      (1.6, 0.8)
    """
    start, noise = leading
    gradients = num_clients * num_steps * batch_size
    return start * gap / (length * num_rounds) + noise * variance / gradients


@validated
def drift_floor(
    loss: Loss,
    manifold: Manifold,
    data: ClientData,
    x: Params,
    client_lr: NonNegative,
    num_steps: Count,
) -> Array:
    r"""The gradient norm at the limit of ``r_fed_avg``, to first order in the client rate.

    .. math:: \tfrac{\eta (K - 1)}{2} \Bigl| \sum_m p_m\, \mathrm{Hess} F_m(x)
              [\mathrm{grad} F_m(x)] \Bigr|

    at a stationary point x of F, with full batches, full participation and a server rate of one.
    The sum of a client's K steps is :math:`-\eta K (\mathrm{grad} F_m - \tfrac{\eta (K - 1)}{2}
    \mathrm{Hess} F_m[\mathrm{grad} F_m])`, and the mean of these has to vanish. It is zero for K =
    1 and if all clients are stationary at x.

    The gradient of one client costs a pass over the population's rows, so all cost M passes.

    References:
      Derived here; Li and Ma, "Federated learning on Riemannian manifolds", Appl. Set-Valued Anal.
      Optim. 2023, for the algorithm.
    """

    def drift(weights):
        client = dataclasses.replace(data, weights=weights)

        def slope(y):
            return gradient(loss, manifold, client, y)

        return manifold.to_tangent(x, jax.jvp(slope, (x,), (slope(x),))[1])

    each_alone = jnp.eye(data.num_clients, data.weights.shape[0], dtype=data.weights.dtype)
    drifts = jax.lax.map(drift, each_alone)
    share = data.weights[: data.num_clients] / jnp.sum(data.weights)
    mean = jax.tree.map(lambda rows: jnp.tensordot(share.astype(rows.dtype), rows, 1), drifts)
    return client_lr * (num_steps - 1) / 2 * ambient_norm(manifold, x, mean)
