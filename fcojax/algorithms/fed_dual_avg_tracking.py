r"""FedDualAvg with control variates: dual averaging that is exact with local steps.

Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, which names control variates
as future work. Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD: stochastic controlled
averaging for federated learning", ICML 2020.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Public, takes
from fcojax.algorithms.fed_dual_avg import DualPoint, FedDualAvgHparams
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.types import Array, Params


class Sums(NamedTuple):
    """The server's sums: the dual point z, T, and the mean control c of all clients."""

    dual: Params
    elapsed: Array
    control: Params


class ServerState(NamedTuple):
    """The server's sums, and the rounding errors of each so far."""

    sums: Sums
    residue: Sums


class ControlChange(NamedTuple):
    """An upload: the change of a client's control, and how many steps it took."""

    change: Params
    num_steps: Public


@takes(FedDualAvgHparams, "mirror")
def fed_dual_avg_tracking(loss: Loss, mirror: Mirror) -> Algorithm:
    r"""FedDualAvg whose clients follow the mean gradient of all clients; any cohort.

    Client m keeps its control :math:`c_m`, the mean gradient of its last local steps, and the
    server keeps the mean c of all controls. A round is

    .. math::
       w^m_k &= P_{T_r + \eta_c k}(z^m_k), \qquad
       z^m_{k+1} = z^m_k - \eta_c (\nabla f(w^m_k; \xi^m_k) + c - c_m), \quad z^m_0 = z_r \\
       z_{r+1} &= z_r - t \Big(c + \sum_m p_m (q_m - c_m)\Big), \qquad
       T_{r+1} = T_r + t, \qquad t = \eta_s \eta_c \sum_m p_m K_m

    with :math:`q_m` the mean of the gradients of client m, its new control. The model is
    :math:`P_{T_r}(z_r)`.

    The fixed points are the minimisers of F + psi, for any number of local steps: if each
    :math:`c_m` is the gradient at a minimiser w, then all steps follow
    :math:`\nabla F(w) = -s` with s a subgradient of psi, and :math:`P_{T + a}(z + a s) = P_T(z)`,
    so the model does not move inside the round either. Once the support of the model is that of w,
    the iteration on the support is SCAFFOLD's on F plus a linear function.

    With one full-batch step and all clients it is ``fed_dual_avg``, and without a penalty and with
    the Euclidean mirror it is ``scaffold``, both up to rounding.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax.transforms import euclidean, l1
      >>> data = fcojax.from_clients([{"h": np.ones(1)}, {"h": 3 * np.ones(1)}])
      >>> loss = lambda x, rows: rows["h"] / 2 * (x - rows["h"]) ** 2  # minimiser with |x|: 2
      >>> def end(factory):
      ...     algorithm = factory(loss, euclidean(l1()))
      ...     hparams = algorithm.hparams_type(client_lr=0.05, penalty_scale=1.0)
      ...     x, _ = fcojax.run(
      ...         algorithm, hparams, jnp.array(0.0), data, jax.random.key(0),
      ...         fcojax.local_steps(10), num_rounds=200)
      ...     return round(float(x), 3)
      >>> end(fcojax.algorithms.fed_dual_avg_tracking)
      2.0
      >>> end(fcojax.algorithms.fed_dual_avg)
      1.778

    References:
      Yuan et al., 2021; Karimireddy et al., 2020. Their combination is ours.
    """
    gradient = mean_gradient(loss)

    def primal(hparams, point):
        return mirror.to_primal(point.dual, point.elapsed, hparams.penalty_scale)

    def init(hparams, params):
        dual = mirror.to_dual(params)
        control = tree.zeros_like(dual)
        sums = Sums(dual, jnp.zeros_like(jnp.asarray(hparams.client_lr)), control)
        return ServerState(sums, tree.zeros_like(sums)), control

    def broadcast(hparams, server):
        return server.sums

    def client_update(hparams, message, client, local, key):
        start = DualPoint(message.dual, message.elapsed)
        correction = tree.sub(message.control, client)

        def step(moved, batch):
            slope = gradient(primal(hparams, tree.add(start, moved)), batch)
            return DualPoint(
                tree.add_scaled(moved.dual, -hparams.client_lr, tree.add(slope, correction)),
                moved.elapsed + hparams.client_lr,
            )

        # Sum displacements and not points: z grows with the number of rounds, displacements do not.
        end = local.scan(step, tree.zeros_like(start))
        num_steps = local.num_steps.astype(jnp.asarray(hparams.client_lr).dtype)
        mean = tree.scale(-1 / (hparams.client_lr * num_steps), end.dual)
        control = tree.sub(mean, correction)
        return ClientResult(
            control, ControlChange(tree.sub(control, client), Public(num_steps)), {}
        )

    def server_update(hparams, server, mean_upload, fraction, key):
        step = hparams.server_lr * hparams.client_lr * mean_upload.num_steps.value
        # Each client counts by its mean gradient, even if clients take different numbers of steps.
        direction = tree.add(server.sums.control, mean_upload.change)
        change = Sums(tree.scale(-step, direction), step, tree.scale(fraction, mean_upload.change))
        return ServerState(*tree.add_compensated(server.sums, server.residue, 1, change))

    def model(hparams, server):
        return primal(hparams, server.sums)

    return Algorithm(init, broadcast, client_update, server_update, model)
