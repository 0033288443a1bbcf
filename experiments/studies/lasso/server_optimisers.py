"""FedMiD and FedDualAvg with Adam or LAMB on the server, which the source's code can have."""

from typing import Any

import optax

from fcojax.algorithms import fed_dual_avg, fed_dual_avg_opt, fed_mid, fed_mid_opt, takes
from fcojax.algorithms.base import Factory

# Optax's defaults, because the source does not give its values.
_OPTIMISERS = {"adam": optax.adam(1.0), "lamb": optax.lamb(1.0)}


def _factory(plain: Factory, base: Any, optimiser: optax.GradientTransformation) -> Factory:
    @takes(plain.Hparams, *plain.geometry)
    def optimised(loss, mirror):
        return base(loss, mirror, server=optimiser)

    return optimised


SERVER_OPTIMISERS = {
    f"{method}_{name}": _factory(plain, base, optimiser)
    for method, plain, base in (
        ("fed_mid", fed_mid, fed_mid_opt),
        ("fed_dual_avg", fed_dual_avg, fed_dual_avg_opt),
    )
    for name, optimiser in _OPTIMISERS.items()
}
