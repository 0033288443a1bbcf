"""FedMiD and FedDualAvg with Adam or LAMB on the server, which the source's code can have."""

import optax

from fcojax.algorithms import fed_dual_avg, fed_mid, takes
from fcojax.algorithms.base import Factory

# Optax's defaults, because the source does not give its values.
_OPTIMISERS = {"adam": optax.adam(1.0), "lamb": optax.lamb(1.0)}


def _factory(base: Factory, optimiser: optax.GradientTransformation) -> Factory:
    @takes(base.Hparams, *base.geometry)
    def optimised(loss, mirror):
        return base(loss, mirror, server_optimiser=optimiser)

    return optimised


SERVER_OPTIMISERS = {
    f"{method}_{name}": _factory(base, optimiser)
    for method, base in {"fed_mid": fed_mid, "fed_dual_avg": fed_dual_avg}.items()
    for name, optimiser in _OPTIMISERS.items()
}
