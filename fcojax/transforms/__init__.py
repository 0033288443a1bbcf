"""Penalties, constraints, mirror maps and manifolds; independent of clients and rounds."""

from fcojax.transforms.calculus.compose import (
    on_subtree,
    per_leaf,
    precomposed,
    scaled,
    with_box,
)
from fcojax.transforms.calculus.moreau import moreau_envelope
from fcojax.transforms.calculus.on_singular_values import on_singular_values
from fcojax.transforms.calculus.predicates import named
from fcojax.transforms.constraints.monotone import monotone
from fcojax.transforms.constraints.sets import affine, box, l0_ball, l2_ball
from fcojax.transforms.constraints.simplex import l1_ball, simplex
from fcojax.transforms.manifolds.grassmann import grassmann
from fcojax.transforms.manifolds.hadamard import spd
from fcojax.transforms.manifolds.manifold import (
    Manifold,
    distance,
    flat,
    product_manifold,
    riemannian_gradient,
    transport,
)
from fcojax.transforms.manifolds.polar import polar
from fcojax.transforms.manifolds.sphere import oblique, sphere
from fcojax.transforms.manifolds.stiefel import generalised_stiefel, orthogonal, rotation, stiefel
from fcojax.transforms.mirrors.entropy import entropic_simplex, entropy
from fcojax.transforms.mirrors.mirror import Mirror, euclidean
from fcojax.transforms.mirrors.p_norm import p_norm
from fcojax.transforms.mirrors.quadratic import diagonal, quadratic
from fcojax.transforms.penalties.grid_variation import grid_variation
from fcojax.transforms.penalties.l1 import l1, soft_threshold
from fcojax.transforms.penalties.norms import group_l2, l2, l_inf, sparse_group
from fcojax.transforms.penalties.power import lp_power
from fcojax.transforms.penalties.separable import elastic_net, l2_squared, zero
from fcojax.transforms.penalties.spectral import nuclear, nuclear_ball, psd
from fcojax.transforms.penalties.total_variation import fused_lasso, total_variation
from fcojax.transforms.penalty import Penalty

__all__ = [
    "Manifold",
    "Mirror",
    "Penalty",
    "affine",
    "box",
    "diagonal",
    "distance",
    "elastic_net",
    "entropic_simplex",
    "entropy",
    "euclidean",
    "flat",
    "fused_lasso",
    "generalised_stiefel",
    "grassmann",
    "grid_variation",
    "group_l2",
    "l0_ball",
    "l1",
    "l1_ball",
    "l2",
    "l2_ball",
    "l2_squared",
    "l_inf",
    "lp_power",
    "monotone",
    "moreau_envelope",
    "named",
    "nuclear",
    "nuclear_ball",
    "oblique",
    "on_singular_values",
    "on_subtree",
    "orthogonal",
    "p_norm",
    "per_leaf",
    "polar",
    "precomposed",
    "product_manifold",
    "psd",
    "quadratic",
    "riemannian_gradient",
    "rotation",
    "scaled",
    "simplex",
    "soft_threshold",
    "sparse_group",
    "spd",
    "sphere",
    "stiefel",
    "total_variation",
    "transport",
    "with_box",
    "zero",
]
