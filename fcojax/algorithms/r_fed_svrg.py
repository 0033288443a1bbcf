r"""RFedSVRG: local Riemannian steps with variance reduction, in two exchanges a round.

Li and Ma, "Federated learning on Riemannian manifolds", Applied Set-Valued Analysis and
Optimization 2023 (arXiv 2206.05668).
"""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, takes
from fcojax.algorithms.riemannian import MapNames, RFedAvgHparams, gradient_on, maps_of
from fcojax.problems.losses import Loss
from fcojax.transforms.manifolds.manifold import Manifold, transport
from fcojax.types import Array, Params
from fcojax.xla.loops import cond_unbatched


class Anchored(NamedTuple):
    """The server's state.

    Attributes:
      point: the model x.
      slope: G, the mean of the clients' full gradients at x.
      stepping: whether clients take steps in this round, or send gradients at x.
    """

    point: Params
    slope: Params
    stepping: Array


class PhaseMessage(NamedTuple):
    """The message: x in rounds that collect gradients, G in rounds of local steps."""

    content: Params
    stepping: Array


class Anchor(NamedTuple):
    """A client's state between the two rounds: x and its own gradient at x."""

    point: Params
    slope: Params


@takes(RFedAvgHparams, "manifold")
def r_fed_svrg(loss: Loss, manifold: Manifold, *, maps: MapNames = "retraction") -> Algorithm:
    r"""RFedAvg with variance reduced gradients: one round of it is **two** rounds of the engine.

    In even rounds, counted from zero, clients send :math:`\mathrm{grad} f_m(x)` with all of their
    examples and the server takes the mean G; in odd ones they step,

    .. math:: z^m_{k+1} = R_{z^m_k}\Bigl(-\eta\,\bigl(\mathrm{grad} f(z^m_k; \xi^m_k)
                          - P_{z^m_k}(\mathrm{grad} f(x; \xi^m_k) - G)\bigr)\Bigr),

    and the server averages as in RFedAvg. Each round sends one array up and one down, so the
    traffic is twice that of RFedAvg; the model changes in odd rounds only. Clients need the x of
    the round before, so everyone takes part, or a cohort that is held for both rounds, as with
    ``held(sampler, rounds=2)``. With everyone and full batches there is no drift floor.

    Args:
      loss: one loss per example.
      manifold: M; the start point is projected on it.
      maps: R and its inverse, ``"geodesic"``, ``"retraction"`` or ``"projection"``; see
        ``r_fed_avg``.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> loss = lambda x, rows: -((rows["a"] @ x) ** 2) / 2
      >>> algorithm = fcojax.algorithms.r_fed_svrg(loss, fcojax.transforms.sphere())
      >>> server, client = algorithm.init(algorithm.hparams_type(), jnp.array([0.0, 4.0]))
      >>> server.point.tolist(), bool(server.stepping)  # the first round sends gradients
      ([0.0, 1.0], False)
    """
    move, back = maps_of(manifold, maps)
    gradient = gradient_on(manifold, loss)

    def init(hparams, params):
        point = manifold.project(params)
        slope = tree.zeros_like(point)
        return Anchored(point, slope, jnp.zeros((), bool)), Anchor(point, slope)

    def broadcast(hparams, server):
        return PhaseMessage(
            tree.where(server.stepping, server.slope, server.point), server.stepping
        )

    def client_update(hparams, message, client, local, key):
        def steps():
            def step(z, batch):
                at_anchor = client.slope
                if local.work.batch_size is not None:
                    at_anchor = gradient(client.point, batch)
                difference = tree.sub(at_anchor, message.content)
                transported = transport(manifold, client.point, z, difference)
                slope = tree.sub(gradient(z, batch), transported)
                return move(z, tree.scale(-hparams.client_lr, slope))

            return client, back(client.point, local.scan(step, client.point))

        def slopes():
            slope = gradient(message.content, local.full())
            return Anchor(message.content, slope), slope

        state, upload = cond_unbatched(message.stepping, steps, slopes)
        return ClientResult(state, upload, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        moved = move(server.point, tree.scale(hparams.server_lr, mean_upload))
        return Anchored(
            tree.where(server.stepping, moved, server.point),
            tree.where(server.stepping, server.slope, mean_upload),
            ~server.stepping,
        )

    def model(hparams, server):
        return server.point

    return Algorithm(
        init,
        broadcast,
        client_update,
        server_update,
        model,
        needs_everyone="or held",
        codecs="without feedback",
    )
