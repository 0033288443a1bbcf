r"""C-FedDualAvg and MC-FedDualAvg: dual averaging in a ball, in stages of falling penalties.

Bao et al., "Fast composite optimization and statistical recovery in federated learning", 2022.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Public, takes
from fcojax.algorithms.fast_fed_dual_avg import read_strongly
from fcojax.algorithms.fed_dual_avg import Displacement, DualPoint
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.problem import Loss
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, PyTree, Scalar


class StagedRates(NamedTuple):
    r""":math:`\eta = 1/\gamma`; mu; strength and radius of the last stage; length of others."""

    client_lr: Scalar = 0.01
    strong_convexity: Scalar = 0.1
    penalty_scale: Scalar = 0.1
    radius: Scalar = 1e4
    stage_rounds: Scalar = 250.0


class Stage(NamedTuple):
    """The sums of a stage, the centre of its ball (if there is one), and the round of the run."""

    point: DualPoint
    residue: DualPoint
    centre: PyTree
    round: Array


@takes(StagedRates, "mirror")
def mc_fed_dual_avg(
    loss: Loss,
    mirror: Mirror,
    *,
    penalty_factors: Sequence[float] = (1.0,),
    ball: Penalty | None = None,
) -> Algorithm:
    r"""Constrained federated dual averaging in stages; by default one, which is C-FedDualAvg.

    A stage starts at the model c of the last: :math:`z = \nabla h(c), T = 0`. A round first counts
    the server's point w for all K steps ahead; then clients add up gradients:

    .. math::
       z &\leftarrow z + \tfrac{\mu}{2} \eta K \nabla h(w), \qquad T \leftarrow T + \eta K, \qquad
       w_0 = w \\
       z_{k+1} &= z_k - \eta \nabla f(w_k; \xi_k), \qquad
       w_{k+1} = \Pi\big(P_{T / b}(z_{k+1} / b)\big), \quad b = 1 + \mu T / 2,

    with :math:`P_t` the mirror step of ``mirror`` and :math:`\Pi` the projection on the ball around
    c. The server averages z and T, and reads its model from them in the same way. Where the ball
    binds, that is not the minimiser over it, but it is what the authors' code does. The last stage
    goes on for ever; rounds without uploads do not count.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      penalty_factors: times ``penalty_scale``, by stage; radii are 1, 2, 4... from the last one on.
      ball: as in ``l1_ball()`` or ``nuclear_ball()``; none by default.

    Example:
      >>> import fcojax
      >>> subject = fcojax.check.subject_of(fcojax.algorithms.mc_fed_dual_avg)
      >>> fcojax.check.facts(subject).client_proxes  # of ten local steps, and of the start
      11
    """
    factors, gradient = tuple(map(float, penalty_factors)), mean_gradient(loss)
    if not factors or min(factors) < 0:
        raise ValueError(f"penalty_factors is {factors}; pass one factor of at least 0 a stage.")
    last = len(factors) - 1

    def read(hparams, point, centre, stage):
        scale = hparams.penalty_scale * jnp.asarray(factors, point.elapsed.dtype)[stage]
        w = read_strongly(mirror, hparams, point.dual, point.elapsed, scale)
        if ball is None:
            return w
        radius = hparams.radius * 2.0 ** (last - stage).astype(point.elapsed.dtype)
        return tree.add(centre, ball.prox(tree.sub(w, centre), 0.0, radius))

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
        ahead = tree.scale(0.5 * hparams.strong_convexity * elapsed, mirror.to_dual(w))

        def step(carry, batch):
            w, moved = carry
            moved = tree.add_scaled(moved, -hparams.client_lr, gradient(w, batch))
            return read(hparams, tree.add(point, DualPoint(moved, elapsed)), *stage), moved

        _, moved = local.scan(step, (w, ahead))
        return ClientResult(client, Displacement(moved, Public(elapsed)), {})

    def server_update(hparams, server, mean_upload, cohort, key):
        increment = DualPoint(mean_upload.dual, mean_upload.elapsed.value)
        sums = tree.add_compensated(server.point, server.residue, 1, increment)
        after = Stage(*sums, server.centre, server.round + 1)
        now, then = (stage_of(hparams, state.round) for state in (server, after))
        reached = read(hparams, after.point, server.centre, now)
        return tree.where(then > now, fresh(hparams, reached, after.round), after)

    def model(hparams, server):
        return read(hparams, server.point, server.centre, stage_of(hparams, server.round))

    return Algorithm(init, broadcast, client_update, server_update, model)
