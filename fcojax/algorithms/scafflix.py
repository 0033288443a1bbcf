r"""FLIX and Scafflix: clients use a mixture of a common model and the model that they learn alone.

Gasanov, Khaled, Horvath and Richtarik, "FLIX: a simple and communication-efficient alternative to
local methods in federated learning", AISTATS 2022, for the problem. Yi, Condat and Richtarik,
"Explicit personalization and local training: double communication acceleration in federated
learning", TMLR 2025 (arXiv 2305.13170), for the method.
"""

from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Public, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.arguments import checked_value
from fcojax.problems.losses import Loss
from fcojax.transforms.penalties.l1 import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, NonNegative, Numbers, Params, Positive

Mixture = Annotated[
    Any, Numbers("a number from 0 to 1", lambda values: (values >= 0) & (values <= 1))
]


class ScafflixHparams(NamedTuple):
    r"""``client_lr`` is gamma, ``share`` is :math:`\alpha`, ``penalty_scale`` the strength of psi.

    A share of 1 is the ordinary problem; with 0 clients use only their own models.
    """

    client_lr: Positive = 0.01
    share: Mixture = 0.5
    penalty_scale: NonNegative = 0.1


class ScafflixServer(NamedTuple):
    """The model x, and the means over all clients of their ``Anchor``."""

    center: Params
    point: Params
    inverse: Array


class Anchor(NamedTuple):
    """A client's b_i divided by its step factor, and one divided by the factor."""

    point: Params
    inverse: Array


class ScafflixClient(NamedTuple):
    """A client's anchor, which holds its control variate, and the model that it learns alone."""

    anchor: Anchor
    model: Params


class AnchorUpdate(NamedTuple):
    """The change of a client's anchor, and the number of its steps."""

    point: Params
    inverse: Public
    num_steps: Public


@takes(ScafflixHparams, "penalty")
def scafflix(
    loss: Loss, penalty: Penalty | None = None, *, step_factors: tuple[float, ...] | None = None
) -> Algorithm:
    r"""The minimiser of the mean loss of mixtures plus psi, and the mixtures.

    .. math:: \min_x \sum_i p_i f_i(\alpha x + (1 - \alpha) x_i^*) + \psi(x), \qquad
              x_i^* = \arg\min f_i + \psi

    It is ``prox_skip`` on this problem, whose gradients are :math:`\alpha \nabla f_i` at the
    mixture, with a step :math:`\gamma_i = \gamma \phi_i` of each client, and

    .. math:: x^+ = \mathrm{prox}_{\delta \psi} \Big(\delta \sum_i p_i b_i / \delta_i\Big), \qquad
              \delta_i = K \gamma_i, \qquad 1/\delta = \sum_i p_i / \delta_i,

    so the server weights a client by the inverse of its step. Clients of a small smoothness
    constant can so take long steps. In the papers :math:`x_i^*` is computed before the first round
    and there is no psi; here a client takes, in each of its rounds, K proximal gradient steps
    towards it beside those on x. It is exact with any cohort, as ``prox_skip`` is. Mixtures are
    read by ``fcojax.personal.read_models``.

    Args:
      loss: one loss per example.
      penalty: psi; none by default.
      step_factors: :math:`\phi_i`, one for each client, such as the inverses of their smoothness
        constants divided by the largest inverse; by default all are 1, which is FLIX.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_clients([{"a": np.zeros(1)}, {"a": 4 * np.ones(1)}])
      >>> algorithm = fcojax.algorithms.scafflix(lambda x, rows: (x - rows["a"]) ** 2 / 2)
      >>> hparams = algorithm.hparams_type(client_lr=0.5, share=0.25)
      >>> plan = fcojax.local_steps(5)
      >>> state = fcojax.start(algorithm, hparams, jnp.array(0.0), data, jax.random.key(0), plan)
      >>> state, _ = fcojax.advance(algorithm, hparams, state, data, plan, num_rounds=100)
      >>> print(fcojax.personal.read_models(algorithm, hparams, state).round(2))  # x is 2
      [0.5 3.5]
    """
    gradient, penalty = mean_gradient(loss), penalty or zero()
    for factor in step_factors or ():
        # A client of step zero would send NaN, which the engine does not count.
        checked_value("step_factors", factor, Positive)

    def mixture(hparams, x, own):
        return tree.add_scaled(tree.scale(hparams.share, x), 1 - hparams.share, own)

    def init(hparams, params):
        one = jnp.ones_like(jnp.asarray(hparams.client_lr))
        # A client that has not taken part counts with a factor of 1.
        return ScafflixServer(params, params, one), ScafflixClient(Anchor(params, one), params)

    def broadcast(hparams, server):
        return server.center

    def client_update(hparams, message, client, local, key):
        if not local.all_steps_equal:
            raise ValueError(
                "clients take different numbers of steps, but scafflix needs equal numbers; pass "
                "local_steps(K)."
            )
        rate, old = jnp.asarray(hparams.client_lr), client.anchor
        factor = jnp.ones_like(rate)
        if step_factors is not None:
            factor = jnp.asarray(step_factors, rate.dtype)[local.client]
        rate, num_steps = rate * factor, local.num_steps.astype(rate.dtype)
        # b_i = x - delta_i h_i, as in prox_skip.
        control = tree.scale(
            1 / (rate * num_steps), tree.add_scaled(message, -1 / old.inverse, old.point)
        )

        def step(carry, batch):
            x, own = carry
            # Towards the client's model of the last round, not the one that moves.
            slope = gradient(mixture(hparams, x, client.model), batch)
            slope = tree.sub(tree.scale(hparams.share, slope), control)
            alone = tree.add_scaled(own, -rate, gradient(own, batch))
            alone = penalty.prox(alone, rate, hparams.penalty_scale)
            return tree.add_scaled(x, -rate, slope), alone

        end, own = local.scan(step, (message, client.model))
        moved = tree.add_scaled(tree.sub(end, message), 1 / old.inverse, old.point)
        anchor = Anchor(tree.scale(1 / factor, moved), 1 / factor)
        change = tree.sub(anchor, old)
        upload = AnchorUpdate(change.point, Public(change.inverse), Public(num_steps))
        return ClientResult(ScafflixClient(anchor, own), upload, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        change = mean_upload.inverse.value
        inverse = server.inverse + change
        target = tree.scale(1 / inverse, tree.add(server.point, mean_upload.point))
        step = hparams.client_lr * mean_upload.num_steps.value / inverse
        return ScafflixServer(
            penalty.prox(target, step, hparams.penalty_scale),
            tree.add_scaled(server.point, fraction, mean_upload.point),
            server.inverse + fraction * change,
        )

    def model(hparams, server):
        return server.center

    def client_model(hparams, message, client):
        return mixture(hparams, message, client.model)

    return Algorithm(
        init, broadcast, client_update, server_update, model, client_model=client_model
    )
