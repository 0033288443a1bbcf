"""FedAvg on the mean loss plus a smoothed penalty, the baseline that composite methods replace."""

from typing import Any, NamedTuple

import numpy as np

import fcojax
from fcojax import algorithms
from fcojax.algorithms import Algorithm
from fcojax.extend import memoised
from fcojax.transforms import Penalty, moreau_envelope
from fcojax.types import NonNegative, Positive


class SmoothedHparams(NamedTuple):
    """``smoothing`` is mu, which a schedule decreases; the others are those of ``fed_avg``."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    penalty_scale: NonNegative = 0.1
    smoothing: Positive = 1.0


@memoised
def smoothed(loss: Any, penalty: Penalty) -> Algorithm:
    r"""Return FedAvg on F plus the Moreau envelope of psi with parameter mu.

    The gradient of the envelope, :math:`(w - \mathrm{prox}_{\mu\psi}(w)) / \mu`, is 1 / mu
    Lipschitz. With a fixed mu the limit is near the minimiser of the smoothed objective; the model
    has no exact zeros.
    """
    envelope = moreau_envelope(penalty)
    huber = Penalty(lambda w, numbers: envelope(w, *numbers), penalty.prox)
    plain = algorithms.fed_avg_subgradient(loss, huber)

    def client_update(hparams, message, client, local, key):
        numbers = hparams.smoothing, hparams.penalty_scale
        return plain.client_update(
            hparams._replace(penalty_scale=numbers), message, client, local, key
        )

    return plain._replace(client_update=client_update, hparams_type=SmoothedHparams)


def decreasing(first: float, power: float, num_rounds: int) -> Any:
    r"""Return the schedule :math:`\mu_r = \mu_0 / (r + 1)^a`."""
    return fcojax.schedule(first / np.arange(1.0, num_rounds + 1) ** power)
