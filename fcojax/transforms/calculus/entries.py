"""Penalties entry by entry: what a diagonal metric can take."""

from collections.abc import Callable
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.memo import memoised
from fcojax.transforms.calculus.compose import is_concrete
from fcojax.transforms.lengths import length
from fcojax.transforms.penalty import Penalty, entrywise, largest, require_penalty


@memoised
def per_entry(penalty: Penalty) -> Penalty:
    r"""The penalty on every entry by itself, :math:`\sum_i \psi(x_i; \lambda)`.

    Each entry is a problem in one variable, so whatever the penalty, the sum is separable. For
    those that are sums already, such as l1, nothing changes; the Euclidean norm turns into l1.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> v = jnp.array([3.0, -3.0])
      >>> per_entry(l1()).prox(v, jnp.array([1.0, 2.0]), 1.0).tolist()
      [2.0, -1.0]
    """
    require_penalty(penalty, "per_entry")

    def value(x, scale):
        def one_leaf(leaf):
            each = jax.vmap(lambda entry: penalty.value(entry, scale))(leaf.ravel())
            return jnp.sum(each)

        return tree.total(jax.tree.map(one_leaf, x))

    def prox(v, step, scale):
        def one_leaf(leaf, steps):
            if not leaf.size:
                return leaf
            steps = jnp.broadcast_to(jnp.asarray(steps, leaf.dtype), leaf.shape)
            one_entry = jax.vmap(lambda entry, each: penalty.prox(entry, each, scale))
            return one_entry(leaf.ravel(), steps.ravel()).reshape(leaf.shape)

        return entrywise(one_leaf, v, step)

    def entries(x):
        return jax.tree.map(jnp.ravel, x)

    inner = penalty.scale_max and jax.vmap(penalty.scale_max)
    scale_max = None if inner is None else lambda g: largest(jax.tree.map(inner, entries(g)))
    gap = penalty.subdiff_distance and jax.vmap(penalty.subdiff_distance, (0, 0, None))

    def subdiff_distance(x, v, scale):
        each = cast(Callable, gap)
        return length(jax.tree.map(lambda a, b: each(a, b, scale), entries(x), entries(v)))

    distance = None if gap is None else subdiff_distance
    return Penalty(value, prox, scale_max, penalty.convex, True, distance)


def sum_over_entries(penalty: Penalty, whose: str) -> Penalty:
    """The penalty with a prox that takes a step for every entry, or a refusal in ``whose`` name.

    One that does not say whether it is separable is tried on a vector: if its prox is the same
    entry by entry, it is taken for a sum of the same function of each.
    """
    require_penalty(penalty, whose)
    if penalty.separable:
        return penalty
    fix = "pass a sum over entries, such as l1() or per_entry(...) of a function of one entry."
    with jax.ensure_compile_time_eval():
        for size in (1.0, 1e6):  # a ball does nothing to what is inside
            probe = jnp.array([2.0 * size, -1.5 * size, 0.25 * size])
            try:
                proxes = [psi.prox(probe, 1.0, 1.0) for psi in (penalty, per_entry(penalty))]
            except ValueError:
                raise ValueError(
                    f"{whose} was given a penalty that does not act entry by entry, and whose prox "
                    f"in a diagonal metric has no closed form; {fix}"
                ) from None
            if is_concrete(proxes) and not np.allclose(*proxes):
                raise ValueError(
                    f"{whose} was given a penalty that couples entries: its prox of {probe} is "
                    f"{proxes[0]}, and {proxes[1]} entry by entry; {fix}"
                )
    return per_entry(penalty)
