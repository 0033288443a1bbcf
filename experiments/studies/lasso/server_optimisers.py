"""FedMiD and FedDualAvg with Adam or LAMB on the server, as the source's code has them.

It passes minus the mean displacement as a gradient to an optimiser of the server's rate, which
steps from the model of FedMiD and from the dual point of FedDualAvg. The prox keeps its weight, as
if the optimiser were a gradient step: it is not in the metric of the optimiser, so that the limit
is not the minimiser of F + psi, which is why ``fcojax.algorithms.fed_opt`` takes no penalty.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import optax

from fcojax import tree
from fcojax.algorithms import Algorithm, fed_dual_avg, fed_mid, takes
from fcojax.algorithms.base import Factory
from fcojax.extend import memoised
from fcojax.types import Params, PyTree


class Optimised(NamedTuple):
    """A server's state, and that of its optimiser."""

    inner: PyTree
    state: PyTree


@memoised
def with_optimiser(
    algorithm: Algorithm,
    optimiser: optax.GradientTransformation,
    point: Callable[[Any], Params],
) -> Algorithm:
    r"""Return the algorithm whose server multiplies its rate by an optimiser's step.

    .. math:: w_{r+1} = P_{\eta_s \bar e}\big(\nabla h(w_r) + \eta_s u_r\big), \qquad
              z_{r+1} = z_r + \eta_s u_r, \quad T_{r+1} = T_r + \eta_s \bar e,

    for FedMiD and FedDualAvg, with the optimiser's step :math:`u_r` on minus the mean displacement.

    Args:
      algorithm: one with a ``Displacement`` as upload.
      optimiser: of rate one; ``optax.sgd(1.0)`` returns the displacement, and so the algorithm.
      point: of the server's state, what the displacement is added to.
    """

    def init(hparams, params):
        inner, client = algorithm.init(hparams, params)
        return Optimised(inner, optimiser.init(point(inner))), client

    def broadcast(hparams, server):
        return algorithm.broadcast(hparams, server.inner)

    def server_update(hparams, server, mean_upload, fraction, key):
        slope = tree.scale(-1.0, mean_upload.params)
        step, state = optimiser.update(slope, server.state, point(server.inner))
        moved = mean_upload._replace(params=step)
        inner = algorithm.server_update(hparams, server.inner, moved, fraction, key)
        return Optimised(inner, state)

    def model(hparams, server):
        return algorithm.model(hparams, server.inner)

    return algorithm._replace(
        init=init, broadcast=broadcast, server_update=server_update, model=model
    )


def _factory(
    base: Factory, optimiser: optax.GradientTransformation, point: Callable[[Any], Params]
) -> Factory:
    @takes(base.Hparams, *base.geometry)
    def optimised(loss, mirror):
        return with_optimiser(base(loss, mirror), optimiser, point)

    return optimised


_POINTS = {fed_mid: lambda server: server, fed_dual_avg: lambda server: server.dual}
# The numbers of optax: the source does not give its own.
_OPTIMISERS = {"adam": optax.adam(1.0), "lamb": optax.lamb(1.0)}

SERVER_OPTIMISERS = {
    f"{base.__name__}_{name}": _factory(base, optimiser, point)
    for base, point in _POINTS.items()
    for name, optimiser in _OPTIMISERS.items()
}
