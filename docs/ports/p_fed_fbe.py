"""pFedFBE: a common model of forward-backward envelopes, and a step from it.

Anonymous, "Personalized federated composite learning with forward-backward
envelopes", OpenReview 2023. With M the Moreau envelope of psi of step gamma,
the common x minimises sum_i p_i F_i(x), and client i uses v_i in

    u_i = x - gamma df_i(x),  v_i = prox of gamma psi at u_i,
    F_i(x) = f_i(x) - gamma |df_i(x)|^2 / 2 + M(u_i),
    dF_i(x) = (I - gamma ddf_i(x)) (x - v_i) / gamma.

For gamma < 1 / L the envelope is smooth and has the minimisers of f_i + psi;
the mean of envelopes has others than the mean loss plus psi. Clients take the
steps of FedAvg along dF_i, which are safe up to gamma; several local steps move
the limit. The published code omits the Hessian.
"""

from typing import NamedTuple

import jax

from fcojax import tree
from fcojax.algorithms import Algorithm, ClientResult, mean_gradient, takes
from fcojax.transforms import zero
from fcojax.types import NonNegative, Positive


class Hparams(NamedTuple):
    """The step on x, the server's, gamma, and the strength of psi."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    prox_step: Positive = 0.01
    penalty_scale: NonNegative = 0.1


@takes(Hparams, "penalty")
def p_fed_fbe(loss, penalty=None):
    """Average steps along the gradients of the envelopes; all keep their v."""
    gradient, psi = mean_gradient(loss), penalty or zero()

    def stepped(hparams, x, slope):  # v, and (x - v) / gamma
        u = tree.add_scaled(x, -hparams.prox_step, slope)
        v = psi.prox(u, hparams.prox_step, hparams.penalty_scale)
        return v, tree.add_scaled(slope, 1 / hparams.prox_step, tree.sub(u, v))

    def init(hparams, params):
        return params, params

    def broadcast(hparams, server):
        return server

    def client_update(hparams, message, client, local, key):
        slope = gradient(message, local.full())
        v, _ = stepped(hparams, message, slope)

        def step(x, batch):
            slope, of_slope = jax.vjp(lambda x: gradient(x, batch), x)
            _, away = stepped(hparams, x, slope)
            [curved] = of_slope(away)  # a Hessian is its own transpose
            slope = tree.add_scaled(away, -hparams.prox_step, curved)
            return tree.add_scaled(x, -hparams.client_lr, slope)

        upload = tree.sub(local.scan(step, message), message)
        return ClientResult(v, upload, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        return tree.add_scaled(server, hparams.server_lr, mean_upload)

    def model(hparams, server):
        return server

    def client_model(hparams, message, client):
        return client

    plain = Algorithm(init, broadcast, client_update, server_update, model)
    return plain._replace(client_model=client_model)
