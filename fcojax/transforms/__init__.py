"""The geometry: penalties, constraints, mirror maps. It has never heard of a client."""

from fcojax.transforms.calculus import named, on_subtree
from fcojax.transforms.constraint import (
    affine,
    box,
    half_space,
    l2_ball,
    linf_ball,
    non_negative,
)
from fcojax.transforms.mirror import Mirror, euclidean
from fcojax.transforms.monotone import monotone
from fcojax.transforms.nonconvex import l0_ball, mcp, scad
from fcojax.transforms.norms import group_l2, l2, l_inf, sparse_group
from fcojax.transforms.penalty import Penalty, l1, soft_threshold, zero
from fcojax.transforms.power import power
from fcojax.transforms.separable import (
    elastic_net,
    huber,
    l2_squared,
    non_negative_l1,
    on_orthant,
    weighted_l1,
)
from fcojax.transforms.simplex import l1_ball, simplex
from fcojax.transforms.total_variation import fused_lasso, total_variation

__all__ = [
    "Mirror",
    "Penalty",
    "affine",
    "box",
    "elastic_net",
    "euclidean",
    "fused_lasso",
    "group_l2",
    "half_space",
    "huber",
    "l0_ball",
    "l1",
    "l1_ball",
    "l2",
    "l2_ball",
    "l2_squared",
    "l_inf",
    "linf_ball",
    "mcp",
    "monotone",
    "named",
    "non_negative",
    "non_negative_l1",
    "on_orthant",
    "on_subtree",
    "power",
    "scad",
    "simplex",
    "soft_threshold",
    "sparse_group",
    "total_variation",
    "weighted_l1",
    "zero",
]
