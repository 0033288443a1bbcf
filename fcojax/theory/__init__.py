"""Theorems as functions: constants measured on a problem, bounds computed from them.

Functions run on the host in float64 numpy unless their docstrings say otherwise. They evaluate runs
and are not used in them.
"""

from fcojax.theory import averages, fco, least_squares, linear_models, local_sgd, manifold, saddle
from fcojax.theory.visits import local_points

__all__ = [
    "averages",
    "fco",
    "least_squares",
    "linear_models",
    "local_points",
    "local_sgd",
    "manifold",
    "saddle",
]
