"""The geometry: penalties, constraints, mirror maps. It has never heard of a client."""

from fcojax.transforms.calculus import named, on_subtree
from fcojax.transforms.mirror import Mirror, euclidean
from fcojax.transforms.penalty import Penalty, l1, soft_threshold, zero

__all__ = ["Mirror", "Penalty", "euclidean", "l1", "named", "on_subtree", "soft_threshold", "zero"]
