"""Robust means of uploads, which a few bad clients cannot move far.

``averaged`` makes an aggregator from a rule, for ``fcojax.Plan``.
"""

from fcojax.robust.bounds import norm_bound, norm_quantile
from fcojax.robust.means import (
    bucketing,
    centred_clipping,
    geometric_median,
    krum,
    mean_around_median,
    median,
    multi_krum,
    nearest_neighbour_mixing,
    trimmed_mean,
)
from fcojax.robust.rule import Mixing, Rule, averaged

__all__ = [
    # aggregators
    "averaged",
    "norm_bound",
    "norm_quantile",
    # rules
    "Rule",
    "centred_clipping",
    "geometric_median",
    "krum",
    "mean_around_median",
    "median",
    "multi_krum",
    "trimmed_mean",
    # before a rule
    "Mixing",
    "bucketing",
    "nearest_neighbour_mixing",
]
