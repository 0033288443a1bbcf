"""Robust means of uploads, which a few bad clients cannot move far, for ``fcojax.Plan``."""

from fcojax.robust.rules import (
    averaged,
    bucketing,
    centred_clipping,
    geometric_median,
    krum,
    median,
    trimmed_mean,
)

__all__ = [
    "averaged",
    "bucketing",
    "centred_clipping",
    "geometric_median",
    "krum",
    "median",
    "trimmed_mean",
]
