"""Penalties made from other penalties."""

from collections.abc import Callable

import jax

from fcojax.transforms.penalty import Penalty

PathPredicate = Callable[[tuple, jax.Array], bool]


def on_subtree(penalty: Penalty, touches: PathPredicate) -> Penalty:
    """The penalty on those leaves for which ``touches(path, leaf)`` holds; the others stay free.

    Args:
      penalty: what to apply. It sees a list of the touched leaves, in tree order.
      touches: a predicate on the key path and the leaf, as ``jax.tree_util.tree_map_with_path``
        gives them; it is asked while tracing, so it must not look at values.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms.penalty import l1
      >>> kernels = on_subtree(l1(), named("kernel"))
      >>> kernels.prox({"bias": jnp.array(0.5), "kernel": jnp.array([3.0, 0.5])}, 1.0, 1.0)
      {'bias': Array(0.5, ...), 'kernel': Array([2., 0.], ...)}
    """

    def split(x):
        paths, structure = jax.tree_util.tree_flatten_with_path(x)
        leaves = [leaf for _, leaf in paths]
        chosen = [i for i, (path, leaf) in enumerate(paths) if touches(path, leaf)]
        if not chosen:
            raise ValueError(
                "on_subtree touches none of the leaves "
                f"{[jax.tree_util.keystr(path) for path, _ in paths]}; "
                "use zero() if nothing is to be penalised, or mend the predicate."
            )
        return leaves, chosen, structure

    def value(x, scale):
        leaves, chosen, _ = split(x)
        return penalty.value([leaves[i] for i in chosen], scale)

    def prox(v, step, scale):
        leaves, chosen, structure = split(v)
        moved = penalty.prox([leaves[i] for i in chosen], step, scale)
        for i, leaf in zip(chosen, moved, strict=True):
            leaves[i] = leaf
        return jax.tree.unflatten(structure, leaves)

    scale_max = None
    if penalty.scale_max is not None:
        inner = penalty.scale_max

        def scale_max(gradient):
            leaves, chosen, _ = split(gradient)
            return inner([leaves[i] for i in chosen])

    return Penalty(value, prox, scale_max, penalty.convex)


def named(*names: str) -> PathPredicate:
    """A predicate for ``on_subtree``: leaves whose path has one of these names in it.

    A name matches a whole path entry, so ``named("kernel")`` does not touch ``kernel_norm``.
    """

    def touches(path, leaf):
        del leaf
        entries = {jax.tree_util.keystr((entry,), simple=True) for entry in path}
        return not entries.isdisjoint(names)

    return touches
