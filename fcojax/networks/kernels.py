"""The kernels of dense layers, to which penalties and constraints usually apply."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from fcojax.problems.measures import at_cuts, density
from fcojax.types import Params


def dense_kernels(path: Sequence[Any], leaf: Any) -> bool:
    """Select the kernels of layers named ``dense...``, as a predicate for ``on_subtree``.

    Flax's ``Dense_0`` is one of them; for layers with other names use ``named("kernel")``.

    Args:
      path: key path of a leaf.
      leaf: the leaf, not used.

    Example:
      >>> params = {"conv_1": {"kernel": 0.0}, "Dense_0": {"kernel": 1.0, "bias": 2.0}}
      >>> [leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)
      ...  if dense_kernels(path, leaf)]
      [1.0]
    """
    entries = [jax.tree_util.keystr((entry,), simple=True).lower() for entry in path]
    return entries[-1] == "kernel" and any(entry.startswith("dense") for entry in entries)


def dense_density(cuts: Sequence[float]) -> Callable[[Params], dict]:
    """Return the measure ``density`` of all dense kernels together.

    Without layers named ``dense...`` it is that of all matrices, such as an embedding or
    Equinox's ``weight``; empty if there are none.
    """

    def measure(params):
        leaves = jax.tree_util.tree_leaves_with_path(params)
        kernels = [leaf for path, leaf in leaves if dense_kernels(path, leaf)]
        kernels = kernels or [leaf for _, leaf in leaves if leaf.ndim == 2]
        return at_cuts(lambda cut: density(kernels, cut), cuts) if kernels else {}

    return measure
