"""RFedAGS: averages of gradient streams on a manifold.

Huang, Huang, Jawanpuria and Mishra, "Riemannian federated learning via
averaging gradient streams", ICLR 2026 (arXiv 2409.07223). Its weights 1 / q_m,
with the frequencies q_m of participation, are
`uploads.inverse_probability("estimated")`.
"""

from typing import NamedTuple

from fcojax import tree
from fcojax.algorithms import Algorithm, ClientResult, mean_gradient, takes
from fcojax.transforms import riemannian_gradient, transport
from fcojax.types import Positive


class Hparams(NamedTuple):
    """The step size of the clients, and a factor of the server's."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0


@takes(Hparams, "manifold")
def r_fed_ags(loss, manifold):
    """Send the sum of all local steps, each transported to the start point.

    No inverse of a retraction is needed, as in r_fed_avg, and the sum is
    linear in the gradients, so weights 1 / q_m make its mean unbiased.
    """
    gradient = mean_gradient(loss)

    def init(hparams, params):
        return manifold.project(params), ()

    def broadcast(hparams, server):
        return server

    def client_update(hparams, message, client, local, key):
        def step(state, batch):
            z, stream = state
            slope = riemannian_gradient(manifold, z, gradient(z, batch))
            moved = tree.scale(-hparams.client_lr, slope)
            home = transport(manifold, z, message, moved)
            return manifold.retract(z, moved), tree.add(stream, home)

        start = message, tree.zeros_like(message)
        return ClientResult(client, local.scan(step, start)[1], {})

    def server_update(hparams, server, mean_upload, fraction, key):
        step = tree.scale(hparams.server_lr, mean_upload)
        return manifold.retract(server, step)

    def model(hparams, server):
        return server

    return Algorithm(init, broadcast, client_update, server_update, model)
