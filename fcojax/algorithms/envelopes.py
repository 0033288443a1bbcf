r"""pFedMe and pFedFBE: a common model of the clients' envelopes, and a personal model near it.

Dinh, Tran and Nguyen, "Personalized federated learning with Moreau envelopes", NeurIPS 2020;
Anonymous, "Personalized federated composite learning with forward-backward envelopes", OpenReview
2023. The envelopes are minima over v of psi, a multiple of :math:`|v - x|^2`, and the loss itself
or its linear model at x; the minimiser v is the client's model.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, Known, takes
from fcojax.algorithms.fed_avg import fed_avg
from fcojax.algorithms.local import Batch, mean_gradient, mean_loss
from fcojax.algorithms.partial_sharing import Owned, OwningLocal, PartialClient, PartialMessage
from fcojax.problems.losses import Loss, RandomLoss
from fcojax.transforms.calculus.moreau import moreau_envelope
from fcojax.transforms.penalties.l1 import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, Count, NonNegative, Params, Positive


class PFedMeHparams(NamedTuple):
    """``client_lr`` is the step on x and v, ``prox_scale`` lambda, ``penalty_scale`` of psi."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    prox_scale: NonNegative = 1.0
    penalty_scale: NonNegative = 0.1


class PFedFBEHparams(NamedTuple):
    """``client_lr`` is the step on x, ``prox_step`` gamma, ``penalty_scale`` of psi."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    prox_step: Positive = 0.01
    penalty_scale: NonNegative = 0.1


@takes(PFedMeHparams, "penalty")
def p_fed_me(
    loss: Loss,
    penalty: Penalty | None = None,
    *,
    base: Callable[[Loss], Algorithm] = fed_avg,
    inner_steps: Count = 1,
) -> Algorithm:
    r"""The minimiser x of the mean Moreau envelope, and the minimisers of the envelopes.

    .. math:: \min_x \sum_i p_i F_i(x), \qquad
              F_i(x) = \min_v \; f_i(v) + \psi(v) + \tfrac{\lambda}{2} |v - x|^2

    Clients take the local steps of ``base`` along :math:`\nabla F_i(x) = \lambda (x - v)`. They
    approach v by proximal gradient steps, implicit in the quadratic term as in ``ditto``,
    from their last model, so in the limit one inner step is enough. Rates up to 1/L are safe, and
    with psi those up to the smaller of 1/L and :math:`1 / \lambda`. With :math:`\lambda = 0`
    clients learn alone; for :math:`\lambda \to \infty` and without psi it is ``base``.

    With FedAvg, as in the paper, K local steps move the limit in proportion to :math:`\eta_c (K -
    1)`, and absent clients add noise; with ``fcojax.algorithms.scaffold`` it is exact, with any
    cohort and with lost uploads.

    Args:
      loss: one loss per example.
      penalty: psi; none by default.
      base: ``(loss) -> Algorithm`` for x, with hyperparameters that are among these.
      inner_steps: proximal gradient steps towards v for each local step.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_clients([{"a": np.zeros(1)}, {"a": 4 * np.ones(1)}])
      >>> algorithm = fcojax.algorithms.p_fed_me(lambda x, rows: (x - rows["a"]) ** 2 / 2)
      >>> hparams, plan = algorithm.hparams_type(client_lr=0.5), fcojax.local_steps(1)
      >>> state = fcojax.start(algorithm, hparams, jnp.array(0.0), data, jax.random.key(0), plan)
      >>> state, _ = fcojax.advance(algorithm, hparams, state, data, plan, num_rounds=100)
      >>> print(fcojax.personal.read_models(algorithm, hparams, state).round(2))  # x is 2
      [1. 3.]
    """
    value, gradient, psi = mean_loss(loss), mean_gradient(loss), penalty or zero()

    def offset(hparams, x, start, batch):
        rate = hparams.client_lr
        shrink = 1 / (1 + rate * hparams.prox_scale)

        def step(_, moved):
            slope = gradient(tree.add(x, moved), batch)
            moved = tree.scale(shrink, tree.add_scaled(moved, -rate, slope))
            if penalty is None:
                return moved  # with the digits of a small v - x
            return tree.sub(psi.prox(tree.add(x, moved), rate * shrink, hparams.penalty_scale), x)

        return jax.lax.fori_loop(0, inner_steps, step, start)

    def forward(x, hparams, start, batch):
        moved = offset(hparams, x, start, batch)
        v, square = tree.add(x, moved), tree.vdot(moved, moved)
        composite = value(v, batch) + psi.value(v, hparams.penalty_scale)
        pull = jnp.asarray(hparams.prox_scale / 2, square.dtype)
        return composite + pull * square, tree.scale(-hparams.prox_scale, moved)

    # The derivative of a minimum is that at a fixed v; derivatives of a whole run go through v.
    envelope = jax.custom_vjp(lambda *given: forward(*given)[0])
    envelope.defvjp(forward, lambda slope, scale: (tree.scale(scale, slope), None, None, None))
    return _on_envelopes(base, envelope, offset)


@takes(PFedFBEHparams, "penalty")
def p_fed_fbe(
    loss: Loss, penalty: Penalty | None = None, *, base: Callable[[Loss], Algorithm] = fed_avg
) -> Algorithm:
    r"""The minimiser x of the mean forward-backward envelope, and a proximal step of each client.

    .. math:: F_i(x) = f_i(x) - \tfrac{\gamma}{2} |\nabla f_i(x)|^2 + M(u_i), \qquad
              v_i = \mathrm{prox}_{\gamma \psi}(u_i), \qquad u_i = x - \gamma \nabla f_i(x)

    with M the Moreau envelope of psi of step :math:`\gamma`. For :math:`\gamma < 1 / L` it is
    smooth and has the minimisers of :math:`f_i + \psi`; the mean has others than the mean loss plus
    psi. Clients step along :math:`\nabla F_i = (I - \gamma \nabla^2 f_i)(x - v_i) / \gamma` as in
    ``p_fed_me``, safely up to :math:`\gamma`; the published code omits the Hessian. Without psi and
    for :math:`\gamma \to 0` it is ``base``.

    Args:
      loss: one loss per example, with two derivatives.
      penalty: psi; none by default.
      base: ``(loss) -> Algorithm`` for x, with hyperparameters that are among these.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_clients([{"a": np.zeros(1)}, {"a": 4 * np.ones(1)}])
      >>> loss, l1 = lambda x, rows: (x - rows["a"]) ** 2 / 2, fcojax.transforms.l1()
      >>> algorithm, plan = fcojax.algorithms.p_fed_fbe(loss, l1), fcojax.local_steps(1)
      >>> hparams = algorithm.hparams_type(client_lr=0.5, prox_step=0.5, penalty_scale=1.0)
      >>> state = fcojax.start(algorithm, hparams, jnp.array(0.0), data, jax.random.key(0), plan)
      >>> state, _ = fcojax.advance(algorithm, hparams, state, data, plan, num_rounds=100)
      >>> print(fcojax.personal.read_models(algorithm, hparams, state).round(2))  # x is 1
      [0. 2.]
    """
    value, gradient, psi = mean_loss(loss), mean_gradient(loss), penalty or zero()
    moreau = moreau_envelope(psi)

    def envelope(x, hparams, start, batch):
        slope = gradient(x, batch)
        square, u = tree.vdot(slope, slope), tree.add_scaled(x, -hparams.prox_step, slope)
        step = jnp.asarray(hparams.prox_step, square.dtype)
        return value(x, batch) - step / 2 * square + moreau(u, step, hparams.penalty_scale)

    def offset(hparams, x, start, batch):
        u = tree.add_scaled(x, -hparams.prox_step, gradient(x, batch))
        return tree.sub(psi.prox(u, hparams.prox_step, hparams.penalty_scale), x)

    return _on_envelopes(base, envelope, offset)


class _EnvelopeLocal(OwningLocal):
    """A handle whose examples are a batch with its weights, and the envelope's arguments."""

    def _owned(self, batch: Batch) -> Batch:
        return batch._replace(examples=Owned(batch._replace(source=None, step=None), self.own))


def _on_envelopes(
    base: Callable[[Loss], Algorithm], envelope: Callable[..., Array], offset: Callable[..., Params]
) -> Algorithm:
    """Build ``base`` on envelopes; ``offset`` is v - x, found from an approximation ``start``."""

    def losses(x, rows, key):
        batch = rows.examples._replace(source=key)  # for losses that draw
        return jnp.broadcast_to(envelope(x, *rows.own, batch), batch.weights.shape)

    shared = base(RandomLoss(losses))

    def init(hparams, params):
        server, client = shared.init(hparams, params)
        return server, PartialClient(client, params)

    def broadcast(hparams, server):
        model = shared.model(hparams, server)
        return PartialMessage(shared.broadcast(hparams, server), Known(model))

    def client_update(hparams, message, client, local, key):
        x = message.common.value
        moved = offset(hparams, x, tree.sub(client.own, x), local.full())
        fields = {field.name: getattr(local, field.name) for field in dataclasses.fields(local)}
        owning = _EnvelopeLocal(**fields, own=(hparams, moved))
        result = shared.client_update(hparams, message.message, client.client, owning, key)
        return result._replace(state=PartialClient(result.state, tree.add(x, moved)))

    changed = {"init": init, "broadcast": broadcast, "client_update": client_update}
    return shared._replace(**changed, client_model=lambda hparams, message, client: client.own)
