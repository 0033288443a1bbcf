"""Penalties applied to each entry, as diagonal metrics need them."""

from collections.abc import Callable
from typing import cast

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import factory, validated
from fcojax.transforms.calculus.compose import agree
from fcojax.transforms.indicators import largest
from fcojax.transforms.penalty import Penalty, steps_like


@factory
def per_entry(penalty: Penalty) -> Penalty:
    r"""Apply a penalty to every entry separately, :math:`\sum_i \psi(x_i; \lambda)`.

    The result is separable for any penalty. A separable penalty is unchanged; the Euclidean norm
    becomes the l1 norm.

    Args:
      penalty: psi.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> v = jnp.array([3.0, -3.0])
      >>> per_entry(l1()).prox(v, jnp.array([1.0, 2.0]), 1.0).tolist()
      [2.0, -1.0]
    """

    def value(x, scale):
        def one_leaf(leaf):
            each = jax.vmap(lambda entry: penalty.value(entry, scale))(leaf.ravel())
            return jnp.sum(each)

        return tree.total(jax.tree.map(one_leaf, x))

    def prox(v, step, scale):
        def one_leaf(leaf, steps):
            if not leaf.size:
                return leaf
            steps = jnp.broadcast_to(jnp.asarray(steps), leaf.shape)
            one_entry = jax.vmap(lambda entry, each: penalty.prox(entry, each, scale))
            return one_entry(leaf.ravel(), steps.ravel()).reshape(leaf.shape)

        return jax.tree.map(one_leaf, v, steps_like(v, step))

    def entries(x):
        return jax.tree.map(jnp.ravel, x)

    inner = penalty.scale_max and jax.vmap(penalty.scale_max)
    scale_max = None if inner is None else lambda g: largest(jax.tree.map(inner, entries(g)))
    inner_distance = penalty.subdiff_distance and jax.vmap(penalty.subdiff_distance, (0, 0, None))

    def subdiff_distance(x, v, scale):
        each = cast(Callable, inner_distance)
        return tree.euclidean_norm(
            jax.tree.map(lambda a, b: each(a, b, scale), entries(x), entries(v))
        )

    distance = None if inner_distance is None else subdiff_distance
    return Penalty(
        value, prox, scale_max, convex=penalty.convex, separable=True, subdiff_distance=distance
    )


@validated
def sum_over_entries(penalty: Penalty, name: str) -> Penalty:
    r"""Return a separable penalty, whose prox accepts a step for each entry.

    .. math:: \mathrm{argmin}_x \psi(x; \lambda) + \sum_i (x_i - v_i)^2 / 2 t_i

    A penalty that is not marked as separable is tested on a vector: if its prox acts entry by
    entry, it is treated as a sum of one function per entry. ``name`` is for messages.
    """
    if penalty.separable:
        return penalty
    if not agree(lambda probe: [p.prox(probe, 1.0, 1.0) for p in (penalty, per_entry(penalty))]):
        raise ValueError(
            f"the penalty of {name} couples entries, and its prox in a diagonal metric has no "
            "known form; pass a sum over entries, such as l1() or box(...)."
        )
    return per_entry(penalty)
