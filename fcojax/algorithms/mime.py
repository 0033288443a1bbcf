r"""Mime: local steps that mimic a centralised method, in two exchanges a round.

Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich and Suresh, "Breaking the centralized barrier for
cross-device federated learning", NeurIPS 2021 (arXiv 2008.03606), written from memory.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.algorithms.r_fed_svrg import Anchor, PhaseMessage
from fcojax.problems.losses import Loss
from fcojax.transforms.penalties.l1 import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, NonNegative, Params, Positive, Probability
from fcojax.xla.loops import cond_unbatched


class MimeHparams(NamedTuple):
    r"""``client_lr`` is eta_c, ``server_lr`` eta_s, ``momentum`` beta, in [0, 1).

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    momentum: Probability = 0.0
    penalty_scale: NonNegative = 0.1


class MimeServer(NamedTuple):
    """The model w, the momentum s, and whether clients take steps in this round."""

    point: Params
    momentum: Params
    stepping: Array


@takes(MimeHparams, "penalty")
def mime(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""Corrected local steps with the momentum of the server: one round is **two** of the engine.

    In even rounds, counted from zero, clients send :math:`\nabla f_i(w)` with all of their examples
    and the server updates the momentum, :math:`s \leftarrow (1 - \beta) \sum_i p_i \nabla f_i(w) +
    \beta s`. In odd ones they take K steps from w, with s held fixed,

    .. math:: x_i \leftarrow \mathrm{prox}_{\eta_c \psi}\Big(x_i - \eta_c \big((1 - \beta)
              (\nabla f_i(x_i; \xi) - \nabla f_i(w; \xi)) + s\big)\Big),

    and :math:`w \leftarrow w + \eta_s \sum_i p_i (x_i - w)`. Without momentum, the default, this is
    MimeSVRG, whose correction is FedLin's: exact with full batches, and if clients' Hessians are
    similar a round replaces many steps of gradient descent. Both exchanges send one vector each
    way. With ``held(sampler, rounds=2)`` both exchanges of a round have the same cohort; then it is
    exact if the clients share a minimiser, and otherwise the noise of the cohorts' gradients stops
    convergence, as in stochastic gradient descent.

    Args:
      loss: one loss per example.
      penalty: psi, applied after each local step; none by default.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> algorithm = fcojax.algorithms.mime(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> server, client = algorithm.init(algorithm.hparams_type(momentum=0.9), jnp.zeros(2))
      >>> bool(server.stepping), algorithm.needs_everyone  # the first round sends gradients
      (False, 'or held')
    """
    gradient, penalty = mean_gradient(loss), penalty or zero()

    def init(hparams, params):
        zeros = tree.zeros_like(params)
        return MimeServer(params, zeros, jnp.zeros((), bool)), Anchor(params, zeros)

    def broadcast(hparams, server):
        content = tree.where(server.stepping, server.momentum, server.point)
        return PhaseMessage(content, server.stepping)

    def client_update(hparams, message, client, local, key):
        def steps():
            def step(x, batch):
                at_start = client.slope
                if local.work.batch_size is not None:
                    at_start = gradient(client.point, batch)
                change = tree.sub(gradient(x, batch), at_start)
                slope = tree.add_scaled(message.content, 1 - hparams.momentum, change)
                x = tree.add_scaled(x, -hparams.client_lr, slope)
                return penalty.prox(x, hparams.client_lr, hparams.penalty_scale)

            return client, tree.sub(local.scan(step, client.point), client.point)

        def slopes():
            slope = gradient(message.content, local.full())
            return Anchor(message.content, slope), slope

        state, upload = cond_unbatched(message.stepping, steps, slopes)
        return ClientResult(state, upload, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        moved = tree.add_scaled(server.point, hparams.server_lr, mean_upload)
        kept = tree.scale(hparams.momentum, server.momentum)
        momentum = tree.add_scaled(kept, 1 - hparams.momentum, mean_upload)
        return MimeServer(
            tree.where(server.stepping, moved, server.point),
            tree.where(server.stepping, server.momentum, momentum),
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
