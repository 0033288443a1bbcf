"""What tests of several problems share."""

import jax
import numpy as np

from fcojax.problems import population_loss

# The mean loss of a population, compiled once a loss and shape.
mean_loss = jax.jit(population_loss, static_argnums=0)


def in_float64(tree):
    """Floating leaves in float64, so that finite differences have digits to spare."""
    return jax.tree.map(
        lambda leaf: np.asarray(leaf, float) if leaf.dtype.kind == "f" else np.asarray(leaf), tree
    )
