r"""ProxSkip for federated composite problems, and Scaffnew, which is the same without a penalty.

Mishchenko, Malinovsky, Stich and Richtarik, "ProxSkip: yes! Local gradient steps provably lead to
communication acceleration! Finally!", ICML 2022 (arXiv 2202.09357), Algorithms 1 and 2.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Public, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.algorithms.local_sgd import Advance
from fcojax.problems.problem import Loss
from fcojax.transforms.penalties.l1 import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import Params, PyTree, Scalar


class ExchangeRates(NamedTuple):
    """gamma; 1 - p, which only random numbers of steps have a use for; the strength of psi."""

    client_lr: Scalar = 0.01
    skip_probability: Scalar = 0.9
    penalty_scale: Scalar = 0.1


class Exchange(NamedTuple):
    """The model w, the mean of all b_i, and what was drawn: the next K, or whether w is new."""

    center: Params
    mean: PyTree
    drawn: PyTree


class Shifted(NamedTuple):
    """b_i as of the last exchange, where it may differ, and as an exchange now would make it."""

    base: PyTree
    offer: Params


@takes(ExchangeRates, "penalty")
def prox_skip(loss: Loss, penalty: Penalty | None = None, *, steps: str = "all") -> Algorithm:
    r"""Local steps with control variates and one prox an exchange; exact, one vector each way.

    Clients step by :math:`x_i \leftarrow x_i - \gamma (\nabla f_i(x_i) - h_i)` from the model w. An
    exchange, on average after every 1/p steps, is with :math:`\delta = \gamma / p`

    .. math:: w^+ = \mathrm{prox}_{\delta \psi}\Big(\sum_i p_i (x_i - \delta h_i)\Big), \qquad
              h_i \leftarrow h_i + (w^+ - x_i) / \delta, \qquad x_i \leftarrow w^+.

    Clients keep :math:`b_i = w - \delta h_i`, at first w itself. Then an exchange is :math:`b_i
    \leftarrow b_i + x_i - w`, which needs no answer, and :math:`w^+` the prox of :math:`\bar b +
    \sum_{i \in S} p_i (x_i - w)`, with S the cohort and :math:`\bar b` the mean over **all**
    clients, which the server knows. With everyone this is the printed method; it is exact with any
    cohort and with lost uploads too, where averaging the cohort's own :math:`h_i` is not. Steps up
    to 1 / L are safe; p about :math:`\sqrt{\mu / L}` needs the fewest exchanges.

    Args:
      loss: one loss per example.
      penalty: psi, applied on the server; none by default, which is Scaffnew.
      steps: ``"all"`` takes the K steps of the engine's ``work``, with :math:`p = 1 / K`.
        ``"geometric"`` draws K for each round, the same for all clients and at most that of
        ``work``; the first round takes the mean. ``"coin"`` is as printed, for ``local_steps(1)``
        and everyone: after each round one coin for all says whether it ends with an exchange.

    Example:
      >>> import fcojax
      >>> cost = fcojax.check.facts(fcojax.check.subject_of(fcojax.algorithms.prox_skip))
      >>> cost.down, cost.client_proxes, cost.server_proxes
      ('1 d', 0, 1)
    """
    if steps not in ("all", "geometric", "coin"):
        raise ValueError(f"steps is {steps!r}; pass one of all, geometric, coin.")
    gradient, penalty = mean_gradient(loss), penalty or zero()
    geometric, coin = steps == "geometric", steps == "coin"

    def delta(hparams, num_steps):
        share = 1.0 if steps == "all" else 1 - hparams.skip_probability
        return hparams.client_lr * (1 if geometric else num_steps) / share

    def init(hparams, params):
        mean_steps = jnp.ceil(1 / jnp.asarray(1 - hparams.skip_probability)).astype(jnp.int32)
        drawn = {"all": (), "geometric": mean_steps, "coin": jnp.asarray(True)}[steps]
        return Exchange(params, params, drawn), Shifted(params if coin else (), params)

    def broadcast(hparams, server):
        return server._replace(mean=())

    def client_update(hparams, message, client, local, key):
        if not geometric and not local.all_steps_equal:
            what = "clients take different numbers of steps, but prox_skip needs the same of all"
            raise ValueError(f"{what}; pass local_steps(K), or steps='geometric'.")
        base = tree.where(message.drawn, client.offer, client.base) if coin else client.offer
        num_steps = local.num_steps.astype(jnp.asarray(hparams.client_lr).dtype)
        slope = tree.scale(1 / delta(hparams, num_steps), tree.sub(message.center, base))

        def step(x, batch):
            return tree.add_scaled(x, -hparams.client_lr, tree.sub(gradient(x, batch), slope))

        # After an exchange the offer is the base, and clients start at the center.
        start = tree.add(message.center, tree.sub(client.offer, base))
        end = local.scan(step, start, num_steps=message.drawn if geometric else None)
        moved = tree.sub(end, message.center)
        state = Shifted(base if coin else (), tree.add(base, moved))
        return ClientResult(state, Advance(moved, Public(num_steps)), {})

    def server_update(hparams, server, mean_upload, cohort, key):
        target = tree.add(server.mean, mean_upload.params)
        length = delta(hparams, mean_upload.num_steps.value)
        center = penalty.prox(target, length, hparams.penalty_scale)
        mean, drawn = tree.add_scaled(server.mean, cohort.fraction, mean_upload.params), ()
        if geometric:
            drawn = jax.random.geometric(key, 1 - hparams.skip_probability, dtype=jnp.int32)
        if coin:
            drawn = ~jax.random.bernoulli(key, hparams.skip_probability)
            center, mean = tree.where(drawn, (center, mean), (server.center, server.mean))
        return Exchange(center, mean, drawn)

    def model(hparams, server):
        return server.center

    def sent(hparams, before, after):
        return (before.drawn, after.drawn) if coin else (1, 1)

    return Algorithm(init, broadcast, client_update, server_update, model, coin, sent)
