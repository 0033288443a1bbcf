"""FedMiD and FedDualAvg with Adam or LAMB on the server, as in the source's code.

The server passes minus the mean displacement as a gradient to an optimiser, which steps from the
model in FedMiD and from the dual point in FedDualAvg. The prox has the weight of a gradient step
and not the metric of the optimiser, so the limit is not the minimiser of F + psi; for this reason
``fcojax.algorithms.fed_opt`` takes no penalty.
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
    """The states of the server and of its optimiser."""

    inner: PyTree
    state: PyTree


@memoised
def with_optimiser(
    algorithm: Algorithm,
    optimiser: optax.GradientTransformation,
    point: Callable[[Any], Params],
) -> Algorithm:
    r"""Return the algorithm whose server step is its rate times the step of an optimiser.

    .. math:: w_{r+1} = P_{\eta_s \bar e}\big(\nabla h(w_r) + \eta_s u_r\big), \qquad
              z_{r+1} = z_r + \eta_s u_r, \quad T_{r+1} = T_r + \eta_s \bar e,

    for FedMiD and FedDualAvg, with the optimiser's step :math:`u_r` on minus the mean displacement.

    Args:
      algorithm: an algorithm whose upload is a ``Displacement``.
      optimiser: an optimiser with rate 1; with ``optax.sgd(1.0)`` the algorithm is unchanged.
      point: the field of the server's state to which the displacement is added.
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
# Optax's defaults, because the source does not give its values.
_OPTIMISERS = {"adam": optax.adam(1.0), "lamb": optax.lamb(1.0)}

SERVER_OPTIMISERS = {
    f"{base.__name__}_{name}": _factory(base, optimiser, point)
    for base, point in _POINTS.items()
    for name, optimiser in _OPTIMISERS.items()
}
