r"""Fast-FedDualAvg: dual averaging that makes use of strong convexity.

Bao, Crawshaw, Luo and Liu, "Fast composite optimization and statistical recovery in federated
learning", ICML 2022, and the code that goes with it.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Public, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.problem import Loss
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.types import Array, Params, Scalar


class StronglyConvexRates(NamedTuple):
    r""":math:`\eta = 1/\gamma`; mu; p and a of weights :math:`a_t = (t + a)^p`; psi's strength."""

    client_lr: Scalar = 0.01
    strong_convexity: Scalar = 0.1
    weight_power: Scalar = 0.0
    weight_shift: Scalar = 1.0
    penalty_scale: Scalar = 0.1


class Weighed(NamedTuple):
    """A dual point z, the weight T of psi behind it, and how many local steps t led to it."""

    dual: Params
    elapsed: Array
    step: Array


class Displacement(NamedTuple):
    """What a client sends: how far its dual moved, and by how much T and t grew."""

    dual: Params
    counts: Public


class Sums(NamedTuple):
    """The server's sums, and what rounding has left out of them so far."""

    point: Weighed
    residue: Weighed


def read_strongly(mirror: Mirror, hparams, dual: Params, elapsed: Array, scale: Scalar) -> Params:
    r"""The minimiser of :math:`(1 + \mu T / 2) h(w) + T \psi(w) - \langle z, w \rangle`."""
    total = 1 + 0.5 * hparams.strong_convexity * elapsed
    return mirror.to_primal(tree.scale(1 / total, dual), elapsed / total, scale)


@takes(StronglyConvexRates, "mirror")
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

    So psi keeps its weight against the sum of all gradients, and the steps shrink like 1 / (mu T):
    the limit is the minimiser of F + psi, at a rate of one over the rounds for equal weights; they
    are stable for :math:`\eta \le 1 / (2 K L)`. With ``strong_convexity`` 0 this is FedDualAvg.
    The paper sends the sum of gradients and the sum of points apart; only z is ever needed.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      end_points: counts also the point where a client ends, as the authors' code for the lasso
        does. These are K + 1 points against K gradients, and the limit solves
        :math:`\nabla F(w) + s = \tfrac{\mu}{2 K} \nabla h(w)`, s a subgradient of psi, instead.

    Example:
      >>> import fcojax
      >>> subject = fcojax.check.subject_of(fcojax.algorithms.fast_fed_dual_avg)
      >>> fcojax.check.facts(subject).client_proxes  # one for each of ten local steps
      10
    """
    gradient = mean_gradient(loss)

    def read(hparams, point):
        return read_strongly(mirror, hparams, point.dual, point.elapsed, hparams.penalty_scale)

    def init(hparams, params):
        zero = jnp.zeros_like(jnp.asarray(hparams.client_lr))
        point = Weighed(mirror.to_dual(params), zero, zero)
        return Sums(point, tree.zeros_like(point)), ()

    def broadcast(hparams, server):
        return server.point

    def client_update(hparams, message, client, local, key):
        def pull(point, w):
            length = hparams.client_lr * (point.step + hparams.weight_shift) ** hparams.weight_power
            return length, tree.scale(0.5 * hparams.strong_convexity * length, mirror.to_dual(w))

        def step(moved, batch):
            at = tree.add(message, moved)
            w = read(hparams, at)
            length, towards = pull(at, w)
            dual = tree.add_scaled(tree.add(moved.dual, towards), -length, gradient(w, batch))
            return Weighed(dual, moved.elapsed + length, moved.step + 1)

        end = local.scan(step, tree.zeros_like(message))
        if end_points:
            at = tree.add(message, end)
            end = end._replace(dual=tree.add(end.dual, pull(at, read(hparams, at))[1]))
        return ClientResult(client, Displacement(end.dual, Public(end[1:])), {})

    def server_update(hparams, server, mean_upload, cohort, key):
        increment = Weighed(mean_upload.dual, *mean_upload.counts.value)
        return Sums(*tree.add_compensated(server.point, server.residue, 1, increment))

    def model(hparams, server):
        return read(hparams, server.point)

    return Algorithm(init, broadcast, client_update, server_update, model)
