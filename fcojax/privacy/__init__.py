"""Differential privacy of uploads: clipping, noise, and accounting.

``gaussian`` is a transform of uploads, for ``fcojax.Plan``; ``epsilon`` computes the privacy of its
noise, with the package dp-accounting (the extra ``privacy``).
"""

from fcojax.privacy.accounting import (
    Releases,
    epsilon,
    large_delta,
    law,
    multiplier_of,
    noise_for,
    releases,
    rounds_within,
    together,
    total_epsilon,
)
from fcojax.privacy.audit import audit
from fcojax.privacy.mechanism import adaptive_clip, gaussian

__all__ = [
    # transforms of uploads
    "adaptive_clip",
    "gaussian",
    # audit
    "audit",
    # accounting
    "Releases",
    "epsilon",
    "large_delta",
    "law",
    "multiplier_of",
    "together",
    "noise_for",
    "releases",
    "rounds_within",
    "total_epsilon",
]
