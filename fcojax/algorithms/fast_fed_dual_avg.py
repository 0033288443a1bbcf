r"""Fast-FedDualAvg: dual averaging for strongly convex losses.

Bao, Crawshaw, Luo and Liu, "Fast composite optimization and statistical recovery in federated
learning", ICML 2022, and the authors' code.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Displacement, Public, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.types import Array, NonNegative, Params, Positive, Real, Scalar


class FastFedDualAvgHparams(NamedTuple):
    r"""Hyperparameters of ``fast_fed_dual_avg``.

    Attributes:
      client_lr: :math:`\eta = 1/\gamma`.
      strong_convexity: mu.
      weight_power: p of the weights :math:`a_t = (t + a)^p`.
      weight_shift: a of these weights.
      penalty_scale: the strength of psi.
    """

    client_lr: Positive = 0.01
    strong_convexity: NonNegative = 0.1
    weight_power: Real = 0.0
    weight_shift: Real = 1.0
    penalty_scale: NonNegative = 0.1


class WeightedPoint(NamedTuple):
    """A dual point z, the weight T of psi, and the number t of local steps so far."""

    dual: Params
    elapsed: Array
    step: Array


class Sums(NamedTuple):
    """The server's sums, and their rounding errors so far."""

    point: WeightedPoint
    residue: WeightedPoint


def strongly_convex_model(
    mirror: Mirror, hparams: Any, dual: Params, elapsed: Array, scale: Scalar
) -> Params:
    r"""The minimiser of :math:`(1 + \mu T / 2) h(w) + T \psi(w) - \langle z, w \rangle`."""
    total = 1 + 0.5 * hparams.strong_convexity * elapsed
    return mirror.to_primal(tree.scale(1 / total, dual), elapsed / total, scale)


@takes(FastFedDualAvgHparams, "mirror")
def fast_fed_dual_avg(loss: Loss, mirror: Mirror, *, end_points: bool = False) -> Algorithm:
    r"""Fast federated dual averaging, with :math:`P_t` the mirror step of ``mirror``.

    The server's :math:`(z, T, t)` starts at :math:`(\nabla h(w_0), 0, 0)`. A local step is

    .. math::
       w &= P_{T / b}(z / b), \quad b = 1 + \mu T / 2, \qquad
       z \leftarrow z + \eta a_t \big(\tfrac{\mu}{2} \nabla h(w) - \nabla f(w; \xi)\big), \\
       T &\leftarrow T + \eta a_t, \qquad t \leftarrow t + 1,

    the server averages all three, and the model is :math:`P_{T / b}(z / b)`: the minimiser of

    .. math:: \sum_t a_t \big(\langle g_t, w \rangle + \tfrac{\mu}{2} D_h(w, w_t)\big)
              + \tfrac{T}{\eta} \psi(w) + \tfrac{1}{\eta} D_h(w, w_0).

    So psi keeps its weight relative to the sum of gradients, and the steps shrink like 1 / (mu T):
    the limit is the minimiser of F + psi, at a rate of one over the rounds for equal weights; steps
    are stable for :math:`\eta \le 1 / (2 K L)`. With ``strong_convexity`` 0 this is FedDualAvg.
    The paper sends the sums of gradients and of points separately; only z is needed. A local step
    takes one prox.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      end_points: also count a client's last point, as the authors' code for the lasso does. That
        makes K + 1 points for K gradients, and the limit instead solves :math:`\nabla F(w) + s =
        \tfrac{\mu}{2 K} \nabla h(w)` with s a subgradient of psi.

    Example:
      >>> import fcojax, jax, numpy as np
      >>> from fcojax.transforms import euclidean, l1
      >>> data = fcojax.from_rows({"a": np.array([2.0, 4.0])}, [1, 1])
      >>> algorithm = fcojax.algorithms.fast_fed_dual_avg(
      ...     lambda w, rows: (w - rows["a"]) ** 2 / 2, euclidean(l1()))
      >>> hparams = algorithm.hparams_type(0.1, strong_convexity=1.0, penalty_scale=0.5)
      >>> plan, key = fcojax.local_steps(3), jax.random.key(0)
      >>> w, _ = fcojax.run(algorithm, hparams, jnp.array(0.0), data, key, plan, num_rounds=300)
      >>> round(float(w), 2)  # the mean of 2 and 4, soft thresholded at 0.5
      2.5
    """
    gradient = mean_gradient(loss)

    def read(hparams, point):
        return strongly_convex_model(
            mirror, hparams, point.dual, point.elapsed, hparams.penalty_scale
        )

    def init(hparams, params):
        zero = jnp.zeros_like(jnp.asarray(hparams.client_lr))
        point = WeightedPoint(mirror.to_dual(params), zero, zero)
        return Sums(point, tree.zeros_like(point)), ()

    def broadcast(hparams, server):
        return server.point

    def client_update(hparams, message, client, local, key):
        def prox_term(point, w):
            length = hparams.client_lr * (point.step + hparams.weight_shift) ** hparams.weight_power
            return length, tree.scale(0.5 * hparams.strong_convexity * length, mirror.to_dual(w))

        def step(moved, batch):
            at = tree.add(message, moved)
            w = read(hparams, at)
            length, towards = prox_term(at, w)
            dual = tree.add_scaled(tree.add(moved.dual, towards), -length, gradient(w, batch))
            return WeightedPoint(dual, moved.elapsed + length, moved.step + 1)

        end = local.scan(step, tree.zeros_like(message))
        if end_points:
            at = tree.add(message, end)
            end = end._replace(dual=tree.add(end.dual, prox_term(at, read(hparams, at))[1]))
        return ClientResult(client, Displacement(end.dual, Public(end[1:])), {})

    def server_update(hparams, server, mean_upload, fraction, key):
        increment = WeightedPoint(mean_upload.params, *mean_upload.elapsed.value)
        return Sums(*tree.add_compensated(server.point, server.residue, 1, increment))

    def model(hparams, server):
        return read(hparams, server.point)

    return Algorithm(init, broadcast, client_update, server_update, model)
