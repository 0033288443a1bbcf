r"""ProxSkip for federated composite problems; without a penalty it is Scaffnew.

Mishchenko, Malinovsky, Stich and Richtarik, "ProxSkip: yes! Local gradient steps provably lead to
communication acceleration! Finally!", ICML 2022 (arXiv 2202.09357), Algorithms 1 and 2.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Displacement, Public, takes
from fcojax.algorithms.linear_steps import linear_steps
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.penalties.l1 import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import NonNegative, Params, Positive, Probability, PyTree


class ProxSkipHparams(NamedTuple):
    """``client_lr`` is gamma, ``penalty_scale`` is the strength of psi.

    ``skip_probability`` is 1 - p, used by ``steps="geometric"`` only.
    """

    client_lr: Positive = 0.01
    skip_probability: Probability = 0.9
    penalty_scale: NonNegative = 0.1


class Exchange(NamedTuple):
    """The model w, the mean of all b_i, and the next K if it is random, or ``()``."""

    center: Params
    mean: Params
    num_steps: PyTree


@takes(ProxSkipHparams, "penalty")
def prox_skip(
    loss: Loss,
    penalty: Penalty | None = None,
    *,
    steps: Literal["all", "geometric"] = "all",
) -> Algorithm:
    r"""Local steps with control variates and one prox per exchange; exact, one vector each way.

    Clients step by :math:`x_i \leftarrow x_i - \gamma (\nabla f_i(x_i) - h_i)` from the model w. An
    exchange, on average after every 1/p steps, is with :math:`\delta = \gamma / p`

    .. math:: w^+ = \mathrm{prox}_{\delta \psi}\Big(\sum_i p_i (x_i - \delta h_i)\Big), \qquad
              h_i \leftarrow h_i + (w^+ - x_i) / \delta, \qquad x_i \leftarrow w^+.

    Clients store :math:`b_i = w - \delta h_i`, initially w. Then an exchange is :math:`b_i
    \leftarrow b_i + x_i - w`, which needs no reply, and :math:`w^+` the prox of :math:`\bar b +
    \sum_{i \in S} p_i (x_i - w)`, with S the cohort and :math:`\bar b` the mean over **all**
    clients, which the server keeps. If all clients take part, this is the method of the paper. It
    is also exact with any cohort and with lost uploads; an average of the cohort's own :math:`h_i`
    would not be. Steps up to 1 / L are safe; p about :math:`\sqrt{\mu / L}` needs the fewest
    exchanges.

    The method of the paper draws after each step whether to exchange, once for all clients. With
    ``steps="geometric"`` K has the same distribution; one engine round per step would only take
    longer.

    Args:
      loss: one loss per example.
      penalty: psi, applied on the server; by default none, as in Scaffnew.
      steps: ``"all"`` takes the K steps of the engine's ``work``, with :math:`p = 1 / K`;
        ``"geometric"`` draws one K per round for all clients, at most the K of ``work``; the first
        round takes the mean.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_clients([{"h": np.ones(1)}, {"h": 3 * np.ones(1)}])
      >>> loss = lambda x, rows: rows["h"] / 2 * (x - rows["h"]) ** 2  # minimiser with |x|: 2
      >>> algorithm = fcojax.algorithms.prox_skip(loss, fcojax.transforms.l1())
      >>> hparams = algorithm.hparams_type(client_lr=0.2, penalty_scale=1.0)
      >>> plan, key = fcojax.local_steps(3), jax.random.key(0)
      >>> x, _ = fcojax.run(algorithm, hparams, jnp.array(0.0), data, key, plan, num_rounds=100)
      >>> round(float(x), 3)
      2.0
    """
    gradient, penalty, geometric = mean_gradient(loss), penalty or zero(), steps == "geometric"

    def delta(hparams, num_steps):
        if geometric:
            return hparams.client_lr / (1 - hparams.skip_probability)
        return hparams.client_lr * num_steps

    def init(hparams, params):
        mean_steps = jnp.ceil(1 / jnp.asarray(1 - hparams.skip_probability)).astype(jnp.int32)
        return Exchange(params, params, mean_steps if geometric else ()), params

    def broadcast(hparams, server):
        return server._replace(mean=())

    def client_update(hparams, message, client, local, key):
        if not geometric and not local.all_steps_equal:
            raise ValueError(
                "clients take different numbers of steps, but prox_skip needs equal numbers; pass "
                "local_steps(K), or steps='geometric'."
            )
        num_steps = local.num_steps.astype(jnp.asarray(hparams.client_lr).dtype)
        # The client keeps b_i = w - delta h_i and not h_i, so it needs no prox.
        control = tree.scale(1 / delta(hparams, num_steps), tree.sub(message.center, client))

        def step(x, batch, control):
            return tree.add_scaled(x, -hparams.client_lr, tree.sub(gradient(x, batch), control))

        fewer = message.num_steps if geometric else None
        moved = linear_steps(loss, local, step, message.center, control, num_steps=fewer)
        return ClientResult(tree.add(client, moved), Displacement(moved, Public(num_steps)), {})

    def server_update(hparams, server, mean_upload, fraction, key):
        target = tree.add(server.mean, mean_upload.params)
        step = delta(hparams, mean_upload.elapsed.value)
        center = penalty.prox(target, step, hparams.penalty_scale)
        mean, num_steps = tree.add_scaled(server.mean, fraction, mean_upload.params), ()
        if geometric:  # the server draws for all: clients stop after the same step
            num_steps = jax.random.geometric(key, 1 - hparams.skip_probability, dtype=jnp.int32)
        return Exchange(center, mean, num_steps)

    def model(hparams, server):
        return server.center

    return Algorithm(init, broadcast, client_update, server_update, model)
