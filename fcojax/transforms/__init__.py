"""The geometry: penalties, constraints, mirror maps, manifolds. It has never heard of a client."""

from fcojax.transforms.calculus import named, on_subtree
from fcojax.transforms.grassmann import fixed_rank, grassmann, grassmann_projector
from fcojax.transforms.manifold import (
    Manifold,
    distance,
    flat,
    product,
    riemannian_gradient,
    transport,
)
from fcojax.transforms.mirror import Mirror, euclidean
from fcojax.transforms.penalty import Penalty, l1, soft_threshold, zero
from fcojax.transforms.polar import polar, special_polar
from fcojax.transforms.sphere import oblique, sphere
from fcojax.transforms.stiefel import generalised_stiefel, orthogonal, rotation, stiefel

__all__ = [
    "Manifold",
    "Mirror",
    "Penalty",
    "distance",
    "euclidean",
    "fixed_rank",
    "flat",
    "generalised_stiefel",
    "grassmann",
    "grassmann_projector",
    "l1",
    "named",
    "oblique",
    "on_subtree",
    "orthogonal",
    "polar",
    "product",
    "riemannian_gradient",
    "rotation",
    "soft_threshold",
    "special_polar",
    "sphere",
    "stiefel",
    "transport",
    "zero",
]
