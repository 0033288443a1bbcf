r"""FedExP: FedAvg with a server step that grows with the disagreement of the clients.

Jhunjhunwala, Wang and Joshi, "FedExP: speeding up federated averaging via extrapolation", ICLR
2023 (arXiv 2301.09604).
"""

from typing import Literal, NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Displacement, elapsed, takes
from fcojax.algorithms.linear_steps import linear_steps
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.penalties.l1 import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, NonNegative, Params, Positive, PyTree


class FedExPHparams(NamedTuple):
    """``client_lr`` is eta_c; ``epsilon`` keeps the server's step finite.

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    epsilon: NonNegative = 1e-3
    penalty_scale: NonNegative = 0.1


class LastTwo(NamedTuple):
    """The last point, and the one before it if the model is their mean; otherwise ``()``."""

    point: Params
    previous: PyTree


class DisplacementAndNorm(NamedTuple):
    """A client's displacement, and its squared norm."""

    displacement: Displacement
    squared: Array


@takes(FedExPHparams, "penalty")
def fed_exp(
    loss: Loss,
    penalty: Penalty | None = None,
    *,
    report: Literal["average", "last"] = "average",
) -> Algorithm:
    r"""FedAvg with an adaptive server step, and a prox of the server if there is a penalty.

    Clients move by :math:`d_i` in K local steps from w, as in FedAvg, and with S the cohort

    .. math:: \eta_s = \max\Big(1, \frac{\sum_{i \in S} p_i |d_i|^2}
                                        {2 (|\sum_{i \in S} p_i d_i|^2 + \epsilon)}\Big), \qquad
              w \leftarrow \mathrm{prox}_{\eta_s \eta_c K \psi}\Big(w + \eta_s \sum_i p_i d_i\Big).

    The more the clients' directions cancel, the longer the step. Iterates oscillate, and the paper
    reports the mean of the last two. The local steps drift and bias the limit, as for FedAvg. The
    squared norm depends on a client's data, so codecs encode it like :math:`d_i`. An upload has two
    more numbers than FedAvg's: the norm and the number of steps.

    Args:
      loss: one loss per example.
      penalty: psi, applied on the server; none by default.
      report: the model that is returned: the ``"average"`` of the last two points, or the
        ``"last"`` one, which has the zeros of the prox.

    Example:
      >>> import fcojax, jax, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([2.0, 4.0])}, [1, 1])
      >>> algorithm = fcojax.algorithms.fed_exp(
      ...     lambda w, rows: (w - rows["a"]) ** 2 / 2, fcojax.transforms.l1())
      >>> hparams = algorithm.hparams_type(client_lr=0.1, penalty_scale=0.5)
      >>> plan, key = fcojax.local_steps(1), jax.random.key(0)
      >>> w, _ = fcojax.run(algorithm, hparams, jnp.array(0.0), data, key, plan, num_rounds=100)
      >>> round(float(w), 3)  # the mean of 2 and 4, soft thresholded at 0.5
      2.5

    References:
      Jhunjhunwala, Wang and Joshi, 2023, Algorithm 1. The prox is ours.
    """
    gradient, penalty, average = mean_gradient(loss), penalty or zero(), report == "average"

    def init(hparams, params):
        return LastTwo(params, params if average else ()), ()

    def broadcast(hparams, server):
        return server.point

    def client_update(hparams, message, client, local, key):
        def step(w, batch):
            return tree.add_scaled(w, -hparams.client_lr, gradient(w, batch))

        moved = linear_steps(loss, local, step, message)
        displacement = Displacement(moved, elapsed(local, hparams.client_lr))
        return ClientResult(client, DisplacementAndNorm(displacement, tree.vdot(moved, moved)), {})

    def server_update(hparams, server, mean_upload, fraction, key):
        mean, steps = mean_upload.displacement.params, mean_upload.displacement.elapsed.value
        squared = tree.vdot(mean, mean)
        agreement = 2 * (squared + jnp.asarray(hparams.epsilon, squared.dtype))
        server_lr = jnp.maximum(1, mean_upload.squared / agreement)
        target = tree.add_scaled(server.point, server_lr, mean)
        point = penalty.prox(target, server_lr.astype(steps.dtype) * steps, hparams.penalty_scale)
        return LastTwo(point, server.point if average else ())

    def model(hparams, server):
        if not average:
            return server.point
        return tree.scale(0.5, tree.add(server.point, server.previous))

    return Algorithm(init, broadcast, client_update, server_update, model)
