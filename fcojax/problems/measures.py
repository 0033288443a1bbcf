"""How good a point is beyond its loss: jittable functions of the parameters."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from fcojax.types import Array


def support_recovery(estimate: Array, truth: ArrayLike, cut: float) -> dict[str, Array]:
    r"""How well the support of ``estimate`` matches that of ``truth``.

    With :math:`A = \{i: |w_i| > cut\}` and T the support of the truth: density :math:`|A| / d`,
    precision :math:`|A \cap T| / |A|`, recall :math:`|A \cap T| / |T|`, and F1, the harmonic mean
    of the two. A quotient of zero by zero counts as zero.

    Example:
      >>> found = support_recovery(jnp.array([2.0, 0.1, 0.0, 1.0]), jnp.array([1, 1, 0, 0]), 0.05)
      >>> {name: round(float(value), 3) for name, value in found.items()}
      {'density': 0.75, 'precision': 0.667, 'recall': 1.0, 'f1': 0.8}
    """
    dtype = jnp.result_type(float)
    found, true = jnp.abs(estimate) > cut, jnp.asarray(truth) != 0
    num_found, num_true, num_both = (
        jnp.sum(where).astype(dtype) for where in (found, true, found & true)
    )
    precision = num_both / jnp.maximum(num_found, 1)
    recall = num_both / jnp.maximum(num_true, 1)
    f1 = 2 * num_both / jnp.maximum(num_found + num_true, 1)
    density = num_found / found.size
    return {"density": density, "precision": precision, "recall": recall, "f1": f1}
