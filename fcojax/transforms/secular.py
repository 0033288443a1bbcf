r"""Norms and balls in a diagonal metric, whose prox is the root of one increasing function.

With steps :math:`s_j`, one for each entry, the prox of :math:`\lambda |x|_2` is
:math:`x_j = v_j r / (r + \lambda s_j)` with :math:`r = |x|`, and the projection on the ball of
radius R is :math:`x_j = v_j / (1 + \mu s_j)`. Both are roots of

.. math:: N(t) = \Big(\sum_j \big(c_j / (a_j + t b_j)\big)^2\Big)^{1/2} = 1.

1 / N is increasing and concave, so Newton's method for 1 / N = 1 increases to the root after its
first step. The last step is taken outside of the loop, which gives the derivative of the root.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.transforms.penalty import not_negative, steps_like
from fcojax.types import Array, PyTree

_MAX_STEPS = 100


def root_of_norms(
    c: PyTree,
    a: PyTree,
    b: PyTree,
    norms: Callable[[PyTree], PyTree] = tree.euclidean_norm,
    spread: Callable[[PyTree, PyTree], PyTree] = tree.scale,
) -> PyTree:
    """Return t of at least 0 with N(t) = 1 for each group, and 0 where N(0) is at most 1.

    Args:
      c: a pytree like the point.
      a: a pytree like ``c``, at least 0.
      b: a pytree like ``c``, above 0 where ``a`` is 0.
      norms: ``(pytree) -> the norm of each group``; one group by default.
      spread: ``(one number per group, pytree) -> pytree``, each entry times its group's number.
    """
    eps = max(float(jnp.finfo(leaf.dtype).eps) for leaf in jax.tree.leaves(c))

    def newton(t, c, a, b):
        """Return N at t, and the next t; entries with c = 0 are ignored."""
        shift = jax.tree.map(lambda a, tb: a + tb, a, spread(t, b))
        safe = jax.tree.map(lambda d, n: jnp.where(n == 0, 1, d), shift, c)
        ratio = jax.tree.map(jnp.divide, c, safe)
        size = norms(ratio)
        # The derivative of 1 / N is norms(root)^2 / N^3.
        root = jax.tree.map(lambda r, b, d: r * jnp.sqrt(b / d), ratio, b, safe)

        def move(t, size, slope):
            step = size**2 * (size - 1) / jnp.where(slope > 0, slope, 1) ** 2
            return t + jnp.where(slope > 0, step, 0)

        return size, jax.tree.map(move, t, size, norms(root))

    fixed = jax.lax.stop_gradient((c, a, b))
    least = jax.tree.map(lambda size: eps * size, norms(fixed[0]))

    def improve(carry):
        index, t, _ = carry
        _, moved = newton(t, *fixed)
        moved = jax.tree.map(jnp.maximum, moved, least)
        change = jax.tree.map(
            lambda new, old: jnp.max(jnp.abs(new - old) - 4 * eps * new, initial=0.0), moved, t
        )
        return index + 1, moved, tree.total(change) > 0

    first = jnp.zeros((), jnp.int32), least, jnp.ones((), bool)
    t = jax.lax.while_loop(lambda carry: (carry[0] < _MAX_STEPS) & carry[2], improve, first)[1]
    at_zero = norms(jax.tree.map(lambda c, a: jnp.where(c == 0, 0, c / a), *fixed[:2]))
    return jax.tree.map(
        lambda size, root: jnp.where(size <= 1, 0, root), at_zero, newton(t, c, a, b)[1]
    )


def floats_with_steps(v: PyTree, steps: PyTree) -> tuple[PyTree, PyTree]:
    """Return a point in floating point, and steps for each of its entries in its dtypes."""
    wide = tree.floats(v)
    return wide, jax.tree.map(
        lambda leaf, step: jnp.broadcast_to(not_negative(step, leaf), leaf.shape),
        wide,
        steps_like(wide, steps),
    )


def norm_prox(
    v: PyTree,
    thresholds: PyTree,
    norms: Callable[[PyTree], PyTree] = tree.euclidean_norm,
    spread: Callable[[PyTree, PyTree], PyTree] = tree.scale,
) -> PyTree:
    """Return the prox of the sum of the norms of groups, for a threshold for each entry.

    Args:
      v: the point.
      thresholds: strength times step, a pytree like ``v``.
      norms: see ``root_of_norms``.
      spread: see ``root_of_norms``.
    """
    ones = jax.tree.map(jnp.ones_like, v)
    sizes = spread(root_of_norms(v, thresholds, ones, norms, spread), ones)

    def shrink(leaf, size, threshold):
        whole = size + threshold
        return leaf * jnp.where(whole > 0, size / jnp.where(whole > 0, whole, 1), 1)

    return jax.tree.map(shrink, v, sizes, thresholds)


def ball_prox(v: PyTree, radius: Array, steps: PyTree) -> PyTree:
    """Return the projection on a ball in the metric of the steps, one for each entry."""
    largest = jnp.max(jnp.stack([jnp.max(leaf, initial=0.0) for leaf in jax.tree.leaves(steps)]))
    steps = jax.tree.map(lambda s: jnp.where(largest > 0, s, 1), steps)
    size = jnp.where(radius > 0, radius, 1)
    ones = jax.tree.map(jnp.ones_like, v)
    shift = root_of_norms(tree.scale(1 / size, v), ones, steps)
    return jax.tree.map(
        lambda leaf, s: jnp.where(radius > 0, leaf / (1 + shift * s), jnp.zeros_like(leaf)),
        v,
        steps,
    )
