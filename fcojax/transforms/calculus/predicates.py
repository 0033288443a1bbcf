"""Predicates that select leaves of a pytree by path."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fcojax.arguments import factory
from fcojax.types import PyTree

PathPredicate = Callable[[tuple, jax.Array], bool]


@factory
def named(*names: str) -> PathPredicate:
    """Return a predicate that selects leaves by the names in their path.

    Args:
      *names: a leaf is selected if an entry of its path equals one of them, so
        ``named("kernel")`` does not select ``kernel_norm``.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> from fcojax.transforms import l1, named, on_subtree
      >>> penalty = on_subtree(l1(), named("kernel"))
      >>> float(penalty.value({"kernel": jnp.array([1.0, -2.0]), "bias": jnp.array(9.0)}, 1.0))
      3.0
    """

    def touches(path, leaf):
        entries = {jax.tree_util.keystr((entry,), simple=True) for entry in path}
        return not entries.isdisjoint(names)

    return touches


def split_leaves(x: PyTree, touches: PathPredicate) -> tuple[list, list, Callable]:
    """Return the selected leaves, the others, and ``join(selected, others)`` to rebuild x."""
    paths, structure = jax.tree_util.tree_flatten_with_path(x)
    is_chosen = [_is_touched(touches, path, leaf) for path, leaf in paths]
    if not any(is_chosen):
        names = [jax.tree_util.keystr(path) for path, _ in paths]
        raise ValueError(f"the predicate selects none of the leaves {names}; pass another one.")

    def join(chosen, rest):
        chosen, rest = iter(chosen), iter(rest)
        return jax.tree.unflatten(structure, [next(chosen if yes else rest) for yes in is_chosen])

    leaves = list(zip(is_chosen, (leaf for _, leaf in paths), strict=True))
    chosen = [leaf for yes, leaf in leaves if yes]
    return chosen, [leaf for yes, leaf in leaves if not yes], join


def _is_touched(touches: PathPredicate, path: tuple, leaf: Any) -> bool:
    """Return the result of the predicate; raise ``ValueError`` unless it is a boolean."""
    result = touches(path, leaf)
    if not isinstance(result, bool | np.bool_):
        raise ValueError(
            f"the predicate returned {result!r} for {jax.tree_util.keystr(path)}; return True or "
            "False."
        )
    return bool(result)
