r"""Parts of federated methods, and ``method``, which puts them together.

Clients of nearly all methods do the same: from the server's point they take K steps of one size,
:math:`x \leftarrow \mathrm{step}(x, \nabla f(x) + \ldots)`, and send how far they moved. Methods
differ in three parts:

- a ``Geometry``: where the steps happen, such as in the primal, in the dual or on a manifold;
- a ``Correction``: what a client keeps between rounds, what that adds to its gradients, and what
  the client sends;
- a ``ServerStep``: what the server keeps, sends, and does with the mean of the uploads.

The rows of the table of methods are in the other files, by family.
"""

from fcojax.algorithms.averages import average, mirror_average, mirrored, primal, pull
from fcojax.algorithms.controls import control_variate, with_control
from fcojax.algorithms.dual_averages import dual, dual_sums
from fcojax.algorithms.frame import (
    Correction,
    Geometry,
    LocalProblem,
    ServerStep,
    Steps,
    elapsed,
    method,
    none,
    stepping,
)
from fcojax.algorithms.splittings import lagrangian, mean_of_all, with_drift

__all__ = [
    "Correction",
    "Geometry",
    "LocalProblem",
    "ServerStep",
    "Steps",
    "average",
    "control_variate",
    "dual",
    "dual_sums",
    "elapsed",
    "lagrangian",
    "mean_of_all",
    "method",
    "mirror_average",
    "mirrored",
    "none",
    "primal",
    "pull",
    "stepping",
    "with_control",
    "with_drift",
]
