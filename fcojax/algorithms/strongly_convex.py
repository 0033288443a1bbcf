r"""Dual averaging that uses strong convexity: Fast-FedDualAvg, and MC-FedDualAvg in stages.

Bao, Crawshaw, Luo and Liu, "Fast composite optimization and statistical recovery in federated
learning", ICML 2022, and the authors' code.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Displacement, Public, takes
from fcojax.algorithms.dual_averages import DualPoint
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.calculus.compose import translated
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, NonNegative, Params, Positive, PyTree, Real, Scalar


class FastFedDualAvgHparams(NamedTuple):
    r"""``client_lr`` is :math:`\eta = 1/\gamma`, ``strong_convexity`` is mu.

    ``weight_power`` and ``weight_shift`` are p and a of the weights :math:`a_t = (t + a)^p`, and
    ``penalty_scale`` is the strength of psi.
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


def _model(mirror: Mirror, hparams: Any, dual: Params, elapsed: Array, scale: Scalar) -> Params:
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
    The paper sends the sums of gradients and of points separately; only z is needed.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      end_points: also count a client's last point, as the authors' code for the lasso does. That
        makes K + 1 points for K gradients, and the limit instead solves :math:`\nabla F(w) + s =
        \tfrac{\mu}{2 K} \nabla h(w)` with s a subgradient of psi.

    Example:
      >>> import fcojax
      >>> from fcojax.transforms import euclidean, l1
      >>> algorithm = fcojax.algorithms.fast_fed_dual_avg(None, euclidean(l1()))
      >>> hparams = algorithm.hparams_type(0.1, strong_convexity=1.0, weight_power=1.0)
    """
    gradient = mean_gradient(loss)

    def read(hparams, point):
        return _model(mirror, hparams, point.dual, point.elapsed, hparams.penalty_scale)

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


class MCFedDualAvgHparams(NamedTuple):
    r"""``client_lr`` is :math:`\eta = 1/\gamma`, ``strong_convexity`` is mu.

    ``penalty_scale`` and ``radius`` are the strength of psi and the radius of the ball in the last
    stage, ``stage_rounds`` the number of rounds of each stage but the last.
    """

    client_lr: Positive = 0.01
    strong_convexity: NonNegative = 0.1
    penalty_scale: NonNegative = 0.1
    radius: NonNegative = 1e4
    stage_rounds: NonNegative = 250.0


class Stage(NamedTuple):
    """The sums of a stage, the centre of its ball (``()`` without a ball), and the round."""

    point: DualPoint
    residue: DualPoint
    centre: PyTree
    round: Array


@takes(MCFedDualAvgHparams, "mirror")
def mc_fed_dual_avg(
    loss: Loss,
    mirror: Mirror,
    *,
    penalty_factors: Sequence[float] = (1.0,),
    ball: Penalty | None = None,
) -> Algorithm:
    r"""Constrained federated dual averaging in stages; with one, the default, C-FedDualAvg.

    A stage starts at the last model c of the stage before: :math:`z = \nabla h(c), T = 0`. A round
    first adds the terms of the server's point w for all K steps; then clients sum gradients:

    .. math::
       z &\leftarrow z + \tfrac{\mu}{2} \eta K \nabla h(w), \qquad T \leftarrow T + \eta K, \qquad
       w_0 = w \\
       z_{k+1} &= z_k - \eta \nabla f(w_k; \xi_k), \qquad
       w_{k+1} = \Pi\big(P_{T / b}(z_{k+1} / b)\big), \quad b = 1 + \mu T / 2,

    with :math:`P_t` the mirror step of ``mirror`` and :math:`\Pi` the projection on the ball around
    c. The server averages z and T, and computes its model from them in the same way. Where the ball
    is active, that is not the minimiser over it; we follow the authors' code. The last stage does
    not end; rounds without uploads do not count. A round of K steps takes K + 1 proxes on a client.

    Where psi is a set, a stage starts at the projection of c, which may be outside of the stage's
    smaller set. The ball keeps its centre c; where it is active the model may be outside too.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      penalty_factors: multiples of ``penalty_scale``, one per stage; radii double from each stage
        to the one before it.
      ball: a set such as ``l1_ball()`` or ``nuclear_ball()``; none by default.

    Example:
      >>> import fcojax
      >>> from fcojax.transforms import euclidean, l1, l1_ball
      >>> algorithm = fcojax.algorithms.mc_fed_dual_avg(
      ...     None, euclidean(l1()), penalty_factors=(4.0, 1.0), ball=l1_ball())
      >>> hparams = algorithm.hparams_type(0.1, radius=0.5, stage_rounds=100.0)
    """
    factors, gradient = tuple(map(float, penalty_factors)), mean_gradient(loss)
    if not factors or min(factors) < 0:
        raise ValueError(f"penalty_factors is {factors}; pass one number of at least 0 per stage.")
    last = len(factors) - 1

    def read(hparams, point, centre, stage):
        scale = hparams.penalty_scale * jnp.asarray(factors, point.elapsed.dtype)[stage]
        w = _model(mirror, hparams, point.dual, point.elapsed, scale)
        if ball is None:
            return w
        radius = hparams.radius * 2.0 ** (last - stage).astype(point.elapsed.dtype)
        return translated(ball, centre).prox(w, 0.0, radius)

    def stage_of(hparams, index):
        length = jnp.maximum(jnp.asarray(hparams.stage_rounds), 1)
        return jnp.minimum(index.astype(length.dtype) // length, last).astype(jnp.int32)

    def fresh(hparams, params, index):
        point = DualPoint(mirror.to_dual(params), jnp.zeros_like(jnp.asarray(hparams.client_lr)))
        return Stage(point, tree.zeros_like(point), () if ball is None else params, index)

    def init(hparams, params):
        return fresh(hparams, params, jnp.zeros((), jnp.int32)), ()

    def broadcast(hparams, server):
        return server.point, server.centre, stage_of(hparams, server.round)

    def client_update(hparams, message, client, local, key):
        point, *stage = message
        w = read(hparams, *message)
        elapsed = local.num_steps.astype(point.elapsed.dtype) * hparams.client_lr
        shift = tree.scale(0.5 * hparams.strong_convexity * elapsed, mirror.to_dual(w))

        def step(carry, batch):
            w, moved = carry
            moved = tree.add_scaled(moved, -hparams.client_lr, gradient(w, batch))
            return read(hparams, tree.add(point, DualPoint(moved, elapsed)), *stage), moved

        _, moved = local.scan(step, (w, shift))
        return ClientResult(client, Displacement(moved, Public(elapsed)), {})

    def server_update(hparams, server, mean_upload, fraction, key):
        increment = DualPoint(mean_upload.params, mean_upload.elapsed.value)
        sums = tree.add_compensated(server.point, server.residue, 1, increment)
        after = Stage(*sums, server.centre, server.round + 1)
        now, then = (stage_of(hparams, state.round) for state in (server, after))
        reached = read(hparams, after.point, server.centre, now)
        return tree.where(then > now, fresh(hparams, reached, after.round), after)

    def model(hparams, server):
        return read(hparams, server.point, server.centre, stage_of(hparams, server.round))

    return Algorithm(init, broadcast, client_update, server_update, model)
