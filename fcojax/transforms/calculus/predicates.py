"""Which leaves of a pytree something is put on, said by a predicate."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fcojax.memo import memoised
from fcojax.types import PyTree

PathPredicate = Callable[[tuple, jax.Array], bool]


@memoised
def named(*names: str) -> PathPredicate:
    """A predicate for ``on_subtree``: leaves whose path has one of these names in it.

    A name matches a whole path entry, so ``named("kernel")`` does not touch ``kernel_norm``.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> from fcojax.transforms import l1, named, on_subtree
      >>> penalty = on_subtree(l1(), named("kernel"))
      >>> float(penalty.value({"kernel": jnp.array([1.0, -2.0]), "bias": jnp.array(9.0)}, 1.0))
      3.0
    """
    if bad := [name for name in names if not isinstance(name, str)]:
        several = isinstance(bad[0], list | tuple)
        right = ", ".join(repr(str(name)) for name in (bad[0] if several else bad))
        raise ValueError(f"named was given {bad[0]!r}; pass names as strings: named({right}).")

    def touches(path, leaf):
        del leaf
        entries = {jax.tree_util.keystr((entry,), simple=True) for entry in path}
        return not entries.isdisjoint(names)

    return touches


def split_leaves(x: PyTree, touches: PathPredicate) -> tuple[list, list, Callable]:
    """The leaves that are touched, the others, and ``join(touched, others)`` to put them back."""
    paths, structure = jax.tree_util.tree_flatten_with_path(x)
    is_chosen = [_is_touched(touches, path, leaf) for path, leaf in paths]
    if not any(is_chosen):
        raise ValueError(
            "the predicate touches none of the leaves "
            f"{[jax.tree_util.keystr(path) for path, _ in paths]}; mend it, or leave the subtree "
            "out if nothing is to be chosen."
        )

    def join(chosen, rest):
        chosen, rest = iter(chosen), iter(rest)
        return jax.tree.unflatten(structure, [next(chosen if yes else rest) for yes in is_chosen])

    leaves = list(zip(is_chosen, (leaf for _, leaf in paths), strict=True))
    chosen = [leaf for yes, leaf in leaves if yes]
    return chosen, [leaf for yes, leaf in leaves if not yes], join


def require_predicate(touches: Any, whose: str) -> None:
    """Raises unless it can be asked; a name is none."""
    if touches is named:
        raise ValueError(f"{whose} was given the function named; call it: named('kernel').")
    if not callable(touches):
        name = touches if isinstance(touches, str) else "kernel"
        raise ValueError(
            f"{whose} was given {touches!r} for its predicate; pass named({name!r}), or a function "
            "(path, leaf) -> bool."
        )


def _is_touched(touches: PathPredicate, path: tuple, leaf: Any) -> bool:
    """What the predicate says of a leaf; raises if that is neither yes nor no."""
    found = touches(path, leaf)
    if isinstance(found, bool | np.bool_):
        return bool(found)
    what = "function" if callable(found) else type(found).__name__
    raise ValueError(
        f"the predicate returned a {what} for {jax.tree_util.keystr(path)}; return True or False."
    )
