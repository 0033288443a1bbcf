"""The geometry: penalties, constraints, mirror maps. It has never heard of a client."""

from fcojax.transforms.calculus import (
    named,
    on_subtree,
    per_entry,
    per_leaf,
    precomposed,
    rotated,
    scaled,
    translated,
    with_box,
)
from fcojax.transforms.constraint import affine, box, half_space, l2_ball, linf_ball, non_negative
from fcojax.transforms.entropy import burg, entropic_simplex, entropy, hypentropy
from fcojax.transforms.mirror import Mirror, divergence, euclidean, side_by_side
from fcojax.transforms.monotone import monotone
from fcojax.transforms.moreau import conjugate, moreau_envelope
from fcojax.transforms.nonconvex import l0_ball, mcp, scad
from fcojax.transforms.norms import group_l2, l2, l_inf, sparse_group
from fcojax.transforms.p_norm import p_norm
from fcojax.transforms.penalty import Penalty, l1, soft_threshold, zero
from fcojax.transforms.power import power
from fcojax.transforms.quadratic import diagonal, quadratic
from fcojax.transforms.separable import (
    elastic_net,
    huber,
    l2_squared,
    non_negative_l1,
    on_orthant,
    weighted_l1,
)
from fcojax.transforms.simplex import l1_ball, simplex
from fcojax.transforms.spectral import nuclear, nuclear_ball, psd, rank_ball, spectral_ball
from fcojax.transforms.total_variation import fused_lasso, total_variation

__all__ = [
    "Mirror",
    "Penalty",
    "affine",
    "box",
    "burg",
    "conjugate",
    "diagonal",
    "divergence",
    "elastic_net",
    "entropic_simplex",
    "entropy",
    "euclidean",
    "fused_lasso",
    "group_l2",
    "half_space",
    "huber",
    "hypentropy",
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
    "moreau_envelope",
    "named",
    "non_negative",
    "non_negative_l1",
    "nuclear",
    "nuclear_ball",
    "on_orthant",
    "on_subtree",
    "p_norm",
    "per_entry",
    "per_leaf",
    "power",
    "precomposed",
    "psd",
    "quadratic",
    "rank_ball",
    "rotated",
    "scad",
    "scaled",
    "side_by_side",
    "simplex",
    "soft_threshold",
    "sparse_group",
    "spectral_ball",
    "total_variation",
    "translated",
    "weighted_l1",
    "with_box",
    "zero",
]
