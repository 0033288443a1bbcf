r"""FedDualAvg with control variates: dual averaging that is exact with local steps.

Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, which names control variates
as future work. Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD: stochastic controlled
averaging for federated learning", ICML 2020.
"""

from typing import Annotated, NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Public, takes
from fcojax.algorithms.fed_dual_avg import DualPoint
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.types import NonNegative, Numbers, Params, Positive

Memory = Annotated[
    float, Numbers("a number from 0 to 1", lambda values: (values >= 0) & (values <= 1))
]


class FedDualAvgTrackingHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``penalty_scale`` is the strength of psi.

    ``memory`` is rho, the share of the earlier subgradients of psi that a round keeps.
    """

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    penalty_scale: NonNegative = 0.1
    memory: Memory = 0.9


class Sums(NamedTuple):
    """The server's sums: z and T, and the mean control c of all clients."""

    point: DualPoint
    control: Params


class ServerState(NamedTuple):
    """The sums with which the next round starts, their rounding errors so far, and the model."""

    sums: Sums
    residue: Sums
    params: Params


class ControlChange(NamedTuple):
    """An upload: the change of a client's control, and how many steps it took."""

    change: Params
    num_steps: Public


@takes(FedDualAvgTrackingHparams, "mirror")
def fed_dual_avg_tracking(loss: Loss, mirror: Mirror) -> Algorithm:
    r"""FedDualAvg whose clients follow the mean gradient of all clients; any cohort.

    Client m keeps its control :math:`c_m`, the mean gradient of its last local steps, and the
    server keeps the mean c of all controls. A round is

    .. math::
       w^m_k &= P_{T_r + \eta_c k}(z^m_k), \qquad
       z^m_{k+1} = z^m_k - \eta_c (\nabla f(w^m_k; \xi^m_k) + c - c_m), \quad z^m_0 = z_r \\
       z &= z_r - t \Big(c + \sum_m p_m (q_m - c_m)\Big), \qquad
       T = T_r + t, \qquad t = \eta_s \eta_c \sum_m p_m K_m \\
       w_{r+1} &= P_T(z), \qquad T_{r+1} = \rho T, \qquad
       z_{r+1} = \nabla h(w_{r+1}) + \rho (z - \nabla h(w_{r+1}))

    with :math:`q_m` the mean of the gradients of client m, its new control. The model is
    :math:`w_r`.

    The fixed points are the minimisers of F + psi, for any number of local steps: if each
    :math:`c_m` is the gradient at a minimiser w, then all steps follow
    :math:`\nabla F(w) = -s` with s a subgradient of psi, and :math:`P_{T + a}(z + a s) = P_T(z)`,
    so the model does not move inside the round either. Once the support of the model is that of w,
    the iteration on the support is SCAFFOLD's on F plus a linear function.

    The vector :math:`s = (z - \nabla h(w_{r+1})) / T` is a subgradient of psi at the model.
    Shrinking T and :math:`T s` by the factor rho, the ``memory``, leaves s and the model as they
    are:

    - 0 forgets s, which is ``composite_fl`` in the geometry of ``mirror``. Noisy gradients then
      decide anew in each round which entries are zero.
    - 1 is dual averaging. T grows without bound, so P shrinks steps along a curved level set of psi
      (a group norm, the nuclear norm) by 1 / T, and convergence is sublinear; and the rounding
      error of the model is that of :math:`z \approx \lambda T`.
    - In between T stays below :math:`t / (1 - \rho)`: convergence is linear for every psi, without
      drift in float32, and zeros are decided by a mean of about :math:`1 / (1 - \rho)` rounds.

    With one full-batch step, all clients and memory 1 it is ``fed_dual_avg``, and without a penalty
    and with the Euclidean mirror it is ``scaffold``, both up to rounding.

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
        point = DualPoint(dual, jnp.zeros_like(jnp.asarray(hparams.client_lr)))
        sums = Sums(point, control)
        return ServerState(sums, tree.zeros_like(sums), params), control

    def broadcast(hparams, server):
        return server.sums

    def client_update(hparams, message, client, local, key):
        correction = tree.sub(message.control, client)

        def step(moved, batch):
            slope = gradient(primal(hparams, tree.add(message.point, moved)), batch)
            return DualPoint(
                tree.add_scaled(moved.dual, -hparams.client_lr, tree.add(slope, correction)),
                moved.elapsed + hparams.client_lr,
            )

        # Sum displacements and not points: with memory 1, z grows with the number of rounds.
        end = local.scan(step, tree.zeros_like(message.point))
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
        change = Sums(
            DualPoint(tree.scale(-step, direction), step),
            tree.scale(fraction, mean_upload.change),
        )
        sums, residue = tree.add_compensated(server.sums, server.residue, 1, change)
        params = primal(hparams, sums.point)
        # grad h(w) belongs to T = 0. With memory 1 nothing is subtracted, not even rounding.
        excess = sums.point._replace(dual=tree.sub(sums.point.dual, mirror.to_dual(params)))
        point, error = tree.add_compensated(sums.point, residue.point, hparams.memory - 1, excess)
        return ServerState(sums._replace(point=point), residue._replace(point=error), params)

    def model(hparams, server):
        return server.params

    return Algorithm(init, broadcast, client_update, server_update, model)
