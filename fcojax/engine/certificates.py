"""How far a point is from solving the problem, from one exchange of gradients with every client."""

import jax

from fcojax import tree
from fcojax.engine.state import Observe
from fcojax.memo import memoised
from fcojax.problems.clients import ClientData
from fcojax.problems.problem import Loss, population_loss
from fcojax.transforms.lengths import length
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, Params, Scalar

# What a certificate is called in a history.
VIOLATION = "violation"


def pooled_gradient(loss: Loss, params: Params, data: ClientData) -> Params:
    """The gradient of F: the weighted mean of the gradients that all clients send."""
    return jax.grad(lambda w: population_loss(loss, w, data))(params)


def kkt_violation(
    loss: Loss, penalty: Penalty, scale: Scalar, params: Params, data: ClientData
) -> Array:
    r"""How far the optimality conditions of :math:`\min F + \psi` are from holding at a point.

    .. math:: \mathrm{dist}\big(-\nabla F(w),\, \partial \psi(w; \lambda)\big)

    in the Euclidean norm of all parameters. It is zero exactly at a minimiser, and with a strongly
    convex F of constant mu the minimiser is no further than it over mu. Of a penalty without
    ``subdiff_distance`` it is the length of a proximal gradient step of size 1,
    :math:`|w - \mathrm{prox}_\psi(w - \nabla F(w))|`, which is zero at the same points.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_clients([{"a": np.array([1.0])}, {"a": np.array([3.0])}])
      >>> loss = lambda w, rows: 0.5 * (w - rows["a"]) ** 2
      >>> l1 = fcojax.transforms.l1()
      >>> [float(kkt_violation(loss, l1, 0.5, jnp.array(w), data)) for w in (0.0, 1.0, 1.5)]
      [1.5, 0.5, 0.0]
    """
    slope = tree.scale(-1, pooled_gradient(loss, params, data))
    if penalty.subdiff_distance is not None:
        return penalty.subdiff_distance(params, slope, scale)
    moved = penalty.prox(tree.add(params, slope), 1.0, scale)
    return length(tree.sub(params, moved))


@memoised
def kkt(loss: Loss, penalty: Penalty) -> Observe:
    """``kkt_violation`` as what ``fcojax.solve`` asks: at ``penalty_scale``, of the clients.

    Example:
      >>> import fcojax
      >>> certificate = kkt(lambda w, rows: (w - rows) ** 2, fcojax.transforms.l1())
    """

    def certificate(hparams, model, data):
        scale = getattr(hparams, "penalty_scale", 0.0)
        return {VIOLATION: kkt_violation(loss, penalty, scale, model, data)}

    return certificate
