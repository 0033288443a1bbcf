"""Optimality of a point, from one exchange of gradients with every client; how runs end."""

import enum

import jax

from fcojax import tree
from fcojax.arguments import validated
from fcojax.engine.state import Observe
from fcojax.memo import memoised
from fcojax.problems.client_data import ClientData
from fcojax.problems.losses import Loss, require_floats
from fcojax.problems.problem import population_loss
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, Params, Scalar

# Name of a certificate's value in a history.
VIOLATION = "violation"


def pooled_gradient(loss: Loss, params: Params, data: ClientData) -> Params:
    """Return the gradient of F, the weighted mean of all clients' gradients."""
    require_floats(params)
    return jax.grad(lambda w: population_loss(loss, w, data))(params)


@validated
def kkt_violation(
    loss: Loss, penalty: Penalty, scale: Scalar, params: Params, data: ClientData
) -> Array:
    r"""Return by how much a point violates the optimality conditions of :math:`\min F + \psi`.

    .. math:: \mathrm{dist}\big(-\nabla F(w),\, \partial \psi(w; \lambda)\big)

    in the Euclidean norm of all parameters. It is zero exactly at a minimiser. If F is strongly
    convex with constant mu, the distance to the minimiser is at most the violation divided by mu.
    For a penalty without ``subdiff_distance`` it is the length of a proximal gradient step of size
    1, :math:`|w - \mathrm{prox}_\psi(w - \nabla F(w))|`, which is zero at the same points. w is
    ``params``, and lambda ``scale``.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_clients([{"a": np.array([1.0])}, {"a": np.array([3.0])}])
      >>> loss = lambda w, rows: 0.5 * (w - rows["a"]) ** 2
      >>> l1 = fcojax.transforms.l1()
      >>> [float(kkt_violation(loss, l1, 0.5, jnp.array(w), data)) for w in (0.0, 1.0, 1.5)]
      [1.5, 0.5, 0.0]
    """
    return violation_at(pooled_gradient(loss, params, data), penalty, scale, params)


def violation_at(gradient: Params, penalty: Penalty, scale: Scalar, params: Params) -> Array:
    """Return ``kkt_violation`` at a point where the gradient of F is known."""
    # A point is optimal if -grad F is a subgradient of psi there.
    slope = tree.scale(-1, gradient)
    if penalty.subdiff_distance is not None:
        return penalty.subdiff_distance(params, slope, scale)
    # Fallback for penalties without a closed form of that distance.
    moved = penalty.prox(tree.add(params, slope), 1.0, scale)
    return tree.euclidean_norm(tree.sub(params, moved))


# Memoised: the certificate is a static part of the program, so a rebuilt one would compile again.
@memoised
@validated
def kkt(loss: Loss, penalty: Penalty) -> Observe:
    """Return ``kkt_violation`` as a certificate for ``fcojax.solve``, at ``penalty_scale``.

    Example:
      >>> import fcojax
      >>> certificate = kkt(lambda w, rows: (w - rows) ** 2, fcojax.transforms.l1())
    """

    def certificate(hparams, model, data):
        # A method without a penalty has no strength: its problem is to minimise F alone.
        scale = getattr(hparams, "penalty_scale", 0.0)
        return {VIOLATION: kkt_violation(loss, penalty, scale, model, data)}

    return certificate


class Status(enum.Enum):
    """How a run ended; the value of a member is its sentence.

    Example:
      >>> Status.SOLVED.sentence(round=30, detail="the violation is 0")
      'solved by round 30: the violation is 0'
    """

    SOLVED = "solved by round {round}: {detail}"
    UNSOLVED = (
        "not solved after {round} rounds: {detail}; allow more rounds, or take a method or a plan "
        "that is exact"
    )
    SPENT = "stopped after round {round}, the last that is allowed: {detail}"
    DIVERGED = "diverged by round {round}: {detail}; take a smaller rate"
    CONVERGED = "converged by round {round}"
    STALLED = "stalled {detail} above the optimum by round {round}"
    IMPROVING = "still falling at round {round}"
    MOVING = "still moving at round {round}"
    RISING = "rising at round {round}: {detail}"

    def sentence(self, round: int, detail: str = "") -> str:
        """Return the sentence of this status, at a round and with a reason, a residual or a gap."""
        return self.value.format(round=round, detail=detail)
