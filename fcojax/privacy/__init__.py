"""Differential privacy of uploads: clipping, noise, and what they cost.

``gaussian`` makes an uplink, for ``fcojax.Plan``; ``epsilon`` says what its noise protects, with
the package dp-accounting (``pip install fcojax[privacy]``).
"""

from fcojax.privacy.accounting import Law, epsilon, epsilons, law, noise_for, rounds_within
from fcojax.privacy.mechanism import adaptive_clip, gaussian

__all__ = [
    # uplinks
    "adaptive_clip",
    "gaussian",
    # what they cost
    "Law",
    "epsilon",
    "epsilons",
    "law",
    "noise_for",
    "rounds_within",
]
