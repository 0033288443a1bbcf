"""pFedMe: a common model of the clients' Moreau envelopes, and models near it.

Dinh, Tran and Nguyen, "Personalized federated learning with Moreau envelopes",
NeurIPS 2020 (arXiv 2006.08848); the penalty psi is ours. The common x minimises
sum_i p_i F_i(x), and client i uses the minimiser v in

    F_i(x) = min_v f_i(v) + psi(v) + lambda |v - x|^2 / 2,
    dF_i(x) = lambda (x - v).

Clients take the steps of FedAvg along dF_i and approach v by proximal gradient
steps from their last model, so in the limit one inner step is enough. With all
clients and one local step the limit is exact; K steps move it in proportion to
client_lr (K - 1). Rates up to 1 / L are safe, with psi also 1 / lambda.
"""

from typing import NamedTuple

import jax

from fcojax import tree
from fcojax.algorithms import Algorithm, ClientResult, mean_gradient, takes
from fcojax.transforms import zero
from fcojax.types import Count, NonNegative, Positive


class Hparams(NamedTuple):
    """The step on x and v, the server's, lambda, and the strength of psi."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    prox_scale: NonNegative = 1.0
    penalty_scale: NonNegative = 0.1


@takes(Hparams, "penalty")
def p_fed_me(loss, penalty=None, *, inner_steps: Count = 1):
    """Average steps along the gradients of the envelopes; all keep their v."""
    gradient, psi = mean_gradient(loss), penalty or zero()

    def offset(hparams, x, start, batch):  # v - x, from an approximation
        rate = hparams.client_lr
        shrink = 1 / (1 + rate * hparams.prox_scale)

        def step(_, moved):  # implicit in the quadratic term
            slope = gradient(tree.add(x, moved), batch)
            moved = tree.scale(shrink, tree.add_scaled(moved, -rate, slope))
            if penalty is None:
                return moved  # with the digits of a small v - x
            v, size = tree.add(x, moved), rate * shrink
            return tree.sub(psi.prox(v, size, hparams.penalty_scale), x)

        return jax.lax.fori_loop(0, inner_steps, step, start)

    def init(hparams, params):
        return params, params

    def broadcast(hparams, server):
        return server

    def client_update(hparams, message, client, local, key):
        start = tree.sub(client, message)
        start = offset(hparams, message, start, local.full())

        def step(x, batch):
            moved = offset(hparams, x, start, batch)
            pull = hparams.client_lr * hparams.prox_scale
            return tree.add_scaled(x, pull, moved)

        upload = tree.sub(local.scan(step, message), message)
        return ClientResult(tree.add(message, start), upload, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        return tree.add_scaled(server, hparams.server_lr, mean_upload)

    def model(hparams, server):
        return server

    def client_model(hparams, message, client):
        return client

    plain = Algorithm(init, broadcast, client_update, server_update, model)
    return plain._replace(client_model=client_model)
