"""Robust means in place of the weighted mean: what a few bad clients send moves them little.

``averaged`` makes an uplink of a rule, for ``fcojax.Plan``.
"""

from fcojax.robust.means import (
    centred_clipping,
    clipped_mean,
    geometric_median,
    krum,
    mean_around_median,
    median,
    multi_krum,
    trimmed_mean,
)
from fcojax.robust.mixing import (
    adaptive_clipping,
    bucketing,
    nearest_neighbour_mixing,
    norm_clipping,
)
from fcojax.robust.rule import Mixing, Rule, averaged

__all__ = [
    # the uplink
    "averaged",
    # rules
    "Rule",
    "centred_clipping",
    "clipped_mean",
    "geometric_median",
    "krum",
    "mean_around_median",
    "median",
    "multi_krum",
    "trimmed_mean",
    # before a rule
    "Mixing",
    "adaptive_clipping",
    "bucketing",
    "nearest_neighbour_mixing",
    "norm_clipping",
]
