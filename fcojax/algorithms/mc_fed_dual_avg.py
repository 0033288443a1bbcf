r"""C-FedDualAvg and MC-FedDualAvg: dual averaging in a ball, in stages of falling penalties.

Bao, Crawshaw, Luo and Liu, "Fast composite optimization and statistical recovery in federated
learning", ICML 2022.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Displacement, Public, takes
from fcojax.algorithms.fast_fed_dual_avg import strongly_convex_model
from fcojax.algorithms.local import mean_gradient
from fcojax.algorithms.parts import DualPoint
from fcojax.problems.losses import Loss
from fcojax.transforms.calculus.compose import translated
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, NonNegative, Positive, PyTree


class MCFedDualAvgHparams(NamedTuple):
    r"""Hyperparameters of ``mc_fed_dual_avg``.

    Attributes:
      client_lr: :math:`\eta = 1/\gamma`.
      strong_convexity: mu.
      penalty_scale: the strength of psi in the last stage.
      radius: the radius of the ball in the last stage.
      stage_rounds: the number of rounds of each stage but the last.
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

    Where psi is a set, a stage starts at :math:`\Pi(P_0(\nabla h(c)))`, the projection of c and not
    c itself, which may be outside of the stage's smaller set. The ball keeps its centre c; where it
    is active the model may be outside of the set.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      penalty_factors: multiples of ``penalty_scale``, one per stage; radii double from each stage
        to the one before it.
      ball: a set such as ``l1_ball()`` or ``nuclear_ball()``; none by default.

    Example:
      >>> import fcojax, jax, numpy as np
      >>> from fcojax.transforms import euclidean, l1
      >>> data = fcojax.from_rows({"a": np.array([2.0, 4.0])}, [1, 1])
      >>> algorithm = fcojax.algorithms.mc_fed_dual_avg(
      ...     lambda w, rows: (w - rows["a"]) ** 2 / 2, euclidean(l1()), penalty_factors=(4.0, 1.0))
      >>> hparams = algorithm.hparams_type(0.1, strong_convexity=1.0, penalty_scale=0.5)
      >>> plan, key = fcojax.local_steps(3), jax.random.key(0)
      >>> for num_rounds in (250, 500):  # a stage of strength 2, then one of strength 0.5
      ...     w, _ = fcojax.run(
      ...         algorithm, hparams, jnp.array(0.0), data, key, plan, num_rounds=num_rounds)
      ...     print(round(float(w), 2))
      1.01
      2.5
    """
    factors, gradient = tuple(map(float, penalty_factors)), mean_gradient(loss)
    if not factors or min(factors) < 0:
        raise ValueError(f"penalty_factors is {factors}; pass one number of at least 0 per stage.")
    last = len(factors) - 1

    def read(hparams, point, centre, stage):
        scale = hparams.penalty_scale * jnp.asarray(factors, point.elapsed.dtype)[stage]
        w = strongly_convex_model(mirror, hparams, point.dual, point.elapsed, scale)
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
