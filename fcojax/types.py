"""Names used in signatures; no behaviour."""

from typing import Any

import jax

Array = jax.Array
Key = jax.Array  # a typed PRNG key, as made by jax.random.key
Scalar = jax.Array | float
PyTree = Any
Params = Any  # a pytree of arrays: the point being optimised
